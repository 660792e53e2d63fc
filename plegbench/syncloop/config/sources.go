package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// Numbers of pkg/kubelet/config/common.go, http.go and apiserver.go upstream.
const (
	maxManifest    = 10 << 20         // bytes of an answer that are read
	httpTimeout    = 10 * time.Second // of a request for manifests
	quietAfter     = 4                // failures in a row, after which they are logged at V(4) only
	nodeSyncPeriod = time.Second      // WaitForAPIServerSyncPeriod
)

// File is the source of manifest files. A file that cannot be read as a pod is treated as deleted
// by the next full scan, as in the kubelet. Files with ConfigMaps and Secrets are ignored.
type File struct {
	Path     string // a folder, whose files are read without those in folders below, or a single file
	NodeName string
	Interval time.Duration // between readings of everything: fileCheckFrequency
	Polled   bool          // only read at each interval: there is no inotify in fake time
	Log      logr.Logger

	pods map[string][]*v1.Pod // by path, as last read
}

// Run reads the path at once, at each interval, and when inotify reports a change, and sends all pods each time. It
// ends with ctx, whose error it returns. A watch that broke is made again at the next interval.
func (f *File) Run(ctx context.Context, send func([]*v1.Pod)) error {
	f.Log.V(1).Info("Watching path", "path", f.Path)
	watcher := &fsnotify.Watcher{}
	if !f.Polled {
		var err error
		if watcher, err = fsnotify.NewWatcher(); err != nil {
			return fmt.Errorf("unable to create inotify: %w", err)
		}
		defer func() { _ = watcher.Close() }()
	}
	tick := time.NewTicker(f.Interval)
	defer tick.Stop()
	for changed := ""; ; {
		if changed == "" && !f.Polled { // before the reading, to miss nothing in between
			if err := watcher.Add(f.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				f.Log.Error(err, "Unable to create inotify", "path", f.Path)
			}
		}
		if err := f.read(changed); err != nil {
			f.Log.Error(err, "Unable to read config path", "path", f.Path)
		} else {
			send(f.sorted())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			changed = ""
		case e := <-watcher.Events:
			changed = e.Name
		case err := <-watcher.Errors:
			f.Log.Error(err, "Unable to read config path", "path", f.Path)
		}
	}
}

// sorted are the pods of each file, by path.
func (f *File) sorted() []*v1.Pod {
	var out []*v1.Pod
	for _, path := range slices.Sorted(maps.Keys(f.pods)) {
		out = append(out, f.pods[path]...)
	}
	return out
}

// read reads the path whole, or only the file that changed, if there is one. A path that is missing has no pods. A file
// that changed and cannot be parsed keeps its pods: it may be half written.
func (f *File) read(changed string) error {
	pods := map[string][]*v1.Pod{}
	info, err := os.Stat(f.Path)
	paths := []string{f.Path}
	switch {
	case filepath.Dir(changed) == f.Path:
		pods, paths = maps.Clone(f.pods), slices.DeleteFunc([]string{changed}, isHidden)
		delete(pods, changed)
	case errors.Is(err, fs.ErrNotExist):
		f.Log.Error(errors.New("path does not exist, ignoring"), "Unable to read config path", "path", f.Path)
		paths = nil
	case err != nil:
		return err
	case info.IsDir():
		entries, err := os.ReadDir(f.Path)
		if err != nil {
			return err
		}
		paths = nil
		for _, e := range entries {
			paths = append(paths, filepath.Join(f.Path, e.Name()))
		}
		paths = slices.DeleteFunc(paths, isHidden)
	}
	for _, path := range paths {
		read, err := f.readFile(path)
		switch {
		case err == nil:
			pods[path] = read
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, errObject):
		default:
			f.Log.Error(err, "Could not process manifest file", "path", path)
			if changed != "" {
				pods[path] = f.pods[path]
			}
		}
	}
	f.pods = pods
	return nil
}

func isHidden(path string) bool { return strings.HasPrefix(filepath.Base(path), ".") }

// readFile reads a regular file: opening a pipe would wait for a writer.
func (f *File) readFile(path string) ([]*v1.Pod, error) {
	f.Log.V(3).Info("Reading config file", "path", path)
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(data, pod.FileSource, path, f.NodeName)
}

// HTTP is the source at a URL, which answers with a pod or a list of pods.
type HTTP struct {
	URL      string
	Header   http.Header // of each request
	NodeName string
	Interval time.Duration // between the end of a request and the next: httpCheckFrequency
	Log      logr.Logger

	client http.Client
	last   []byte // document of the last answer, good or bad
}

// Run asks at once and then at each interval, and sends all pods whenever the answer changed. It ends with ctx, whose
// error it returns.
func (h *HTTP) Run(ctx context.Context, send func([]*v1.Pod)) error {
	h.Log.V(1).Info("Watching URL", "URL", h.URL)
	h.client.Timeout = httpTimeout
	failures := 0 // in a row
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		switch err := h.fetch(ctx, send); {
		case err == nil && failures > 0:
			h.Log.Info("Successfully read pods from URL")
			failures = 0
		case err != nil:
			h.Log.V(4*min(1, failures/quietAfter)).Info("Failed to read pods from URL", "err", err)
			failures++
		}
	}, h.Interval)
	return ctx.Err()
}

// fetch asks once. A failure leaves the pods as they are, but for an answer without a single byte, which means no pods.
func (h *HTTP) fetch(ctx context.Context, send func([]*v1.Pod)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL, nil)
	if err != nil {
		return err
	}
	if h.Header != nil {
		req.Header = h.Header.Clone()
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // the document has been read by then
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxManifest))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", h.URL, err)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s", h.URL, resp.Status)
	case len(data) == 0:
		send(nil)
		return fmt.Errorf("zero-length data received from %s", h.URL)
	case bytes.Equal(data, h.last):
		// Upstream skips a repeated answer even if it was bad, or if an empty answer has removed the pods since.
		return nil
	}
	h.last = data
	pods, err := parse(data, pod.HTTPSource, h.URL, h.NodeName)
	if err == nil {
		send(pods)
	}
	return err
}

// A Client lists and watches the pods of all namespaces.
type Client interface {
	ListPods(ctx context.Context, opts metav1.ListOptions) (*v1.PodList, error)
	WatchPods(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// APIServer is the source of the pods that are bound to the node.
type APIServer struct {
	Client   Client
	NodeName string
	// NodeSynced reports whether the node's own object is known. Pods are watched only then.
	NodeSynced func() bool
	Log        logr.Logger
}

// Run lists and watches, and sends all pods at each change. An API server that cannot be reached takes no pod away.
// It ends with ctx, whose error it returns.
func (a *APIServer) Run(ctx context.Context, send func([]*v1.Pod)) error {
	a.Log.Info("Waiting for node sync before watching apiserver pods")
	synced := func(context.Context) (bool, error) { return a.NodeSynced(), nil }
	if err := wait.PollUntilContextCancel(ctx, nodeSyncPeriod, true, synced); err != nil {
		return err
	}
	a.Log.Info("Watching apiserver")
	ours := fields.OneTermEqualSelector("spec.nodeName", a.NodeName).String()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = ours
			return a.Client.ListPods(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = ours
			return a.Client.WatchPods(ctx, o)
		},
	}
	store := cache.NewUndeltaStore(func(objects []any) {
		all := make([]*v1.Pod, len(objects))
		for i, o := range objects {
			all[i] = o.(*v1.Pod)
		}
		send(all)
	}, cache.MetaNamespaceKeyFunc)
	cache.NewReflector(cache.ToListWatcherWithWatchListSemantics(lw, a.Client), &v1.Pod{}, store, 0).
		RunWithContext(logr.NewContext(ctx, a.Log))
	return ctx.Err()
}

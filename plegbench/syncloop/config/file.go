package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// Numbers of pkg/kubelet/config upstream.
const (
	maxManifest  = 10 << 20    // bytes of a manifest (common.go)
	rewatchFirst = time.Second // until a broken watch is made anew, doubling up to rewatchMost (file_linux.go)
	rewatchMost  = 20 * time.Second
)

// FileConfig is what the source of manifest files needs.
type FileConfig struct {
	Path     string // a folder, whose files are read without those in folders below, or a single file
	NodeName string
	Interval time.Duration // between readings of everything: fileCheckFrequency
	// AllowReferences lets the pods name ConfigMaps, Secrets and service accounts. The kubelet forbids that to static pods (gate
	// PreventStaticPodAPIReferences); where such objects lie in files beside the manifests there is no reason to.
	AllowReferences bool
	Log             logr.Logger
}

// File is the source of manifest files. A file that cannot be read as a pod is as good as absent: at the next reading its
// pod is gone from the list, and is then stopped. The kubelet does the same.
type File struct {
	cfg  FileConfig
	pods map[string]*v1.Pod // by namespace/name: of two files with pods of one name the last counts
	keys map[string]string  // by file name, into pods
}

// NewFile returns a source that has read nothing yet.
func NewFile(cfg FileConfig) *File {
	cfg.Path = filepath.Clean(cfg.Path)
	return &File{cfg: cfg, pods: map[string]*v1.Pod{}, keys: map[string]string{}}
}

// Name is the source's name.
func (f *File) Name() string { return pod.FileSource }

var (
	errMissing = errors.New("path does not exist, ignoring")
	errGone    = errors.New("the watched path was removed or renamed")
)

// Run reads the path at once, at each interval, and what changed when inotify says so, and sends all pods each time. It
// ends with ctx, whose error it returns.
func (f *File) Run(ctx context.Context, send func([]*v1.Pod)) error {
	f.cfg.Log.V(1).Info("Watching path", "path", f.cfg.Path)
	tick := time.NewTicker(f.cfg.Interval)
	defer tick.Stop()
	w := &inotify{path: f.cfg.Path, log: f.cfg.Log, retry: time.NewTimer(0)}
	defer w.close()
	<-w.retry.C
	w.open() // before the first reading, so that nothing is missed in between
	f.relist(send)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			f.relist(send)
		case <-w.retry.C:
			if w.open() {
				f.relist(send)
			}
		case e := <-w.events:
			if err := f.changed(e, send); err != nil {
				f.cfg.Log.Error(err, "Unable to process watch event")
			}
			if e.Name == f.cfg.Path && (e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)) {
				w.lost(errGone)
			}
		case err := <-w.errs:
			w.lost(fmt.Errorf("watching %q: %w", f.cfg.Path, err))
		}
	}
}

func (f *File) relist(send func([]*v1.Pod)) {
	if err := f.list(); err != nil {
		f.cfg.Log.Error(err, "Unable to read config path", "path", f.cfg.Path)
		if !errors.Is(err, errMissing) {
			return // what cannot be read at all says nothing about its pods
		}
	}
	f.push(send)
}

func (f *File) push(send func([]*v1.Pod)) {
	pods := make([]*v1.Pod, 0, len(f.pods))
	for _, key := range slices.Sorted(maps.Keys(f.pods)) {
		pods = append(pods, f.pods[key])
	}
	send(pods)
}

// list reads the path whole. A path that is missing has no pods.
func (f *File) list() error {
	info, err := os.Stat(f.cfg.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		clear(f.pods)
		return errMissing
	case err != nil:
		return err
	case info.IsDir():
		return f.listFolder()
	case info.Mode().IsRegular():
		p, err := f.read(f.cfg.Path)
		if err != nil {
			return err
		}
		clear(f.pods)
		f.pods[pod.Format(p)] = p
		return nil
	}
	return errors.New("path is not a directory or file")
}

func (f *File) listFolder() error {
	entries, err := os.ReadDir(f.cfg.Path) // sorted by name
	if err != nil {
		return err
	}
	clear(f.pods)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(f.cfg.Path, e.Name())
		info, err := os.Stat(path) // of what a link points to
		switch {
		case err != nil:
			f.cfg.Log.Error(err, "Could not get metadata", "path", path)
		case info.IsDir():
			f.cfg.Log.Error(nil, "Provided manifest path is a directory, not recursing into manifest path", "path", path)
		case !info.Mode().IsRegular():
			f.cfg.Log.Error(nil, "Manifest path is not a directory or file", "path", path, "mode", info.Mode())
		default:
			f.take(path)
		}
	}
	return nil
}

// take reads one file of the folder into the set.
func (f *File) take(path string) {
	p, err := f.read(path)
	switch {
	case err == nil:
		f.pods[pod.Format(p)] = p
	case errors.Is(err, fs.ErrNotExist): // removed since the folder was read
	case f.cfg.AllowReferences && errors.Is(err, errObject): // what the pods refer to, read by others
	default:
		f.cfg.Log.Error(err, "Could not process manifest file", "path", path)
	}
}

func (f *File) read(path string) (*v1.Pod, error) {
	f.cfg.Log.V(3).Info("Reading config file", "path", path)
	// inotify tells of pipes as well, and who opens one waits for a writer. A kubelet does, in the midst of its loop over the events.
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file, so it is not read", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	data, err := readAtMost(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p, err := ParsePod(data, pod.FileSource, path, f.cfg.NodeName)
	if err != nil {
		return nil, err
	}
	if err := checkReferences(p, f.cfg.AllowReferences); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.keys[path] = pod.Format(p)
	return p, nil
}

func readAtMost(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err == nil && len(data) > maxManifest {
		return nil, errors.New("longer than 10 MiB, which no manifest may be: remove the file or make it shorter")
	}
	return data, err
}

// changed takes an event of inotify. A file that cannot be parsed leaves its pod as it is until the next reading of all.
func (f *File) changed(e fsnotify.Event, send func([]*v1.Pod)) error {
	switch {
	case strings.HasPrefix(filepath.Base(e.Name), "."):
		f.cfg.Log.V(4).Info("Ignored pod manifest, because it starts with dots", "eventName", e.Name)
	case e.Has(fsnotify.Create) || e.Has(fsnotify.Write) || e.Has(fsnotify.Chmod):
		p, err := f.read(e.Name)
		if f.cfg.AllowReferences && errors.Is(err, errObject) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("can't process config file %q: %w", e.Name, err)
		}
		f.pods[pod.Format(p)] = p
		f.push(send)
	case e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename):
		key, known := f.keys[e.Name]
		if !known {
			return nil
		}
		delete(f.keys, e.Name)
		if _, there := f.pods[key]; !there {
			return fmt.Errorf("the pod with key %s doesn't exist in cache", key)
		}
		delete(f.pods, key)
		f.push(send)
	}
	return nil
}

// An inotify is a watch of the path that comes back after it broke.
type inotify struct {
	path   string
	log    logr.Logger
	w      *fsnotify.Watcher // nil while there is none
	events chan fsnotify.Event
	errs   chan error
	retry  *time.Timer
	pause  time.Duration
}

// open starts watching and reports whether it does; if not, it has said why and has set retry.
func (w *inotify) open() bool {
	if _, err := os.Stat(w.path); errors.Is(err, fs.ErrNotExist) {
		w.pause = 0 // it may come at any moment
		w.lost(errMissing)
		return false
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		w.lost(fmt.Errorf("unable to create inotify: %w", err))
		return false
	}
	w.w, w.events, w.errs = watcher, watcher.Events, watcher.Errors
	if err := watcher.Add(w.path); err != nil {
		w.lost(fmt.Errorf("unable to create inotify for path %q: %w", w.path, err))
		return false
	}
	w.pause = 0
	return true
}

func (w *inotify) lost(err error) {
	w.log.Error(err, "Unable to read config path", "path", w.path)
	w.close()
	w.pause = min(max(2*w.pause, rewatchFirst), rewatchMost)
	w.retry.Reset(w.pause)
}

func (w *inotify) close() {
	if w.w != nil {
		_ = w.w.Close() // it only ends its own goroutine
	}
	w.w, w.events, w.errs = nil, nil, nil
	w.retry.Stop()
}

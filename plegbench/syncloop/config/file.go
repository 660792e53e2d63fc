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

// maxManifest bounds a manifest, in bytes (pkg/kubelet/config/common.go upstream).
const maxManifest = 10 << 20

// FileConfig is what the source of manifest files needs.
type FileConfig struct {
	Path     string // a folder, whose files are read without those in folders below, or a single file
	NodeName string
	Interval time.Duration // between readings of everything: fileCheckFrequency
	Log      logr.Logger
}

// File is the source of manifest files. A file that cannot be read as a pod counts as absent: at the next reading its
// pod is missing from the list, and is then stopped. The kubelet does the same. Files with ConfigMaps and Secrets are
// ignored.
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

var errMissing = errors.New("path does not exist, ignoring")

// Run reads the path at once, at each interval, and a changed file when inotify reports it, and sends all pods each
// time. It ends with ctx, whose error it returns. A watch that broke is made again with the next reading.
func (f *File) Run(ctx context.Context, send func([]*v1.Pod)) error {
	f.cfg.Log.V(1).Info("Watching path", "path", f.cfg.Path)
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("unable to create inotify: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	tick := time.NewTicker(f.cfg.Interval)
	defer tick.Stop()
	for {
		if err := watcher.Add(f.cfg.Path); err != nil && !errors.Is(err, fs.ErrNotExist) { // before the reading, to miss nothing in between
			f.cfg.Log.Error(err, "Unable to create inotify", "path", f.cfg.Path)
		}
		f.relist(send)
		for again := false; !again; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
				again = true
			case e := <-watcher.Events:
				if err := f.changed(e, send); err != nil {
					f.cfg.Log.Error(err, "Unable to process watch event")
				}
			case err := <-watcher.Errors:
				f.cfg.Log.Error(err, "Unable to read config path", "path", f.cfg.Path)
			}
		}
	}
}

func (f *File) relist(send func([]*v1.Pod)) {
	if err := f.list(); err != nil {
		f.cfg.Log.Error(err, "Unable to read config path", "path", f.cfg.Path)
		if !errors.Is(err, errMissing) {
			return // the pods of what cannot be read are unknown
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
	case !info.IsDir():
		p, err := f.read(f.cfg.Path)
		if err != nil {
			return err
		}
		clear(f.pods)
		f.pods[pod.Format(p)] = p
		return nil
	}
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
		p, err := f.read(path)
		switch {
		case err == nil:
			f.pods[pod.Format(p)] = p
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, errObject):
		default:
			f.cfg.Log.Error(err, "Could not process manifest file", "path", path)
		}
	}
	return nil
}

func (f *File) read(path string) (*v1.Pod, error) {
	f.cfg.Log.V(3).Info("Reading config file", "path", path)
	// Opening a pipe would wait for a writer.
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
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
	f.keys[path] = pod.Format(p)
	return p, nil
}

func readAtMost(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err == nil && len(data) > maxManifest {
		return nil, errors.New("longer than 10 MiB")
	}
	return data, err
}

// changed handles an event of inotify. A file that cannot be parsed leaves its pod as it is until the next reading of
// all.
func (f *File) changed(e fsnotify.Event, send func([]*v1.Pod)) error {
	switch {
	case strings.HasPrefix(filepath.Base(e.Name), "."):
		f.cfg.Log.V(4).Info("Ignored pod manifest, because it starts with dots", "eventName", e.Name)
	case e.Has(fsnotify.Create) || e.Has(fsnotify.Write) || e.Has(fsnotify.Chmod):
		p, err := f.read(e.Name)
		if errors.Is(err, errObject) {
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
		delete(f.pods, key)
		f.push(send)
	}
	return nil
}

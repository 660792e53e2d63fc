package gc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Bounds of what is read of a node. A kubelet runs some hundred pods and a handful of static ones.
const (
	maxPodDirs      = 100_000
	maxManifests    = 1_000
	maxManifestSize = 1 << 20 // bytes; more than the API server would take
)

// ReadPodDirs returns the names of the pod directories, which are the UIDs of the pods that the kubelet has not yet
// cleaned up: <kubeletRoot>/pods/*. root is the folder that stands for the node's "/". Reading a directory on a dead
// disk never ends, so it is given up with ctx and left behind.
func ReadPodDirs(ctx context.Context, root, kubeletRoot string) ([]string, error) {
	dir := filepath.Join(root, kubeletRoot, "pods")
	return abandonable(ctx, "reading "+dir, func() ([]string, error) { return names(dir, maxPodDirs) })
}

// names lists a directory, up to a number of entries beyond which the answer would not be complete.
func names(dir string, most int) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	out, err := f.Readdirnames(most + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err == nil && len(out) > most {
		err = fmt.Errorf("%s has more than %d entries", dir, most)
	}
	return out, errors.Join(err, f.Close())
}

// ReadManifests returns every name that the static pod manifests hold: those of the pods, of their containers and of
// more. Too many names only make more pods count as alive, so no manifest needs to be understood. dir is the kubelet's
// staticPodPath, a directory or one file. Like the kubelet it leaves out what begins with a dot.
func ReadManifests(ctx context.Context, root, dir string) ([]string, error) {
	path := filepath.Join(root, dir)
	return abandonable(ctx, "reading "+path, func() ([]string, error) { return readManifests(path) })
}

func readManifests(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return readManifest(path)
	}
	files, err := names(path, maxManifests)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range files {
		if strings.HasPrefix(name, ".") {
			continue
		}
		found, err := readManifest(filepath.Join(path, name))
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

func readManifest(path string) ([]string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // taken away meanwhile
		return nil, nil
	case err != nil:
		return nil, err
	case info.IsDir(): // the kubelet does not go down into it
		return nil, nil
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	case info.Size() > maxManifestSize:
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxManifestSize)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxManifestSize))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	found := manifestNames(text)
	if len(found) == 0 && strings.TrimSpace(string(text)) != "" {
		return nil, fmt.Errorf("%s: no name was found in it", path)
	}
	return found, nil
}

// manifestNames finds the values of all keys "name" in YAML or JSON:
//
//	metadata: {name: etcd}        "metadata": {"name": "etcd"}        - name: 'etcd'
func manifestNames(text []byte) []string {
	var out []string
	for _, m := range nameKey().FindAllSubmatch(text, -1) {
		out = append(out, strings.ToLower(string(m[1])))
	}
	return out
}

func nameKey() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(?:^|[^a-z0-9_-])name["']?\s*:\s*(?:[&!]\S+\s+)*["']?([a-z0-9][a-z0-9.-]*)`)
}

// abandonable runs look and returns with ctx at the latest; look is then left behind.
func abandonable[T any](ctx context.Context, what string, look func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		v, err := look()
		done <- answer{v, err}
	}()
	select {
	case a := <-done:
		if a.err != nil {
			return a.value, fmt.Errorf("%s: %w", what, a.err)
		}
		return a.value, nil
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("%s: no answer: %w", what, ctx.Err())
	}
}

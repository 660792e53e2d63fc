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

	"github.com/kdiag/kdiag/crictl/deadline"
)

// Limits of what is read of a node. A kubelet runs some hundred pods and a handful of static ones.
const (
	maxPodDirs      = 100_000
	maxManifests    = 1_000
	maxManifestSize = 1 << 20 // bytes; more than the API server would accept
)

// ReadPodDirs returns the names of the pod directories, <kubeletRoot>/pods/*, which are the UIDs of the pods that the
// kubelet has not yet cleaned up. root is the folder that stands for the node's "/". It returns with ctx at the latest,
// also when the disk does not answer.
func ReadPodDirs(ctx context.Context, root, kubeletRoot string) ([]string, error) {
	dir := filepath.Join(root, kubeletRoot, "pods")
	return read(ctx, dir, func() ([]string, error) { return names(dir, maxPodDirs) })
}

// ReadManifests returns every name in the static pod manifests: those of the pods, of their containers and of more. Too
// many names only make more pods count as alive, so no manifest needs to be understood. dir is the kubelet's
// staticPodPath, a directory or one file. Like the kubelet it skips files whose name begins with a dot. It returns with
// ctx at the latest.
func ReadManifests(ctx context.Context, root, dir string) ([]string, error) {
	path := filepath.Join(root, dir)
	return read(ctx, path, func() ([]string, error) { return readManifests(path) })
}

// read runs what may block on a dead disk, and names the path in its error.
func read(ctx context.Context, path string, f func() ([]string, error)) ([]string, error) {
	out, err := deadline.Run(ctx, func(context.Context) ([]string, error) { return f() })
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return out, nil
}

// names lists a directory. It fails when there are more than most entries: the answer would be incomplete.
func names(dir string, most int) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out, err := f.Readdirnames(most + 1)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case len(out) > most:
		return nil, fmt.Errorf("%s has more than %d entries", dir, most)
	}
	return out, nil
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
	case errors.Is(err, fs.ErrNotExist), err == nil && info.IsDir(): // removed meanwhile; the kubelet does not descend
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	case info.Size() > maxManifestSize:
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxManifestSize)
	}
	text, err := os.ReadFile(path)
	if err != nil {
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
	key := regexp.MustCompile(`(?i)(?:^|[^a-z0-9_-])name["']?\s*:\s*(?:[&!]\S+\s+)*["']?([a-z0-9][a-z0-9.-]*)`)
	var out []string
	for _, m := range key.FindAllSubmatch(text, -1) {
		out = append(out, strings.ToLower(string(m[1])))
	}
	return out
}

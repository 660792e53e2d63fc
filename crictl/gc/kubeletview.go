package gc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/kdiag/kdiag/crictl/deadline"
)

// ReadPodDirs returns the names of the pod directories, <kubeletRoot>/pods/*, which are the UIDs of the pods that the
// kubelet has not yet cleaned up. root is the folder that stands for the node's "/". It returns with ctx at the latest,
// also when the disk does not answer.
func ReadPodDirs(ctx context.Context, root, kubeletRoot string) ([]string, error) {
	return read(ctx, filepath.Join(root, kubeletRoot, "pods"), func(dir string) (uids []string, err error) {
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			uids = append(uids, e.Name())
		}
		return uids, err
	})
}

// ReadManifests returns every name in the static pod manifests: names of pods, of their containers and of more. Too
// many names only make more pods count as alive, so no manifest needs to be understood. dir is the kubelet's
// staticPodPath, a directory or one file. Like the kubelet it skips directories and files whose name begins with a dot.
// It returns with ctx at the latest.
func ReadManifests(ctx context.Context, root, dir string) ([]string, error) {
	return read(ctx, filepath.Join(root, dir), func(path string) (found []string, err error) {
		files := []string{path}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			entries, err := os.ReadDir(path)
			if err != nil {
				return nil, err
			}
			files = nil
			for _, e := range entries {
				if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
					files = append(files, filepath.Join(path, e.Name()))
				}
			}
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			names := manifestNames(text)
			if len(names) == 0 && strings.TrimSpace(string(text)) != "" {
				return nil, fmt.Errorf("%s: no name was found in it", file)
			}
			found = append(found, names...)
		}
		return found, nil
	})
}

// read reads from a disk that may not answer, and names the path in its error.
func read(ctx context.Context, path string, f func(path string) ([]string, error)) ([]string, error) {
	out, err := deadline.Run(ctx, "reading "+path, func(context.Context) ([]string, error) { return f(path) })
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return out, nil
}

// manifestNames finds the values of all keys "name" in YAML or JSON:
//
//	metadata: {name: etcd}        "metadata": {"name": "etcd"}        - name: 'etcd'
func manifestNames(text []byte) (names []string) {
	key := regexp.MustCompile(`(?i)(?:^|[^a-z0-9_-])name["']?\s*:\s*["']?([a-z0-9][a-z0-9.-]*)`)
	for _, m := range key.FindAllSubmatch(text, -1) {
		names = append(names, strings.ToLower(string(m[1])))
	}
	return names
}

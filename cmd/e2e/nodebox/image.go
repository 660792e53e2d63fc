//go:build e2e

package nodebox

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"testing"
)

// The images that every box has. CRI does not find a name without a registry host.
const (
	ImagePause   = "registry.k8s.io/pause:3.6" // what containerd 1.6 runs as sandbox
	ImageBusybox = "docker.io/local/busybox:1"
)

// applets are the names under which busybox is linked in the images. Its shell runs all others without a link.
var applets = []string{"cat", "echo", "false", "ls", "sh", "sleep", "true"}

// images are the names of the images and their configurations. The pause image's process has process id 1 in the
// sandbox and no signal handler, so only SIGKILL ends it; that is what containerd sends to a sandbox.
func images() map[string]any {
	path := []string{"PATH=/bin"}
	return map[string]any{
		ImagePause:   map[string][]string{"Env": path, "Entrypoint": {"/bin/busybox", "sleep", "2147483647"}},
		ImageBusybox: map[string][]string{"Env": path, "Cmd": {"/bin/sh"}},
	}
}

// Busybox returns a layer with busybox at /bin/busybox, links to it, and the folders of a system.
func Busybox(tb testing.TB) []byte {
	tb.Helper()
	binary, err := os.ReadFile(busybox)
	must(tb, err)
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	add(tb, w, tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, binary)
	for _, dir := range []string{"bin/", "dev/", "etc/", "proc/", "root/", "sys/", "tmp/"} {
		add(tb, w, tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}, nil)
	}
	for _, name := range applets {
		add(tb, w, tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox", Mode: 0o777}, nil)
	}
	must(tb, w.Close())
	return layer.Bytes()
}

func add(tb testing.TB, w *tar.Writer, h tar.Header, content []byte) {
	tb.Helper()
	h.Size = int64(len(content))
	must(tb, w.WriteHeader(&h))
	_, err := w.Write(content)
	must(tb, err)
}

// createImages writes the archive of all images to a file, in the format of docker save, over one layer that contains
// busybox: manifest.json, a configuration for each image, and layer.tar.
func createImages(tb testing.TB, name string) {
	tb.Helper()
	var all bytes.Buffer
	w, layer := tar.NewWriter(&all), Busybox(tb)
	file := func(name string, v any) {
		content, _ := json.Marshal(v) // of strings
		add(tb, w, tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, content)
	}
	add(tb, w, tar.Header{Typeflag: tar.TypeReg, Name: "layer.tar", Mode: 0o644}, layer)
	var manifests []map[string]any
	for i, name := range slices.Sorted(maps.Keys(images())) {
		config := fmt.Sprintf("config-%d.json", i)
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(layer))
		file(config, map[string]any{
			"architecture": runtime.GOARCH, "os": "linux", "config": images()[name],
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest}},
		})
		manifests = append(manifests, map[string]any{
			"Config": config, "RepoTags": []string{name}, "Layers": []string{"layer.tar"},
		})
	}
	file("manifest.json", manifests)
	must(tb, w.Close())
	must(tb, os.WriteFile(name, all.Bytes(), 0o644))
}

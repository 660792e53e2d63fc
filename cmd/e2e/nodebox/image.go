//go:build e2e

package nodebox

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
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

// createImages writes the archive of all images to a file, in the format of docker save, over one layer that contains
// busybox: manifest.json, a configuration for each image, and layer.tar.
func createImages(name string) error {
	binary, err := os.ReadFile(busybox)
	if err != nil {
		return fmt.Errorf("reading the program of the images: %w", err)
	}
	var layer, all bytes.Buffer
	l, a := tar.NewWriter(&layer), tar.NewWriter(&all)
	add := func(w *tar.Writer, h *tar.Header, content []byte) {
		h.Size = int64(len(content))
		err = errors.Join(err, w.WriteHeader(h))
		_, written := w.Write(content)
		err = errors.Join(err, written)
	}
	file := func(name string, v any) {
		content, _ := json.Marshal(v) // of strings
		add(a, &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, content)
	}
	add(l, &tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, binary)
	for _, dir := range []string{"bin/", "dev/", "etc/", "proc/", "root/", "sys/", "tmp/"} {
		add(l, &tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}, nil)
	}
	for _, name := range applets {
		add(l, &tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox", Mode: 0o777}, nil)
	}
	err = errors.Join(err, l.Close())
	add(a, &tar.Header{Typeflag: tar.TypeReg, Name: "layer.tar", Mode: 0o644}, layer.Bytes())
	var manifests []map[string]any
	for i, name := range slices.Sorted(maps.Keys(images())) {
		config := fmt.Sprintf("config-%d.json", i)
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(layer.Bytes()))
		file(config, map[string]any{
			"architecture": runtime.GOARCH, "os": "linux", "config": images()[name],
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest}},
		})
		manifests = append(manifests, map[string]any{
			"Config": config, "RepoTags": []string{name}, "Layers": []string{"layer.tar"},
		})
	}
	file("manifest.json", manifests)
	if err := errors.Join(err, a.Close()); err != nil {
		return fmt.Errorf("making the image archive: %w", err)
	}
	return os.WriteFile(name, all.Bytes(), 0o644)
}

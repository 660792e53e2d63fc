//go:build e2e

package nodebox

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// createImages writes the archive of all images to a file.
func createImages(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(writeImages(f, busybox), f.Close())
}

// writeImages writes an archive of all images, in the format of docker save, over one layer that contains the given
// program: manifest.json, a configuration for each image, and layer.tar.
func writeImages(w io.Writer, program string) error {
	binary, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("reading the program of the images: %w", err)
	}
	var layer bytes.Buffer
	l := archive{tar: tar.NewWriter(&layer)}
	l.add(&tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, binary)
	for _, dir := range []string{"bin/", "dev/", "etc/", "proc/", "root/", "sys/", "tmp/"} {
		l.add(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}, nil)
	}
	for _, name := range applets {
		l.add(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox", Mode: 0o777}, nil)
	}
	a := archive{tar: tar.NewWriter(w), err: errors.Join(l.err, l.tar.Close())}
	a.add(&tar.Header{Typeflag: tar.TypeReg, Name: "layer.tar", Mode: 0o644}, layer.Bytes())
	var manifests []map[string]any
	for i, name := range slices.Sorted(maps.Keys(images())) {
		config := fmt.Sprintf("config-%d.json", i)
		a.json(config, map[string]any{
			"architecture": runtime.GOARCH,
			"os":           "linux",
			"config":       images()[name],
			"rootfs": map[string]any{
				"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer.Bytes()))},
			},
		})
		manifests = append(manifests, map[string]any{
			"Config": config, "RepoTags": []string{name}, "Layers": []string{"layer.tar"},
		})
	}
	a.json("manifest.json", manifests)
	if err := errors.Join(a.err, a.tar.Close()); err != nil {
		return fmt.Errorf("writing the image archive: %w", err)
	}
	return nil
}

// An archive writes a tar file and keeps its first error.
type archive struct {
	tar *tar.Writer
	err error
}

func (a *archive) add(h *tar.Header, content []byte) {
	h.Size = int64(len(content))
	if a.err == nil {
		a.err = a.tar.WriteHeader(h)
	}
	if a.err == nil {
		_, a.err = a.tar.Write(content)
	}
}

func (a *archive) json(name string, v any) {
	content, err := json.Marshal(v)
	a.err = errors.Join(a.err, err)
	a.add(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, content)
}

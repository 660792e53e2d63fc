package nodebox

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// The images that every box has. CRI does not find a name without a registry host.
const (
	ImagePause   = "registry.k8s.io/pause:3.6" // what containerd 1.6 runs as sandbox
	ImageBusybox = "docker.io/local/busybox:1"
)

// applets are the names under which busybox is linked in the images. Its shell runs all others without a link.
var applets = []string{"cat", "echo", "false", "ls", "sh", "sleep", "true"}

// unfitBusybox returns why a program cannot be the only file of an image; empty when it can.
func unfitBusybox(path string) string {
	f, err := elf.Open(path)
	if err != nil {
		return "busybox-static (" + err.Error() + ")"
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "busybox-static (" + path + " needs a dynamic loader)"
		}
	}
	return ""
}

// An image is the part of an OCI image configuration that differs between ours.
type image struct {
	name       string
	entrypoint []string
	cmd        []string
}

// images are what is loaded into a new runtime. The pause image's process has process id 1 in the sandbox and no
// signal handler, so only SIGKILL ends it; that is what containerd sends to a sandbox.
var images = []image{
	{name: ImagePause, entrypoint: []string{"/bin/busybox", "sleep", "2147483647"}},
	{name: ImageBusybox, cmd: []string{"/bin/sh"}},
}

// descriptor is an OCI content descriptor.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// writeImages writes one OCI image archive with all images over one layer that contains the given program: a tar file
// with oci-layout, index.json, and each blob at blobs/sha256/<digest>. The same program gives the same bytes.
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
	a := archive{tar: tar.NewWriter(w), err: l.close()}
	layerBlob := a.blob("application/vnd.oci.image.layer.v1.tar", layer.Bytes()) // uncompressed: its digest is its diff id
	var manifests []descriptor
	for _, img := range images {
		manifests = append(manifests, a.image(img, layerBlob))
	}
	a.file("index.json", a.encode(map[string]any{"schemaVersion": 2, "manifests": manifests}))
	a.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	if err := a.close(); err != nil {
		return fmt.Errorf("writing the image archive: %w", err)
	}
	return nil
}

// An archive writes a tar file. It keeps its first error for close.
type archive struct {
	tar *tar.Writer
	err error
}

// image adds the configuration and the manifest of one image, and returns its entry of the index.
func (a *archive) image(img image, layer descriptor) descriptor {
	config := a.blob("application/vnd.oci.image.config.v1+json", a.encode(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"created":      "1970-01-01T00:00:00Z",
		"config":       map[string]any{"Env": []string{"PATH=/bin"}, "Entrypoint": img.entrypoint, "Cmd": img.cmd},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{layer.Digest}},
	}))
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	manifest := a.blob(manifestType, a.encode(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []descriptor{layer},
	}))
	_, tag, _ := strings.Cut(img.name, ":")
	manifest.Annotations = map[string]string{
		"io.containerd.image.name":          img.name,
		"org.opencontainers.image.ref.name": tag,
	}
	return manifest
}

func (a *archive) blob(mediaType string, content []byte) descriptor {
	digest := fmt.Sprintf("%x", sha256.Sum256(content))
	a.file("blobs/sha256/"+digest, content)
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(content)}
}

func (a *archive) file(name string, content []byte) {
	a.add(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, content)
}

func (a *archive) add(h *tar.Header, content []byte) {
	h.Size = int64(len(content))
	if a.err == nil {
		a.err = a.tar.WriteHeader(h)
	}
	if a.err == nil && len(content) > 0 {
		_, a.err = a.tar.Write(content)
	}
}

func (a *archive) encode(v any) []byte {
	b, err := json.Marshal(v)
	a.err = errors.Join(a.err, err)
	return b
}

func (a *archive) close() error {
	if a.err != nil {
		return a.err
	}
	return a.tar.Close()
}

package host

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// taskDir is where containerd keeps one bundle per running task, by namespace and id, below its state directory.
const taskDir = "io.containerd.runtime.v2.task"

// maxSpec bounds the size of an OCI specification, in bytes. Usual ones are 10 to 40 KB.
const maxSpec = 4 << 20

// A spec is the part of an OCI specification that is looked at. It also holds the container's environment, which is
// skipped.
type spec struct {
	Annotations map[string]string `json:"annotations"`
}

// readBundles reads directories that hold a bundle, or its userdata as CRI-O keeps it, per id.
func (k *objects) readBundles(ctx context.Context, dirs []string) {
	for _, dir := range dirs {
		for _, id := range names(dir) {
			if ctx.Err() != nil {
				return
			}
			if !plausibleID(id) {
				continue
			}
			for _, file := range []string{"config.json", "userdata/config.json"} {
				if b, err := readLimited(filepath.Join(dir, id, file), maxSpec); err == nil {
					k.add(parseBundle(id, b))
					break
				}
			}
		}
	}
}

// parseBundle takes the names from the annotations that containerd's CRI plugin and CRI-O write into a specification.
// One of neither is not of Kubernetes: the result's ID is empty.
func parseBundle(id string, config []byte) Object {
	var s spec
	if err := json.Unmarshal(config, &s); err != nil {
		return Object{}
	}
	first := func(keys ...string) string {
		for _, key := range keys {
			if v := s.Annotations[key]; v != "" {
				return v
			}
		}
		return ""
	}
	o := Object{
		ID:        id,
		Namespace: first("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace", "io.kubernetes.cri-o.Namespace"),
		Pod:       first("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name", "io.kubernetes.cri-o.KubeName"),
		PodUID:    first("io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid"),
	}
	switch first("io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType") {
	case "sandbox":
		o.Kind = KindPodSandbox
	case "container":
		o.Kind = KindContainer
		o.Name = first("io.kubernetes.cri.container-name", "io.kubernetes.container.name")
	default:
		return Object{}
	}
	return o
}

// shimTarget describes what a shim's arguments say that it serves. CRI-O's conmon serves one container, which can be a
// sandbox's, and gets a name made by the kubelet's old rule: k8s_<container>_<pod>_<namespace>_<uid>_<attempt>, where
// the container of a sandbox is POD.
func shimTarget(p Process, argv []string) Object {
	if !strings.HasPrefix(p.Name, "conmon") {
		return Object{Kind: KindPodSandbox, ID: p.ObjectID}
	}
	name, _ := flagValue(argv, "n")
	long, _ := flagValue(argv, "name")
	parts := strings.Split(cmp.Or(name, long), "_")
	if len(parts) != 6 || parts[0] != "k8s" {
		return Object{} // conmon also serves podman
	}
	o := Object{Kind: KindContainer, ID: p.ObjectID, Name: parts[1], Pod: parts[2], Namespace: parts[3], PodUID: parts[4]}
	if o.Name == "POD" {
		o.Kind, o.Name = KindPodSandbox, ""
	}
	return o
}

// names lists a directory, in the directory's own order. A directory that is not there has none.
func names(dir string) []string {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	list, _ := d.Readdirnames(maxEntries)
	return list
}

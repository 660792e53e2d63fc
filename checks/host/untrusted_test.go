package host

import (
	"os"
	"testing"
)

// TestReadUntrusted reads a file, and nothing that a link, a pipe, a folder or a device stands in the place of.
func TestReadUntrusted(t *testing.T) {
	n := newNode(t)
	n.write("run/bundle/config.json", "{}", "etc/shadow", "secret")
	n.link("run/linked/config.json", "/etc/shadow")
	n.link("run/folder", "bundle")
	n.link("run/up", "../../../../../..")
	n.fifo("run/pipe/config.json")
	must(t, os.MkdirAll(n.path("run/dir/config.json"), 0o755))
	for _, tt := range []struct {
		path, want string
		fails      bool
	}{
		{"/run/bundle/config.json", "{}", false},
		{"/run/../run/bundle/./config.json", "{}", false},
		{"/../../run/bundle/config.json", "{}", false},
		{"/run/linked/config.json", "", true},
		{"/run/folder/config.json", "", true},
		{"/run/up/etc/shadow", "", true},
		{"/run/pipe/config.json", "", true},
		{"/run/dir/config.json", "", true},
		{"/run/none/config.json", "", true},
		{"/", "", true},
	} {
		got, err := readUntrusted(n.root, tt.path, 100)
		if got != tt.want || (err != nil) != tt.fails {
			t.Errorf("%s: %q, %v; want %q, an error: %t", tt.path, got, err, tt.want, tt.fails)
		}
	}
	if got, err := readUntrusted("/", "/dev/zero", 100); err == nil {
		t.Errorf("/dev/zero: %d bytes", len(got))
	}
}

// TestPodCallsItselfRunc has a process in a pod take the name of the runtime's tool, and name a bundle that is a pipe,
// and one on the host. Neither is read.
func TestPodCallsItselfRunc(t *testing.T) {
	n := newNode(t)
	n.link(proc(1, "ns/mnt"), "mnt:[1]")
	n.process(50, 1, "runc", 'S', "runc create --bundle /run/pod/"+idA+" "+idA)
	n.process(51, 1, "runc", 'S', "runc create --bundle /run/real/"+idB+" "+idB)
	n.process(52, 1, "runc", 'S', "runc create --bundle /run/real/"+idB+" "+idB)
	n.link(proc(50, "ns/mnt"), "mnt:[1]")
	n.link(proc(51, "ns/mnt"), "mnt:[1]")
	n.link(proc(52, "ns/mnt"), "mnt:[2]")
	n.fifo("run/pod/" + idA + "/config.json")
	n.write("run/real/"+idB+"/config.json", `{"annotations": {"io.kubernetes.cri.container-type": "sandbox",
		"io.kubernetes.cri.sandbox-name": "web-1", "io.kubernetes.cri.sandbox-namespace": "shop"}}`)
	serves := map[int]string{}
	for _, p := range n.people().Processes() {
		serves[p.PID] = p.Serves.Pod
	}
	equal(t, "pods", map[int]string{50: "", 51: "web-1", 52: ""}, serves)
}

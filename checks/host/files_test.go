package host

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadFiles(t *testing.T) {
	n := newNode(t)
	n.write("proc/sys/fs/file-nr", "2476\t0\t9223372036854775807\n")
	n.process(20, 1, "containerd", 'S', "containerd")
	n.write("proc/20/limits", string(fixture(t, "limits")))
	for fd := range 3 {
		n.link(fmt.Sprintf("proc/20/fd/%d", fd), "/dev/null")
	}
	n.process(30, 1, "kubelet", 'S', "kubelet") // gone before its limits were read
	n.process(31, 1, "kubelet", 'S', "kubelet")
	n.write("proc/31/limits", "\x1b[31m")
	n.process(40, 1, "nginx", 'S', "nginx") // not ours
	got, err := ReadFiles(t.Context(), n.root, n.people())
	if err == nil || err.Error() != "counting the open files of kubelet: no limit of open files" {
		t.Errorf("error %v, want one for the kubelet whose limits are none", err)
	}
	want := Files{
		System:    Usage{2476, 0},
		Processes: []ProcessFiles{{PID: 20, Name: "containerd", Role: RoleRuntime, Usage: Usage{3, 20000}, Hard: 20000}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ReadFiles (-want +got):\n%s", diff)
	}
	if _, err := ReadFiles(t.Context(), t.TempDir(), Population{}); err == nil {
		t.Error("ReadFiles of nothing: no error")
	}
}

func FuzzParseFileLimits(f *testing.F) {
	f.Add(fixture(f, "limits"))
	f.Add([]byte("Max open files unlimited 5 files\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if soft, hard, err := parseFileLimits(b); err != nil && (soft != 0 || hard != 0) {
			t.Errorf("parseFileLimits(%q) = %d, %d, %v", b, soft, hard, err)
		}
	})
}

func FuzzParseFileNr(f *testing.F) {
	f.Add([]byte("2476\t0\t9223372036854775807\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if u, err := parseFileNr(b); err != nil && u != (Usage{}) {
			t.Errorf("parseFileNr(%q) = %+v, %v", b, u, err)
		}
	})
}

func TestReadConntrack(t *testing.T) {
	n := newNode(t)
	if got, err := ReadConntrack(n.root); err != nil || got != (Conntrack{}) {
		t.Errorf("without the module: %+v, %v", got, err)
	}
	n.write("proc/sys/net/netfilter/nf_conntrack_count", "261000\n")
	if got, err := ReadConntrack(n.root); err == nil {
		t.Errorf("without the limit: %+v, no error", got)
	}
	n.write("proc/sys/net/netfilter/nf_conntrack_max", "262144\n")
	if got, err := ReadConntrack(n.root); err != nil || got.Usage != (Usage{261000, 262144}) {
		t.Errorf("ReadConntrack = %+v, %v", got, err)
	}
	n.write("proc/sys/net/netfilter/nf_conntrack_count", "many\n")
	if got, err := ReadConntrack(n.root); err == nil {
		t.Errorf("of nonsense: %+v, no error", got)
	}
}

package host

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestChildTask(t *testing.T) {
	argv := []string{"/proc/self/exe", ChildArgument, verbMount, "/", "/a", "/b"}
	for _, tt := range []struct {
		comm       string
		argv       []string
		verb, path string
	}{
		{"kdiag-probe:0", argv, verbMount, "/a"},
		{"kdiag-probe:1", argv, verbMount, "/b"},
		{"kdiag-probe:2", argv, "", ""},
		{"kdiag-probe:-1", argv, "", ""},
		{"kdiag-probe:x", argv, "", ""},
		{"kdiag", argv, "", ""},
		{"kdiag-probe:0", argv[:4], "", ""},
		{"kdiag-probe:0", []string{"cat", "-", verbMount, "/", "/a"}, "", ""},
		{"kdiag-probe:0", nil, "", ""},
	} {
		index, named := childIndex(tt.comm)
		verb, file, ok := childTask(tt.argv, index)
		if !named || !ok {
			verb, file = "", ""
		}
		if verb != tt.verb || file != tt.path {
			t.Errorf("%s of %q does %q to %q, want %q to %q", tt.comm, tt.argv, verb, file, tt.verb, tt.path)
		}
	}
	if name := childName(maxProbed - 1); len(name) > commLen {
		t.Errorf("the kernel cuts the name %s", name)
	}
}

// TestStuckChildren has a child that is stuck, with its first thread dead, one that merely works, and a process of another
// namespace with the name of a child.
func TestStuckChildren(t *testing.T) {
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	args := strings.Join([]string{"kdiag", ChildArgument, verbSpace, "/", "/a", "/b"}, "\x00") + "\x00"
	for pid, state := range map[int]byte{40: 'D', 50: 'S', 60: 'D'} {
		name := strconv.Itoa(pid)
		n.process(pid, 1, childName(1), 'Z', "")
		n.write("proc/"+name+"/task/"+name+"/cmdline", "")
		n.write("proc/"+name+"/task/99/stat", statLine(99, "kdiag", state, 1, 5))
		n.write("proc/"+name+"/task/99/cmdline", args)
		if pid != 60 {
			n.link("proc/"+name+"/ns/pid", own)
		}
	}
	got := n.people().stuckChildren()
	if len(got) != 1 || got[0].waiting < time.Hour { // the fixture's boot was long ago
		t.Fatalf("found %+v, want one", got)
	}
	got[0].waiting = 0
	if diff := cmp.Diff([]earlier{{pid: 40, verb: verbSpace, path: "/b"}}, got, cmp.AllowUnexported(earlier{})); diff != "" {
		t.Error(diff)
	}
}

// TestServe speaks as the child does to its parent.
func TestServe(t *testing.T) {
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile("/proc/self/comm", comm, 0)
	dir := t.TempDir()
	var out strings.Builder
	if code := Serve([]string{verbSpace, dir, "/", "/none"}, &out); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	var got []reply
	for dec := json.NewDecoder(strings.NewReader(out.String())); dec.More(); {
		var r reply
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		got = append(got, r)
	}
	if len(got) != 4 || !got[0].Begun || got[1].Err != "" || got[1].Size == 0 ||
		!got[2].Begun || got[3].Err != "no such file or directory" {
		t.Errorf("said %+v", got)
	}
	for _, bad := range [][]string{nil, {verbSpace}, {"rm", "/", "/"}} {
		if code := Serve(bad, &out); code == 0 {
			t.Errorf("Serve(%q) is well", bad)
		}
	}
}

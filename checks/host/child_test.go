package host

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

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

// TestStuckIn has a child whose first thread is dead, and one that merely works.
func TestStuckIn(t *testing.T) {
	n := newNode(t)
	n.write("proc/uptime", "100.50 7.00\n")
	args := strings.Join([]string{"kdiag", ChildArgument, verbSpace, "/", "/a", "/b"}, "\x00") + "\x00"
	for pid, state := range map[int]byte{40: 'D', 50: 'S'} {
		name := strconv.Itoa(pid)
		n.process(pid, 1, childName(1), 'Z', "")
		n.write("proc/"+name+"/task/"+name+"/cmdline", "")
		n.write("proc/"+name+"/task/99/stat", statLine(99, "kdiag", state, 1, 5))
		n.write("proc/"+name+"/task/99/cmdline", args)
	}
	got, ok := stuckIn(filepath.Join(n.root, "proc/40"), 1)
	if diff := cmp.Diff(earlier{verb: verbSpace, path: "/b"}, got, cmp.AllowUnexported(earlier{})); diff != "" || !ok {
		t.Error(diff, ok)
	}
	if got, ok := stuckIn(filepath.Join(n.root, "proc/50"), 1); ok {
		t.Errorf("one that works is stuck: %+v", got)
	}
	if got := age(filepath.Join(n.root, "proc"), filepath.Join(n.root, "proc/40")).Seconds(); got != 60.5 {
		t.Errorf("its age is %v s, want 60.5", got)
	}
}

// TestChildSearchesOnce wants looks that share a child to find what earlier runs left, and to go through the processes once for it.
func TestChildSearchesOnce(t *testing.T) {
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.write("proc/uptime", "100.50 7.00\n")
	stuck := func(pid int) {
		dir := fmt.Sprintf("proc/%d/", pid)
		n.process(pid, 1, childName(0), 'D', "")
		n.write(dir+"comm", childName(0)+"\n")
		n.write(dir+fmt.Sprintf("task/%d/cmdline", pid), strings.Join([]string{"kdiag", ChildArgument, verbSpace, "/", "/a"}, "\x00")+"\x00")
		n.link(dir+"ns/pid", own)
	}
	found := func(c Child) (pids []int) {
		for _, e := range c.earlier(t.Context(), n.root) {
			pids = append(pids, e.pid)
		}
		slices.Sort(pids)
		return pids
	}
	stuck(40)
	c := NewChild("kdiag")
	if diff := cmp.Diff([]int{40}, found(c)); diff != "" {
		t.Error(diff)
	}
	stuck(50)
	if diff := cmp.Diff([]int{40}, found(c)); diff != "" {
		t.Errorf("searched again: %s", diff)
	}
	if diff := cmp.Diff([]int{40, 50}, found(NewChild("kdiag"))); diff != "" {
		t.Error(diff)
	}
}

func TestVerify(t *testing.T) {
	here := reply{Device: "0:7", Size: 1}
	for _, tt := range []struct {
		name   string
		got    outcome
		device string
		want   reply
	}{
		{"the mount", outcome{asked: true, reply: here}, "0:7", here},
		{"what it lies over", outcome{asked: true, reply: here}, "0:8", reply{Err: unseen}},
		{"no folder", outcome{asked: true, reply: reply{Err: "no such file or directory"}}, "0:8", reply{Err: unseen}},
		{"no number by the table", outcome{asked: true, reply: here}, "", here},
		{"no number by the kernel", outcome{asked: true, reply: reply{Size: 1}}, "0:8", reply{Size: 1}},
		{"hung", outcome{asked: true, hung: true}, "0:8", reply{}},
		{"not asked", outcome{}, "0:8", reply{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.got.verify(spot{device: tt.device})
			if diff := cmp.Diff(tt.want, tt.got.reply); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFitting(t *testing.T) {
	paths := []string{strings.Repeat("a", maxChildArgs), "b", "c", strings.Repeat("d", maxChildArgs-4)}
	var got [][]int
	for batch, rest := fitting(paths, []int{0, 1, 2, 3}); len(batch) > 0; batch, rest = fitting(paths, rest) {
		got = append(got, batch)
	}
	if diff := cmp.Diff([][]int{{0}, {1, 2}, {3}}, got); diff != "" {
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
	if len(got) != 4 || !got[0].Begun || got[1].Err != "" || got[1].Size == 0 || got[1].Took <= 0 ||
		!got[2].Begun || got[2].Index != 1 || got[3].Err != "no such file or directory" {
		t.Errorf("said %+v", got)
	}
	for _, bad := range [][]string{nil, {verbSpace}, {"rm", "/", "/"}} {
		if code := Serve(bad, &out); code == 0 {
			t.Errorf("Serve(%q) is well", bad)
		}
	}
}

func TestBytesOf(t *testing.T) {
	if got := bytesOf(3, 4096); got != 12288 {
		t.Error(got)
	}
	if got := bytesOf(1<<63, 4); got != 1<<64-1 {
		t.Error(got)
	}
}

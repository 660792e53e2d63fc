package host

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func TestServe(t *testing.T) {
	comm, err := os.ReadFile("/proc/self/comm")
	must(t, err)
	defer os.WriteFile("/proc/self/comm", comm, 0)
	var out strings.Builder
	dir := t.TempDir()
	must(t, os.Symlink("/", dir+"/link"))
	inner := fmt.Sprintf("/proc/%d/root%s", os.Getpid(), dir)
	if code := Serve([]string{verbMount, "/", dir, dir + "/none", inner, inner + "/link"}, &out); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	var got []reply
	for dec := json.NewDecoder(strings.NewReader(out.String())); dec.More(); {
		var r reply
		must(t, dec.Decode(&r))
		got = append(got, r)
	}
	if len(got) != 5 || got[1].Err != "" || got[1].Size == 0 || got[2].Err != "no such file or directory" ||
		got[3].Err != "" || got[4].Err != "too many levels of symbolic links" {
		t.Errorf("wrote %+v", got)
	}
	for _, bad := range [][]string{nil, {verbSpace}, {"rm", "/", "/"}} {
		if code := Serve(bad, &out); code == 0 {
			t.Errorf("Serve(%q) succeeds", bad)
		}
	}
}

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestChild has a child look at a folder, at one that is absent and, for the time of its writes, at a file.
func TestChild(t *testing.T) {
	n := newNode(t)
	n.write("data/file", "", "proc/1/mountinfo",
		"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:9 / /gone rw - nfs4 filer:/x rw\n")
	folders := []Folder{{Path: "/data"}, {Path: "/gone"}}
	spaces, err := ReadSpaces(limited(t), n.root, n.processes(), folders, testChild(t))
	must(t, err)
	if len(spaces) != 2 || spaces[0].Size < spaces[0].Free || spaces[0].Size == 0 {
		t.Fatalf("ReadSpaces = %+v", spaces)
	}
	spaces[0].Size, spaces[0].Free, spaces[0].Inodes, spaces[0].InodesFree = 0, 0, 0, 0
	equal(t, "spaces", []Space{
		{Folders: folders[:1], Mount: "/", Type: "ext4", Source: "/dev/sda1"},
		{Folders: folders[1:], Mount: "/gone", Type: "nfs4", Source: "filer:/x", Err: "no such file or directory"},
	}, spaces)
	table, err := ProbeMounts(limited(t), n.root, n.processes(), "/var/lib/kubelet", testChild(t))
	must(t, err)
	equal(t, "mounts", []Mount{
		{Point: "/gone", Type: "nfs4", Source: "filer:/x", Network: true, Asked: true, Err: "no such file or directory"},
	}, table.Probed)
	for folder, want := range map[string]string{
		"/data": "", "/data/file": "not a directory", "/none": "there is no such folder",
	} {
		w, err := TimeWrites(limited(t), n.root, n.processes(), Folder{Path: folder}, testChild(t))
		if err != nil || w.Err != want || w.Hung || (len(w.Times) > 0) != (want == "") {
			t.Errorf("TimeWrites(%s) = %+v, %v; want %q", folder, w, err, want)
		}
	}
	equal(t, "left behind", []string{"file"}, names(n.root+"/data"))
	_, err = ReadSpaces(limited(t), n.root, n.processes(), folders, Child{})
	failed(t, "ReadSpaces without a child", err, "no program")
	_, err = TimeWrites(limited(t), n.root, n.processes(), folders[0], Child{})
	failed(t, "TimeWrites without a child", err, "no program")
}

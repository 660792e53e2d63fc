package host

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFolders has a containerd whose database is open at another place than the usual one.
func TestFolders(t *testing.T) {
	n := newNode(t)
	n.process(50, 1, "containerd", 'S', "/usr/bin/containerd")
	n.write("var/lib/containerd/x", "")
	n.write("run/containerd/x", "")
	rest := []Folder{
		{Path: "/run/containerd", Role: FolderState},
		{Path: "/var/lib/kubelet", Role: FolderKubelet},
		{Path: "/var/log/pods", Role: FolderLogs},
		{Path: "/var/log", Role: FolderLogs},
		{Path: "/", Role: FolderRoot},
	}
	usual := append([]Folder{{Path: "/var/lib/containerd", Role: FolderRuntime}}, rest...)
	if diff := cmp.Diff(usual, Folders(n.root, n.people(), "", "")); diff != "" {
		t.Errorf("the usual ones (-want +got):\n%s", diff)
	}
	// Below the root of the fixture, the database has the name that the process has for it.
	database := t.TempDir() + boltFile
	n.link("proc/50/fd/7", database)
	outside := &node{t, "/"}
	outside.write(database, "")
	if diff := cmp.Diff(usual, Folders(n.root, n.people(), "", "")); diff != "" {
		t.Errorf("of a daemon that sees other files (-want +got):\n%s", diff)
	}
	n.link(database, database)
	found := append([]Folder{{Path: database[:len(database)-len(boltFile)], Role: FolderRuntime, PID: 50}}, rest...)
	if diff := cmp.Diff(found, Folders(n.root, n.people(), "", "")); diff != "" {
		t.Errorf("where the database is (-want +got):\n%s", diff)
	}
}

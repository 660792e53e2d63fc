package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/internal/testkit"
)

// TestReadFiles counts open files of daemons, and inotify instances of users.
func TestReadFiles(t *testing.T) {
	n := newNode(t)
	n.process(20, 1, "containerd", 'S', "containerd")
	for fd := range 3 {
		n.Link(procFile(20, fmt.Sprint("fd/", fd)), "/dev/null")
	}
	n.process(31, 1, "kubelet", 'S', "kubelet")
	n.process(40, 1, "nginx", 'S', "nginx") // not ours
	n.Write("proc/sys/fs/file-nr", "2476\t0\t9223372036854775807\n", "proc/20/limits", fixture(t, "limits"),
		"proc/31/limits", "\x1b[31m")
	got, err := ReadFiles(t.Context(), n.Root, n.processes())
	failed(t, "ReadFiles", err, "counting the open files of kubelet: no limit of open files")
	for pid := 50; pid <= 51; pid++ {
		n.process(pid, 1, "tail", 'S', "tail")
		n.Write(procFile(pid, "status"), "Uid:\t0\t1000\t0\t0\n")
		for fd := range pid - 48 {
			n.Link(procFile(pid, fmt.Sprint("fd/", fd)), "anon_inode:inotify")
			n.Write(procFile(pid, fmt.Sprint("fdinfo/", fd)), fixture(t, "fdinfo-inotify"))
		}
	}
	n.Write("proc/sys/fs/inotify/max_user_instances", "128\n", "proc/sys/fs/inotify/max_user_watches", "1048576\n")
	inotify, errInotify := ReadInotify(t.Context(), n.Root, n.processes())
	must(t, errInotify)
	equal(t, "ReadInotify", Inotify{MaxInstances: 128, MaxWatches: 1048576, Users: []InotifyUser{{
		UID: 1000, Instances: 5, Watches: 10,
		Top: []InotifyProcess{{PID: 51, Name: "tail", Instances: 3}, {PID: 50, Name: "tail", Instances: 2}},
	}}}, inotify)
	_, _, tooMany := countInotify(n.Root+"/proc/20", 3)
	failed(t, "of more descriptors than are read", tooMany, "too many descriptors")
	equal(t, "ReadFiles", Files{System: Usage{2476, 0}, Processes: []ProcessFiles{
		{PID: 20, Name: "containerd", Role: RoleRuntime, Usage: Usage{3, 20000}, Hard: 20000},
	}}, got)
}

// TestReadNumbers reads files of the kernel.
func TestReadNumbers(t *testing.T) {
	const some = "some avg10=0.22 avg60=0.17 avg300=1.11 total=58761459\n"
	n := newNode(t)
	without, err := ReadConntrack(n.Root) // the module is not loaded
	failed(t, "ReadConntrack", err, "")
	equal(t, "without the module", Conntrack{}, without)
	n.Write("proc/sys/net/netfilter/nf_conntrack_count", "261000\n", "proc/sys/net/netfilter/nf_conntrack_max", "262144\n",
		"proc/meminfo", "MemTotal:       49368168 kB\nMemAvailable:   2048 kB\nHugePages_Total:       0\n"+
			"SUnreclaim:     8 kB\nShmem:          7 kB\nShmemHugePages: 6 kB\n",
		"proc/pressure/io", some+"full avg10=0.00 avg60=0.13 avg300=0.96 total=57261459\n", "proc/pressure/memory", some)
	conntrack, err := ReadConntrack(n.Root)
	failed(t, "ReadConntrack", err, "")
	equal(t, "ReadConntrack", Conntrack{Usage{261000, 262144}}, conntrack)
	memory, err := ReadMemory(n.Root)
	failed(t, "ReadMemory", err, "")
	equal(t, "ReadMemory", Memory{49368168 << 10, 2 << 20, 8 << 10, 7 << 10}, memory)
	pressure, err := ReadPressure(n.Root)
	failed(t, "ReadPressure", err, "")
	ofSome := Averages{0.22, 0.17, 1.11}
	equal(t, "ReadPressure", Pressure{
		IO: &Stall{ofSome, Averages{0, 0.13, 0.96}}, Memory: &Stall{Some: ofSome},
	}, pressure)
}

// TestFolders has a containerd whose database is open at another place than the usual one.
func TestFolders(t *testing.T) {
	n := newNode(t)
	n.process(50, 1, "containerd", 'S', "/usr/bin/containerd")
	n.Write("var/lib/containerd/x", "", "run/containerd/x", "")
	rest := []Folder{
		{Path: "/run/containerd", Role: FolderState},
		{Path: "/var/lib/kubelet", Role: FolderKubelet},
		{Path: "/var/log/pods", Role: FolderLogs},
		{Path: "/var/log", Role: FolderLogs},
		{Path: "/", Role: FolderRoot},
	}
	usual := append([]Folder{{Path: "/var/lib/containerd", Role: FolderRuntime}}, rest...)
	equal(t, "the usual ones", usual, Folders(n.Root, n.processes(), "", ""))
	// Below the root of the fixture, the database has the name that the process has for it.
	dir := t.TempDir()
	n.Link("proc/50/fd/7", dir+boltFile)
	(testkit.Tree{TB: t, Root: "/"}).Write(dir+boltFile, "")
	equal(t, "of a daemon that sees other files", usual, Folders(n.Root, n.processes(), "", ""))
	n.Link(dir+boltFile, dir+boltFile)
	found := append([]Folder{{Path: dir, Role: FolderRuntime, PID: 50}}, rest...)
	equal(t, "where the database is", found, Folders(n.Root, n.processes(), "", ""))
	// A shim works below the folder of what runs.
	state := t.TempDir()
	bundle := state + "/" + taskDir + "/k8s.io/" + idA
	n.process(60, 1, "containerd-shim", 'S', "containerd-shim-runc-v2 -id "+idA)
	n.Link("proc/60/cwd", bundle)
	(testkit.Tree{TB: t, Root: "/"}).Write(bundle+"/config.json", "")
	n.Link(bundle, bundle)
	found[1].Path = state
	equal(t, "where the shims are", found, Folders(n.Root, n.processes(), "", "/var/log/pods"))
	// CRI-O keeps no file open. A folder of that name may hold anything else.
	n.process(50, 1, "crio", 'S', "/usr/bin/crio")
	n.Write("proc/50/mountinfo", "47 1 0:252 / /data rw - tmpfs tmpfs rw\n"+
		"48 47 0:252 /containers/overlay /data/containers/overlay rw - tmpfs tmpfs rw\n"+
		"49 48 0:255 / /data/containers/overlay/0a/merged rw - overlay overlay rw\n"+
		"50 1 8:1 / /srv/overlay rw - ext4 /dev/sda1 rw\n")
	must(t, os.Remove(n.Path("proc/50/fd/7")))
	found[0].Path = "/data/containers"
	equal(t, "where CRI-O's storage is mounted", found, Folders(n.Root, n.processes(), "", "/var/log/pods"))
}

func TestObjects(t *testing.T) {
	n := newNode(t)
	id := func(digit string) string { return strings.Repeat(digit, 64) }
	bundles := "run/containerd/io.containerd.runtime.v2.task/"
	of := `"io.kubernetes.cri.sandbox-name":"web-1","io.kubernetes.cri.sandbox-namespace":"shop",` +
		`"io.kubernetes.cri.sandbox-uid":"uid-1"}}`
	n.Write(
		bundles+"k8s.io/"+id("a")+"/config.json", `{"annotations":{"io.kubernetes.cri.container-type":"sandbox",`+of,
		bundles+"k8s.io/"+id("1")+"/config.json", `{"process":{"env":["SECRET=x"]},"annotations":{`+
			`"io.kubernetes.cri.container-type":"container","io.kubernetes.cri.container-name":"app",`+of,
		bundles+"k8s.io/"+id("4")+"/config.json", `{"annotations":`,
		bundles+"k8s.io/bad name/config.json", `{"annotations":{"io.kubernetes.cri.container-type":"sandbox"}}`,
		crioBundles+"/"+id("8")+"/userdata/config.json", `{"annotations":{"io.kubernetes.cri-o.ContainerType":`+
			`"container","io.kubernetes.container.name":"side","io.kubernetes.pod.name":"job-7",`+
			`"io.kubernetes.pod.namespace":"batch","io.kubernetes.pod.uid":"uid-3"}}`,
	)
	equal(t, "Objects", []Object{
		{Kind: KindContainer, ID: id("8"), Name: "side", Namespace: "batch", Pod: "job-7", PodUID: "uid-3"},
		{Kind: KindPodSandbox, ID: id("a"), Namespace: "shop", Pod: "web-1", PodUID: "uid-1"},
		{Kind: KindContainer, ID: id("1"), Name: "app", Namespace: "shop", Pod: "web-1", PodUID: "uid-1"},
	}, n.processes().Objects(t.Context()))
}

// TestLocksBefore has this process hold a lock, and looks at it as that of a child that has the file too, and as its
// own.
func TestLocksBefore(t *testing.T) {
	name := filepath.Join(t.TempDir(), "storage.lock")
	f, err := os.Create(name)
	must(t, err)
	defer f.Close()
	must(t, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}))
	again, err := os.OpenFile(name, os.O_RDWR, 0) // a file description without the lock
	must(t, err)
	defer again.Close()
	child := testChild(t).program
	other, err := os.StartProcess(child, []string{child, ChildArgument, verbSpace, "/", "/stops"},
		&os.ProcAttr{Files: []*os.File{nil, nil, nil, again}})
	must(t, err)
	defer func() { _ = other.Kill(); _, _ = other.Wait() }()
	got, err := LocksBefore(t.Context(), "/", other.Pid)
	must(t, err)
	if len(got) == 1 {
		got[0].Name, got[0].State = "", 0
	}
	equal(t, "the child's", []FileLock{{Path: name, PID: os.Getpid()}}, got)
	got, err = LocksBefore(t.Context(), "/", os.Getpid())
	if len(got) > 0 || err != nil {
		t.Errorf("its own locks: %+v, %v", got, err)
	}
}

package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestReadFiles(t *testing.T) {
	n := newNode(t)
	n.process(20, 1, "containerd", 'S', "containerd")
	for fd := range 3 {
		n.link(procFile(20, fmt.Sprint("fd/", fd)), "/dev/null")
	}
	n.process(30, 1, "kubelet", 'S', "kubelet") // gone before its limits were read
	n.process(31, 1, "kubelet", 'S', "kubelet")
	n.process(40, 1, "nginx", 'S', "nginx") // not ours
	n.write("proc/sys/fs/file-nr", "2476\t0\t9223372036854775807\n", "proc/20/limits", fixture(t, "limits"),
		"proc/31/limits", "\x1b[31m")
	got, err := ReadFiles(t.Context(), n.root, n.processes())
	failed(t, "ReadFiles", err, "counting the open files of kubelet: no limit of open files")
	equal(t, "ReadFiles", Files{System: Usage{2476, 0}, Processes: []ProcessFiles{
		{PID: 20, Name: "containerd", Role: RoleRuntime, Usage: Usage{3, 20000}, Hard: 20000},
	}}, got)
	_, err = ReadFiles(t.Context(), t.TempDir(), Population{})
	failed(t, "of nothing", err, "counting open files")
}

// watcher adds a process of a user with inotify instances of two watches each, among other descriptors.
func (n *node) watcher(pid, uid, instances int, comm, args string) {
	n.process(pid, 1, comm, 'S', args)
	n.write(procFile(pid, "status"), fmt.Sprintf("Name:\tx\nUid:\t0\t%d\t0\t0\n", uid))
	n.link(procFile(pid, "fd/0"), "/dev/null")
	n.link(procFile(pid, "fd/1"), "anon_inode:[eventpoll]")
	for fd := range instances {
		n.link(procFile(pid, fmt.Sprint("fd/", fd+2)), "anon_inode:inotify")
		n.write(procFile(pid, fmt.Sprint("fdinfo/", fd+2)), fixture(n.t, "fdinfo-inotify"))
	}
}

func TestReadInotify(t *testing.T) {
	n := newNode(t)
	n.write("proc/sys/fs/inotify/max_user_instances", "128\n", "proc/sys/fs/inotify/max_user_watches", "1048576\n",
		"proc/30/cgroup", "0::/kubepods/pod7/"+idA+"\n")
	n.watcher(20, 0, 1, "containerd-shim", "containerd-shim-runc-v2 -namespace k8s.io -id "+idB)
	n.watcher(30, 0, 5, "tail", "tail")
	n.watcher(40, 1000, 9, "app", "app")
	n.watcher(50, 0, 0, "idle", "idle")
	n.process(60, 1, "ghost", 'Z', "")
	got, err := ReadInotify(t.Context(), n.root, n.processes())
	must(t, err)
	equal(t, "ReadInotify", Inotify{
		MaxInstances: 128, MaxWatches: 1048576,
		Users: []InotifyUser{
			{UID: 1000, Instances: 9, Watches: 18, Top: []InotifyProcess{{PID: 40, Name: "app", Instances: 9}}},
			{UID: 0, Instances: 6, Watches: 12, Top: []InotifyProcess{
				{PID: 30, Name: "tail", Instances: 5, Owner: Owner{ObjectID: idA, PodUID: "7"}},
				{PID: 20, Name: "containerd-shim", Instances: 1, Owner: Owner{Role: RoleShim, ObjectID: idB}},
			}},
		},
	}, got)
	_, _, err = countInotify(n.root+"/proc/40", 3)
	failed(t, "of too many", err, "too many descriptors")
}

// TestReadNumbers reads files of the kernel one after the other, of a host that has none of them at first.
func TestReadNumbers(t *testing.T) {
	const (
		counted, limit = "proc/sys/net/netfilter/nf_conntrack_count", "proc/sys/net/netfilter/nf_conntrack_max"
		meminfo, psi   = "proc/meminfo", "proc/pressure/io"
		some           = "some avg10=0.22 avg60=0.17 avg300=1.11 total=58761459\n"
	)
	ofSome := Stall{Some: Averages{0.22, 0.17, 1.11}}
	stalls := func(s Stall) Pressure { return Pressure{IO: &s} }
	n := newNode(t)
	for _, step := range []struct {
		file, content string
		want          any
		err           string // empty where all is read
	}{
		{"x", "", Conntrack{}, ""}, // without the module
		{"x", "", Memory{}, "no such file"},
		{"x", "", Pressure{}, "no such file"},

		{counted, "261000\n", Conntrack{}, "no such file"},
		{limit, "262144\n", Conntrack{Usage{261000, 262144}}, ""},
		{counted, "many\n", Conntrack{}, "is not a number"},

		{
			meminfo, "MemTotal:       49368168 kB\nMemAvailable:   2048 kB\nHugePages_Total:       0\n" +
				"SUnreclaim:     8 kB\nShmem:          7 kB\nShmemHugePages: 6 kB\n",
			Memory{49368168 << 10, 2 << 20, 8 << 10, 7 << 10},
			"",
		},
		{meminfo, "MemTotal: 5 kB\nMemAvailable: x kB\n", Memory{}, "no line"},

		{
			psi, some + "full avg10=0.00 avg60=0.13 avg300=0.96 total=57261459\n",
			stalls(Stall{ofSome.Some, Averages{0, 0.13, 0.96}}), "",
		},
		{psi, some, stalls(ofSome), ""},
		{psi, strings.Replace(some, "0.22", "NaN", 1), Pressure{}, "pressure"},
	} {
		n.write(step.file, step.content)
		var got any
		var err error
		switch step.want.(type) {
		case Conntrack:
			got, err = ReadConntrack(n.root)
		case Memory:
			got, err = ReadMemory(n.root)
		case Pressure:
			got, err = ReadPressure(n.root)
		}
		failed(t, step.file+": "+step.content, err, step.err)
		equal(t, step.file+": "+step.content, step.want, got)
	}
}

// TestReadClockReal cannot know whether a client keeps this machine's clock; between two reads it does not jump by
// hours.
func TestReadClockReal(t *testing.T) {
	c, err := ReadClock(t.Context(), time.Millisecond)
	if err != nil || c.Over < time.Millisecond || c.Jumped.Abs() > time.Hour {
		t.Errorf("ReadClock = %+v, %v", c, err)
	}
}

// TestFolders has a containerd whose database is open at another place than the usual one.
func TestFolders(t *testing.T) {
	n := newNode(t)
	n.process(50, 1, "containerd", 'S', "/usr/bin/containerd")
	n.write("var/lib/containerd/x", "", "run/containerd/x", "")
	rest := []Folder{
		{Path: "/run/containerd", Role: FolderState},
		{Path: "/var/lib/kubelet", Role: FolderKubelet},
		{Path: "/var/log/pods", Role: FolderLogs},
		{Path: "/var/log", Role: FolderLogs},
		{Path: "/", Role: FolderRoot},
	}
	usual := append([]Folder{{Path: "/var/lib/containerd", Role: FolderRuntime}}, rest...)
	equal(t, "the usual ones", usual, Folders(n.root, n.processes(), "", ""))
	// Below the root of the fixture, the database has the name that the process has for it.
	dir := t.TempDir()
	n.link("proc/50/fd/7", dir+boltFile)
	(&node{t, "/"}).write(dir+boltFile, "")
	equal(t, "of a daemon that sees other files", usual, Folders(n.root, n.processes(), "", ""))
	n.write(dir+boltFile, "another file of that name")
	equal(t, "where the host has another file", usual, Folders(n.root, n.processes(), "", ""))
	must(t, os.Remove(n.path(dir+boltFile)))
	n.link(dir+boltFile, dir+boltFile)
	found := append([]Folder{{Path: dir, Role: FolderRuntime, PID: 50}}, rest...)
	equal(t, "where the database is", found, Folders(n.root, n.processes(), "", ""))
	// A shim works below the folder of what runs.
	state := t.TempDir()
	bundle := state + "/" + taskDir + "/k8s.io/" + idA
	n.process(60, 1, "containerd-shim", 'S', "containerd-shim-runc-v2 -id "+idA)
	n.link("proc/60/cwd", bundle)
	(&node{t, "/"}).write(bundle+"/config.json", "")
	n.link(bundle, bundle)
	found[1].Path = state
	equal(t, "where the shims are", found, Folders(n.root, n.processes(), "", "/var/log/pods"))
	// CRI-O keeps no file open. A folder of that name may hold anything else.
	n.process(50, 1, "crio", 'S', "/usr/bin/crio")
	n.write("proc/50/mountinfo", "47 1 0:252 / /data rw - tmpfs tmpfs rw\n"+
		"48 47 0:252 /containers/overlay /data/containers/overlay rw - tmpfs tmpfs rw\n"+
		"49 48 0:255 / /data/containers/overlay/0a/merged rw - overlay overlay rw\n"+
		"50 1 8:1 / /srv/overlay rw - ext4 /dev/sda1 rw\n")
	must(t, os.Remove(n.path("proc/50/fd/7")))
	found[0].Path = "/data/containers"
	equal(t, "where CRI-O's storage is mounted", found, Folders(n.root, n.processes(), "", "/var/log/pods"))
}

func TestObjects(t *testing.T) {
	n := newNode(t)
	id := func(digit string) string { return strings.Repeat(digit, 64) }
	bundles := "run/containerd/io.containerd.runtime.v2.task/"
	of := `"io.kubernetes.cri.sandbox-name":"web-1","io.kubernetes.cri.sandbox-namespace":"shop",` +
		`"io.kubernetes.cri.sandbox-uid":"uid-1"}}`
	n.write(
		bundles+"k8s.io/"+id("a")+"/config.json", `{"annotations":{"io.kubernetes.cri.container-type":"sandbox",`+of,
		bundles+"k8s.io/"+id("1")+"/config.json", `{"process":{"env":["SECRET=x"]},"annotations":{`+
			`"io.kubernetes.cri.container-type":"container","io.kubernetes.cri.container-name":"app",`+of,
		bundles+"k8s.io/"+id("4")+"/config.json", `{"annotations":`,
		bundles+"k8s.io/bad name/config.json", `{"annotations":{"io.kubernetes.cri.container-type":"sandbox"}}`,
		bundles+"moby/"+id("c")+"/config.json", `{}`, // not of Kubernetes
		crioBundles+"/"+id("8")+"/userdata/config.json", `{"annotations":{"io.kubernetes.cri-o.ContainerType":`+
			`"container","io.kubernetes.container.name":"side","io.kubernetes.pod.name":"job-7",`+
			`"io.kubernetes.pod.namespace":"batch","io.kubernetes.pod.uid":"uid-3"}}`,
	)
	equal(t, "Objects", []Object{
		{Kind: KindContainer, ID: id("8"), Name: "side", Namespace: "batch", Pod: "job-7", PodUID: "uid-3"},
		{Kind: KindPodSandbox, ID: id("a"), Namespace: "shop", Pod: "web-1", PodUID: "uid-1"},
		{Kind: KindContainer, ID: id("1"), Name: "app", Namespace: "shop", Pod: "web-1", PodUID: "uid-1"},
	}, n.processes().Objects(t.Context()))
	if got := n.processes().Objects(canceled(t)); len(got) != 0 {
		t.Errorf("Objects with a canceled context = %v", got)
	}
}

// TestWithin checks that the error of a read that panics names what was being read.
func TestWithin(t *testing.T) {
	_, err := within(t.Context(), "counting", func(at *position) (int, error) {
		at.enter("the cgroup of process %d", 7)
		panic("boom")
	})
	failed(t, "of a read that panics", err, "reading the cgroup of process 7: internal error: boom")
}

// TestLocksBefore has this process hold locks, and looks at them as those of a child that has the file too, and as its
// own.
func TestLocksBefore(t *testing.T) {
	for name, lock := range map[string]func(fd uintptr) error{
		"meta.db": func(fd uintptr) error { return unix.Flock(int(fd), unix.LOCK_EX) },
		"lock":    func(fd uintptr) error { return unix.Flock(int(fd), unix.LOCK_EX) },
		"storage.lock": func(fd uintptr) error {
			return unix.FcntlFlock(fd, unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		},
	} {
		t.Run(name, func(t *testing.T) { locksBefore(t, name, lock) })
	}
}

func locksBefore(t *testing.T, name string, lock func(fd uintptr) error) {
	name = filepath.Join(t.TempDir(), name)
	f, err := os.Create(name)
	must(t, err)
	defer f.Close()
	must(t, lock(f.Fd()))
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

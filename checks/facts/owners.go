package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// IsStaticPod reports whether the kubelet has a pod from a file or a URL, not from the API server.
func IsStaticPod(f *Facts, uid string) bool {
	return slices.ContainsFunc(sandboxesOf(f),
		func(s crictl.PodSandbox) bool { return isStatic(s) && s.Pod != nil && s.Pod.UID == uid })
}

// WorkloadOf is the workload of a pod, as far as the labels of its sandbox show it.
func WorkloadOf(f *Facts, uid string) crictl.Owner {
	for _, s := range sandboxesOf(f) {
		if uid != "" && s.Pod != nil && s.Pod.UID == uid {
			return s.Owner
		}
	}
	return crictl.Owner{}
}

func isStatic(s crictl.PodSandbox) bool { return s.ConfigSource != "" && s.ConfigSource != "api" }

// IsOurs reports whether a process belongs to a part of the node: the runtime, the kubelet, a shim, a container.
func IsOurs(o host.Owner) bool { return o.Role != "" || o.ObjectID != "" || o.PodUID != "" }

// deriveOthers sets apart what belongs to another runtime of this host: its processes, their tasks, its folders.
func deriveOthers(f *Facts) {
	if f.Target.Simulated {
		return
	}
	m, n := f.Measurement, *f.Seen
	f.Shims.Comparable = f.HostMissing == "" && f.Calls.Connected && f.Calls.BothLists && m.Sandboxes != nil &&
		m.Containers != nil && m.Sandboxes.Complete && m.Containers.Complete
	mine := func(p host.Process) bool { return !isOther(f, p) }
	f.Others = filter(f.Processes, func(p host.Process) bool { return isOther(f, p) })
	f.Processes = filter(f.Processes, mine)
	n.Tasks.Value.Stopped = filter(n.Tasks.Value.Stopped, mine)
	n.Tasks.Value.Blocked = filter(n.Tasks.Value.Blocked, func(t host.BlockedTask) bool {
		is := func(p host.Process) bool { return p.PID == t.PID }
		return !slices.ContainsFunc(f.Others, is) && (t.Role != "" || !isStranger(f, t.Owner))
	})
	others := func(pid int) bool {
		return slices.ContainsFunc(f.Others, func(p host.Process) bool { return p.PID == pid })
	}
	n.Tasks.Value.FIFOs = filter(n.Tasks.Value.FIFOs, func(t host.FIFOWait) bool { return !others(t.PID) })
	n.Tasks.Value.Outputs = filter(n.Tasks.Value.Outputs, func(t host.OutputWait) bool { return !others(t.PID) })
	own := func(d host.Folder) bool { // a usual folder of the runtime that was asked
		folder := layoutOf(f, strings.ToLower(f.Runtime.Name)).folder
		return d.Role == host.FolderRuntime && folder != "" && strings.HasPrefix(d.Path, folder)
	}
	leftovers := slices.ContainsFunc(n.Folders.Value, own) // of other runtimes are in the list as well
	ours := func(d host.Folder) bool {
		return !others(d.PID) && !(d.Role == host.FolderRuntime && d.PID == 0 && leftovers && !own(d))
	}
	some := func(daemons []int) bool { // a group above all daemons holds another runtime's as well
		return len(daemons) == 0 || slices.ContainsFunc(daemons, func(pid int) bool { return !others(pid) })
	}
	n.PIDs.Value.Cgroups = filter(n.PIDs.Value.Cgroups, func(u host.CgroupUsage) bool { return some(u.Daemons) })
	n.Cgroups.Value.Throttled = filter(n.Cgroups.Value.Throttled,
		func(t host.Throttling) bool { return some(t.Daemons) })
	n.Files.Value.Processes = filter(n.Files.Value.Processes, func(p host.ProcessFiles) bool { return !others(p.PID) })
	n.Folders.Value = filter(n.Folders.Value, ours)
	n.Writes.Value = filter(n.Writes.Value, func(w host.Writes) bool { return ours(w.Folder) })
	n.Spaces.Value, n.Disks.Value = slices.Clone(n.Spaces.Value), slices.Clone(n.Disks.Value)
	n.Spaces.Value = slices.DeleteFunc(n.Spaces.Value, func(s host.Space) bool {
		return len(s.Folders) > 0 && !slices.ContainsFunc(s.Folders, ours)
	})
	for i := range n.Spaces.Value {
		n.Spaces.Value[i].Folders = filter(n.Spaces.Value[i].Folders, ours)
	}
	for i := range n.Disks.Value {
		n.Disks.Value[i].Folders = filter(n.Disks.Value[i].Folders, ours)
	}
	f.Seen = &n
}

// isOther reports whether a process belongs to another runtime than the one that was asked. That one is the process
// that holds the socket; its shims were given the socket's address and the namespace of Kubernetes; OCI runtimes and
// CNI plugins are started by those. Objects that the runtime lists are its own in any case.
func isOther(f *Facts, p host.Process) bool {
	t, d := &f.Target, &f.Target.Daemon
	known := d.PID != 0 && !d.Guessed
	switch {
	case p.Role == "" || p.Role == host.RoleKubelet || p.ObjectID != "" && IsListed(f, p.ObjectID):
		return false
	case strings.Contains(t.Unit, UnitDocker): // asked through cri-dockerd: three daemons serve one socket
		return false
	case p.Role == host.RoleRuntime && known:
		return p.PID != d.PID && p.Daemon != d.PID && !isRival(f, p)
	case p.Role == host.RoleRuntime:
		return listensElsewhere(f, p)
	case strings.HasPrefix(p.Program, "conmon"):
		return p.Namespace != kubernetes || strings.Contains(t.Name, "containerd")
	case p.Address != "":
		return !IsAsked(f, p.Address) || p.Namespace != kubernetes
	case p.Daemon != 0 && known:
		return p.Daemon != d.PID
	case p.Role == host.RoleShim && p.ObjectID == "" && p.Daemon == 0 && !IsUninterruptible(&p):
		return true // whoever has the name of a shim; the arguments of one in uninterruptible sleep are not read
	}
	// Only the lists show whose shim it is, and they and the processes are not read at the same moment.
	return p.Role == host.RoleShim && p.ObjectID != "" && AgeOf(f, p) >= ShimSettled && f.Shims.Comparable &&
		!IsNamedBad(f, p.ObjectID)
}

// kubernetes is the namespace of CRI's containers in containerd.
const kubernetes = "k8s.io"

// IsAsked reports whether a path is that of the socket that was asked, as this process or its daemon sees it.
func IsAsked(f *Facts, path string) bool {
	d := f.Target.Daemon
	return crictl.SameEndpoint(path, f.Target.SocketPath) ||
		!d.Guessed && d.Process != nil && slices.Contains(d.Process.Sockets, path)
}

// listensElsewhere reports whether a daemon serves other sockets, and not the one that was asked.
func listensElsewhere(f *Facts, p host.Process) bool {
	return len(p.Sockets) > 0 && !slices.ContainsFunc(p.Sockets, func(s string) bool { return IsAsked(f, s) })
}

// isRival reports whether a daemon listens on the path of another one's socket, which the later of them has replaced,
// or uses the same root folder.
func isRival(f *Facts, p host.Process) bool {
	d := f.Target.Daemon.Process
	return d != nil && p.PID != d.PID && p.Daemon != d.PID && p.Role == host.RoleRuntime &&
		(SharesSocket(f, p) || SharedRoot(f, d.PID, p.PID) != "")
}

// SharesSocket reports whether a daemon listens on the path of the socket that was asked, which another one holds.
func SharesSocket(f *Facts, p host.Process) bool {
	d := f.Target.Daemon.Process
	return d != nil && d.PID != p.PID && p.MountNS == d.MountNS && slices.ContainsFunc(p.Sockets, func(s string) bool {
		// Every containerd 2 listens on the same socket for NRI plugins, of which the last one gets the connections.
		return IsAsked(f, s) && slices.Contains(d.Sockets, s) && !strings.HasSuffix(s, ".ttrpc") &&
			!strings.HasSuffix(s, "/nri.sock")
	})
}

// SharedRoot is the folder that two daemons, by their pids, both use for their data; empty for none.
func SharedRoot(f *Facts, a, b int) string {
	folders := f.Seen.Folders.Value
	for _, d := range folders {
		other := host.Folder{Path: d.Path, Role: d.Role, PID: b}
		if d.PID != 0 && d.PID == a && a != b && slices.Contains(folders, other) {
			return Clean(d.Path)
		}
	}
	return ""
}

// isStranger reports whether a container or pod is in none of the runtime's lists, which are whole, and nothing names
// it as trouble: another runtime's, also one that runs in a container here.
func isStranger(f *Facts, o host.Owner) bool {
	if o.ObjectID == "" && o.PodUID == "" || !f.Calls.BothLists || f.Target.Simulated ||
		o.ObjectID != "" && (IsListed(f, o.ObjectID) || IsNamedBad(f, o.ObjectID)) {
		return false
	}
	return o.PodUID == "" || OwnedBy(f, host.Owner{PodUID: o.PodUID}).Pod == ""
}

// serves reports whether a process belongs to the object of a status call, or to its pod.
func serves(o host.Owner, i plegbench.Inspection) bool {
	return o.ObjectID != "" && (o.ObjectID == i.ID || o.ObjectID == i.SandboxID) || o.PodUID != "" &&
		o.PodUID == i.Pod.UID
}

// HungObjectOf returns the hung status call about the object or pod that a process belongs to.
func HungObjectOf(f *Facts, o host.Owner) (plegbench.Inspection, bool) {
	i := slices.IndexFunc(f.Sweep.Hung, func(i plegbench.Inspection) bool { return serves(o, i) })
	if i < 0 {
		return plegbench.Inspection{}, false
	}
	return f.Sweep.Hung[i], true
}

// OwnedBy is the object of the runtime's lists that owns a process.
func OwnedBy(f *Facts, o host.Owner) checks.Subject {
	s := checks.Subject{PodUID: Clean(o.PodUID)}
	for e := range Entries(f, RPCSandboxes, RPCContainers) {
		sandbox := e.Kind == KindSandbox
		if o.ObjectID != "" && e.ID == o.ObjectID || sandbox && o.PodUID != "" && e.Pod.UID == o.PodUID {
			s.Namespace, s.Pod, s.PodUID = Clean(e.Pod.Namespace), Clean(e.Pod.Name), Clean(e.Pod.UID)
			s.Name = Clean(e.Name)
		}
	}
	return s
}

// OwnerLabel names the owner of a process: web/checkout-1 (app), containerd.service, the runtime; empty for any
// other process of the host.
func OwnerLabel(f *Facts, o host.Owner) string {
	switch s := OwnedBy(f, o); {
	case s.Pod != "" && s.Name != "":
		return LabelOf(KindContainer, o.ObjectID, s.Namespace, s.Pod, s.Name)
	case s.Pod != "":
		return s.Namespace + "/" + s.Pod
	case o.ObjectID != "":
		return "container " + ShortID(o.ObjectID)
	case o.PodUID != "":
		return "pod " + Clean(o.PodUID)
	case o.Unit != "":
		return Clean(o.Unit)
	case o.Role == host.RoleKubelet:
		return "the kubelet"
	case o.Role != "":
		return "the runtime"
	}
	return ""
}

// OwnerSuffix writes an owner behind what it owns; nothing where the owner is not known.
func OwnerSuffix(f *Facts, o host.Owner) string {
	if l := OwnerLabel(f, o); l != "" {
		return " of " + l
	}
	return ""
}

// MostNamed is the most items of a list that a report names.
const MostNamed = 3

// The kinds of objects that a runtime holds.
const (
	KindSandbox   = "PodSandbox"
	KindContainer = "Container"
)

// MaxRelated is the most further culprits that a cause lists; the evidence counts the others.
const MaxRelated = 20

// LongOCI is the age from which a runc at work is stuck: it creates, starts or deletes within a second or two.
const LongOCI = 10 * time.Second

// Label names the object of an inspection: web/checkout-1 (app), sandbox of web/checkout-1, container 3f1c9a.
func Label(i plegbench.Inspection) string {
	return LabelOf(i.Kind, i.ID, i.Pod.Namespace, i.Pod.Name, i.Name)
}

// LabelOf names a sandbox or container as well as it is known.
func LabelOf(kind, id, namespace, pod, name string) string {
	if pod == "" {
		what := "container "
		if kind == KindSandbox {
			what = "sandbox "
		}
		return what + ShortID(id)
	}
	where := Clean(pod)
	if namespace != "" {
		where = Clean(namespace) + "/" + where
	}
	switch {
	case kind == KindSandbox:
		return "sandbox of " + where
	case name != "":
		return where + " (" + Clean(name) + ")"
	}
	return where + " (" + ShortID(id) + ")"
}

// ShortID is the head of an id, as crictl prints it.
func ShortID(id string) string {
	id = Clean(id)
	if len(id) > 13 {
		return id[:13]
	}
	return id
}

// SubjectOf names the object of an inspection as a culprit, with its processes on this host.
func SubjectOf(f *Facts, i plegbench.Inspection) checks.Subject {
	s := checks.Subject{
		Kind: i.Kind, ID: Clean(i.ID), Name: Clean(i.Name),
		Namespace: Clean(i.Pod.Namespace), Pod: Clean(i.Pod.Name), PodUID: Clean(i.Pod.UID),
	}
	for _, p := range ProcessesServing(f, i.ID, i.SandboxID) {
		s.Processes = append(s.Processes, ProcessOf(f, p))
	}
	return s
}

// ProcessesServing returns the host's processes that serve one of the ids, OCI runtimes first, then by pid.
func ProcessesServing(f *Facts, ids ...string) []host.Process {
	found := filter(f.Processes,
		func(p host.Process) bool { return p.ObjectID != "" && slices.Contains(ids, p.ObjectID) })
	slices.SortStableFunc(found, func(a, b host.Process) int {
		return cmp.Or(first(a.Role == host.RoleOCI, b.Role == host.RoleOCI), a.PID-b.PID)
	})
	return found
}

// IsConmon reports whether a process watches one container for CRI-O. It is no shim of a pod: the container outlives
// it, unsupervised.
func IsConmon(p host.Process) bool { return strings.HasPrefix(p.Name, "conmon") }

// ProcessLabel names a process: runc (pid 4720).
func ProcessLabel(p host.Process) string { return fmt.Sprintf("%s (pid %d)", Clean(p.Name), p.PID) }

// StateOf is a process's state and where it waits.
func StateOf(p host.Process) string {
	s := Clean(p.StateWord())
	if p.Wchan != "" && p.Wchan != "0" {
		s += " in " + Clean(p.Wchan)
	}
	if p.Lasting && IsUninterruptible(&p) {
		s += " in two looks"
	}
	return s
}

// OldProcesses returns the processes of a role that have been running for at least d, the oldest first. Of a process
// and what it started the first is meant; a zombie no longer runs.
func OldProcesses(f *Facts, role host.Role, d time.Duration) []host.Process {
	old := filter(f.Processes, func(p host.Process) bool {
		return p.Role == role && p.State != 'Z' && AgeOf(f, p) >= d &&
			!slices.ContainsFunc(f.Processes, func(o host.Process) bool { return o.PID == p.PPID && o.Role == role })
	})
	slices.SortStableFunc(old, func(a, b host.Process) int { return a.Started.Compare(b.Started) })
	return old
}

// ProcessSubject names a process as a culprit, with the object and the pod that it serves.
func ProcessSubject(f *Facts, p host.Process, o host.Owner) checks.Subject {
	s := OwnedBy(f, o)
	s.Kind, s.ID, s.Name = "Process", strconv.Itoa(p.PID), Clean(p.Name)
	s.Processes = []checks.Process{ProcessOf(f, p)}
	return s
}

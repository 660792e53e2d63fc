package facts

import (
	"slices"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
)

// Docker is what runs behind cri-dockerd, which passes every call on.
type Docker struct {
	// Daemons are dockerd and its containerd, as far as they run.
	Daemons []host.Process
	Stopped *host.Process // the first of them that is stopped, while cri-dockerd runs; nil for none
	Gone    bool          // no dockerd runs on this host
}

// docker finds the daemons behind cri-dockerd. The containerd is the one that dockerd has started, or that started the
// shims of docker's containers.
func docker(f *Facts) (d Docker) {
	if f.Target.Unit != UnitsCRIDockerd || f.HostMissing != "" {
		return d
	}
	running := filter(ProcessesOf(f, host.RoleRuntime), func(p host.Process) bool { return p.State != 'Z' })
	d.Daemons = filter(running, func(p host.Process) bool { return p.Name == "dockerd" })
	d.Gone = len(d.Daemons) == 0
	for _, p := range running {
		started := func(o host.Process) bool {
			return o.Namespace == "moby" && slices.ContainsFunc(p.Sockets, func(path string) bool {
				return crictl.SameEndpoint(path, o.Address)
			})
		}
		if p.Name == "containerd" && (slices.ContainsFunc(d.Daemons, func(o host.Process) bool { return o.PID == p.PPID }) ||
			slices.ContainsFunc(f.Processes, started)) {
			d.Daemons = append(d.Daemons, p)
		}
	}
	if front := f.Target.Daemon.Process; front == nil || !IsStopped(front) {
		if i := slices.IndexFunc(d.Daemons, func(p host.Process) bool { return IsStopped(&p) }); i >= 0 {
			d.Stopped = &d.Daemons[i]
		}
	}
	return d
}

package probes

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
)

// The time that probes get. Reading /proc takes milliseconds; a disk that is throttled takes seconds for a write and is
// to be measured, not given up; systemd and children get what a person would wait.
const (
	quickLook  = 2 * time.Second
	patientOne = 5 * time.Second
)

// foldersTimed bounds the folders that are written to: docker's and k3s's beside the one that was asked for.
const foldersTimed = 4

// throttleLook is the time between the two looks at cpu.stat: twenty periods of 100 ms. Shorter ones would call the
// start of a pod starvation. Only where a quota holds the runtime or the kubelet is it waited for.
const throttleLook = 2 * time.Second

// runtimeUnits returns the systemd units that run a runtime, in the order in which to look for them. Docker's comes
// last: it may be installed beside another runtime without serving the kubelet.
func runtimeUnits() []string {
	const docker = "docker.service"
	var units []string
	for _, in := range crictl.Installations() {
		if !in.RunsKubelet {
			units = append(units, slices.DeleteFunc(slices.Clone(in.Units), func(u string) bool { return u == docker })...)
		}
	}
	return append(units, docker)
}

// populationID is what most looks at processes begin with.
const populationID = "host.population"

func populationProbe() Probe {
	return probe(Probe{
		ID: populationID, Limit: patientOne, Cheap: true,
		Text: "/proc/PID/stat of every process, and which of them are the runtime, the kubelet, shims and what " +
			"those run. Read once for all that follow.",
	}, func(n *facts.Node) *facts.Reading[host.Population] { return &n.Population },
		func(ctx context.Context, s *Input, _ facts.Node) (host.Population, error) {
			return s.Population(ctx)
		})
}

func foldersProbe() Probe {
	return probe(Probe{
		ID: "host.folders", Limit: quickLook, Cheap: true, After: []string{populationID, "kubelet.settings"},
		Text: "Where the runtime keeps its containers and images (the folder of the database that its daemon has " +
			"open, else the usual ones), the kubelet its pods, and both their logs.",
	}, func(n *facts.Node) *facts.Reading[[]host.Folder] { return &n.Folders },
		func(_ context.Context, s *Input, seen facts.Node) ([]host.Folder, error) {
			return host.Folders(s.Root, seen.Population.Value, seen.Settings.Value.RootDir,
				seen.Settings.Value.PodLogsDir), nil
		})
}

func pressureProbe() Probe {
	return probe(Probe{
		ID: "host.pressure", Limit: quickLook, Cheap: true, Needs: "a kernel with PSI",
		Text: "/proc/pressure: the share of time in which tasks waited for CPU, memory and disks.",
	}, func(n *facts.Node) *facts.Reading[host.Pressure] { return &n.Pressure },
		func(_ context.Context, s *Input, _ facts.Node) (host.Pressure, error) {
			return host.ReadPressure(s.Root)
		})
}

func memoryProbe() Probe {
	return probe(Probe{
		ID: "host.memory", Limit: quickLook, Cheap: true,
		Text: "/proc/meminfo: memory that is available, swap, and what waits to be written.",
	}, func(n *facts.Node) *facts.Reading[host.Memory] { return &n.Memory },
		func(_ context.Context, s *Input, _ facts.Node) (host.Memory, error) { return host.ReadMemory(s.Root) })
}

func spacesProbe() Probe {
	return probe(Probe{
		ID: "host.spaces", Limit: patientOne, Cheap: true, After: []string{"host.folders"},
		Text: "Space and inodes of the file systems under the runtime's, the kubelet's and the logs' folders " +
			"(statfs, in a child process, since a dead file system never answers).",
	}, func(n *facts.Node) *facts.Reading[[]host.Space] { return &n.Spaces },
		func(ctx context.Context, s *Input, seen facts.Node) ([]host.Space, error) {
			return host.ReadSpaces(ctx, s.Root, seen.Population.Value, seen.Folders.Value, s.Child)
		})
}

func writesProbe() Probe {
	return probe(Probe{
		ID: "host.writes", Limit: patientOne, After: []string{"host.folders"}, Needs: "root",
		Text: "Writes of 4 KiB with fsync into an unlinked file in the runtime's folder, timed one by one in a " +
			"child process. This is the only thing that kdiag writes; nothing is left of it.",
	}, func(n *facts.Node) *facts.Reading[[]host.Writes] { return &n.Writes },
		func(ctx context.Context, s *Input, seen facts.Node) ([]host.Writes, error) {
			folders := slices.DeleteFunc(slices.Clone(seen.Folders.Value),
				func(f host.Folder) bool { return f.Role != host.FolderRuntime })
			if len(folders) == 0 {
				return nil, skip{"no folder of a runtime was found"}
			}
			folders = folders[:min(len(folders), foldersTimed)]
			all, failed := make([]host.Writes, len(folders)), make([]error, len(folders))
			var timing sync.WaitGroup
			for i, f := range folders {
				timing.Go(func() {
					all[i], failed[i] = host.TimeWrites(ctx, s.Root, seen.Population.Value, f, s.Child)
				})
			}
			timing.Wait()
			return all, errors.Join(failed...)
		})
}

func disksProbe() Probe {
	return probe(Probe{
		ID: "host.disks", Limit: patientOne, After: []string{"host.folders"},
		Text: "/proc/diskstats twice: how busy each device is, and how long a request takes.",
	}, func(n *facts.Node) *facts.Reading[[]host.Disk] { return &n.Disks },
		func(ctx context.Context, s *Input, seen facts.Node) ([]host.Disk, error) {
			return host.ReadDisks(ctx, s.Root, seen.Folders.Value, s.Between)
		})
}

func writersProbe() Probe {
	return probe(Probe{
		ID: "host.writers", Limit: patientOne, After: []string{populationID}, Needs: "root",
		Text: "/proc/PID/io twice: who writes most.",
	}, func(n *facts.Node) *facts.Reading[[]host.Writer] { return &n.Writers },
		func(ctx context.Context, s *Input, seen facts.Node) ([]host.Writer, error) {
			return host.ReadWriters(ctx, seen.Population.Value, s.Between)
		})
}

func mountsProbe() Probe {
	return probe(Probe{
		ID: "host.mounts", Limit: patientOne, Cheap: true, After: []string{
			populationID,
			"kubelet.settings",
		}, Needs: "root",
		Text: "Every mount below the kubelet's folder, and every one over the network, is asked for an answer in " +
			"a child process. One that hangs is named; its child is left behind, and the next run starts no second one.",
	}, func(n *facts.Node) *facts.Reading[host.MountTable] { return &n.Mounts },
		func(ctx context.Context, s *Input, seen facts.Node) (host.MountTable, error) {
			return host.ProbeMounts(ctx, s.Root, seen.Population.Value,
				cmp.Or(seen.Settings.Value.RootDir, defaultKubeletDir), s.Child)
		})
}

func tasksProbe() Probe {
	return probe(Probe{
		ID: "host.tasks", Limit: 2 * patientOne, Cheap: true, After: []string{populationID},
		Text: "Processes and threads in uninterruptible sleep in two looks, with the kernel function and stack " +
			"that they wait in, and whose they are; zombies by parent; stopped daemons and shims.",
		Needs: "root for the stacks",
	}, func(n *facts.Node) *facts.Reading[host.Tasks] { return &n.Tasks },
		func(ctx context.Context, s *Input, seen facts.Node) (host.Tasks, error) {
			return host.ReadTasks(ctx, seen.Population.Value, s.Between)
		})
}

func pidsProbe() Probe {
	return probe(Probe{
		ID: "host.pids", Limit: quickLook, Cheap: true, After: []string{populationID},
		Text: "Processes and threads against kernel.pid_max, threads-max and the pids limits of the runtime's, " +
			"the kubelet's and the pods' cgroups.",
	}, func(n *facts.Node) *facts.Reading[host.PIDs] { return &n.PIDs },
		func(ctx context.Context, s *Input, seen facts.Node) (host.PIDs, error) {
			return host.ReadPIDs(ctx, s.Root, seen.Population.Value)
		})
}

func HoldersProbe() Probe {
	return probe(Probe{
		ID: "host.holders", Limit: patientOne, Cheap: true, After: []string{populationID, "host.pressure", "host.pids"},
		Text: "Who has most of the memory and of the processes, by control group (pods, units) and by process. " +
			"The working set of a group is what the kubelet counts, its usage less the file pages that were not used " +
			"lately.",
	}, func(n *facts.Node) *facts.Reading[host.Consumers] { return &n.Holders },
		func(ctx context.Context, s *Input, seen facts.Node) (host.Consumers, error) {
			return host.ReadConsumers(ctx, s.Root, seen.Population.Value, seen.Pressure.Value, seen.PIDs.Value)
		})
}

func filesProbe() Probe {
	return probe(Probe{
		ID: "host.files", Limit: quickLook, Cheap: true, After: []string{populationID}, Needs: "root",
		Text: "Open files of the runtime and the kubelet against their limits, and of the host against fs.file-max.",
	}, func(n *facts.Node) *facts.Reading[host.Files] { return &n.Files },
		func(ctx context.Context, s *Input, seen facts.Node) (host.Files, error) {
			return host.ReadFiles(ctx, s.Root, seen.Population.Value)
		})
}

func inotifyProbe() Probe {
	return probe(Probe{
		ID: "host.inotify", Limit: patientOne, After: []string{populationID}, Needs: "root",
		Text: "inotify instances and watches by user, against fs.inotify.max_user_instances: on cgroup v2 each " +
			"shim takes one.",
	}, func(n *facts.Node) *facts.Reading[host.Inotify] { return &n.Inotify },
		func(ctx context.Context, s *Input, seen facts.Node) (host.Inotify, error) {
			return host.ReadInotify(ctx, s.Root, seen.Population.Value)
		})
}

func conntrackProbe() Probe {
	return probe(Probe{
		ID: "host.conntrack", Limit: quickLook,
		Text: "Tracked connections against nf_conntrack_max.",
	}, func(n *facts.Node) *facts.Reading[host.Conntrack] { return &n.Conntrack },
		func(_ context.Context, s *Input, _ facts.Node) (host.Conntrack, error) {
			return host.ReadConntrack(s.Root)
		})
}

func cgroupsProbe() Probe {
	return probe(Probe{
		ID: "host.cgroups", Limit: patientOne, Cheap: true, After: []string{populationID},
		Text: "How many cgroups there are and how many are dying, which are frozen, and how much CPU the quota of " +
			"the runtime's and the kubelet's takes from them.",
	}, func(n *facts.Node) *facts.Reading[host.Cgroups] { return &n.Cgroups },
		func(ctx context.Context, s *Input, seen facts.Node) (host.Cgroups, error) {
			return host.ReadCgroups(ctx, s.Root, seen.Population.Value, throttleLook)
		})
}

func clockProbe() Probe {
	return probe(Probe{
		ID: "host.clock", Limit: quickLook, Cheap: true,
		Text: "The wall clock against the monotonic one, time suspended since boot, and whether an NTP client " +
			"keeps it (adjtimex).",
	}, func(n *facts.Node) *facts.Reading[host.Clock] { return &n.Clock },
		func(ctx context.Context, s *Input, _ facts.Node) (host.Clock, error) {
			return host.ReadClock(ctx, s.Between)
		})
}

func systemdProbe() Probe {
	return probe(Probe{
		ID: "systemd.manager", Limit: 2 * patientOne, Cheap: true, Needs: "systemd, and its bus",
		Text: "How soon systemd answers, how many units it holds, and the state of the kubelet's and the runtime's.",
	}, func(n *facts.Node) *facts.Reading[host.Systemd] { return &n.Systemd },
		func(ctx context.Context, s *Input, _ facts.Node) (host.Systemd, error) {
			v, err := host.AskSystemd(ctx, s.Root, crictl.KubeletUnits(), runtimeUnits())
			if errors.Is(err, host.ErrNoSystemd) {
				err = skip{facts.NoSystemd}
			}
			return v, err
		})
}

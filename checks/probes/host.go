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

// foldersTimed bounds the folders that are written to: docker's and k3s's beside the one that was asked for.
const foldersTimed = 4

// throttleLook is the time between the two looks at cpu.stat: twenty periods of 100 ms. Shorter ones would call the
// start of a pod starvation. Only where a quota holds the runtime or the kubelet is it waited for.
const throttleLook = 2 * time.Second

// kubeletDir is the default of the kubelet's --root-dir.
const kubeletDir = "/var/lib/kubelet"

// processProbes returns the probes of processes, tasks, control groups and systemd.
func processProbes() []Probe {
	afterAll := []string{populationID}
	return []Probe{
		probe(Probe{ID: populationID, Limit: longLook, Cheap: true},
			func(n *facts.Node) *facts.Reading[host.Population] { return &n.Population },
			func(ctx context.Context, s *Input, _ facts.Node) (host.Population, error) { return s.Population(ctx) }),
		probe(Probe{ID: "host.tasks", Limit: 2 * longLook, Cheap: true, Walks: true, After: afterAll},
			func(n *facts.Node) *facts.Reading[host.Tasks] { return &n.Tasks },
			func(ctx context.Context, s *Input, seen facts.Node) (host.Tasks, error) {
				return host.ReadTasks(ctx, seen.Population.Value, s.Between)
			}),
		probe(Probe{ID: "host.cgroups", Limit: longLook, Cheap: true, Walks: true, After: afterAll},
			func(n *facts.Node) *facts.Reading[host.Cgroups] { return &n.Cgroups },
			func(ctx context.Context, s *Input, seen facts.Node) (host.Cgroups, error) {
				return host.ReadCgroups(ctx, s.cgroups, seen.Population.Value, throttleLook)
			}),
		probe(Probe{ID: "host.starvation", Limit: longLook, Cheap: true, After: afterAll},
			func(n *facts.Node) *facts.Reading[host.Starvation] { return &n.Starvation },
			func(ctx context.Context, s *Input, seen facts.Node) (host.Starvation, error) {
				return host.ReadStarvation(ctx, s.cgroups, seen.Population.Value, s.Between)
			}),
		probe(Probe{ID: "systemd.manager", Limit: 2 * longLook, Cheap: true},
			func(n *facts.Node) *facts.Reading[host.Systemd] { return &n.Systemd },
			func(ctx context.Context, s *Input, _ facts.Node) (host.Systemd, error) {
				v, err := host.AskSystemd(ctx, s.Root, crictl.KubeletUnits(), runtimeUnits())
				if errors.Is(err, host.ErrNoSystemd) {
					err = skip{facts.NoSystemd}
				}
				return v, err
			}),
	}
}

// resourceProbes returns the probes of memory, CPU, disks and mounts.
func resourceProbes() []Probe {
	afterSettings := []string{populationID, "kubelet.settings"}
	return []Probe{
		probe(Probe{ID: "host.folders", Limit: quickLook, Cheap: true, Walks: true, After: afterSettings},
			func(n *facts.Node) *facts.Reading[[]host.Folder] { return &n.Folders },
			func(_ context.Context, s *Input, seen facts.Node) ([]host.Folder, error) {
				k := seen.Settings.Value
				return host.Folders(s.Root, seen.Population.Value, k.RootDir, k.PodLogsDir), nil
			}),
		probe(Probe{ID: "host.pressure", Limit: quickLook, Cheap: true},
			func(n *facts.Node) *facts.Reading[host.Pressure] { return &n.Pressure }, ofRoot(host.ReadPressure)),
		probe(Probe{ID: "host.memory", Limit: quickLook, Cheap: true},
			func(n *facts.Node) *facts.Reading[host.Memory] { return &n.Memory }, ofRoot(host.ReadMemory)),
		probe(Probe{ID: "host.spaces", Limit: 2 * longLook, Cheap: true, Walks: true, After: []string{"host.folders"}},
			func(n *facts.Node) *facts.Reading[[]host.Space] { return &n.Spaces },
			func(ctx context.Context, s *Input, seen facts.Node) ([]host.Space, error) {
				return host.ReadSpaces(ctx, s.Root, seen.Population.Value, seen.Folders.Value, s.Child)
			}),
		probe(Probe{ID: "host.writes", Limit: longLook, After: []string{"host.folders"}},
			func(n *facts.Node) *facts.Reading[[]host.Writes] { return &n.Writes }, timeWrites),
		probe(Probe{ID: "host.disks", Limit: longLook, After: []string{"host.folders"}},
			func(n *facts.Node) *facts.Reading[[]host.Disk] { return &n.Disks },
			func(ctx context.Context, s *Input, seen facts.Node) ([]host.Disk, error) {
				return host.ReadDisks(ctx, s.Root, seen.Folders.Value, s.Between)
			}),
		probe(Probe{ID: "host.writers", Limit: longLook, Walks: true, After: []string{populationID}},
			func(n *facts.Node) *facts.Reading[[]host.Writer] { return &n.Writers },
			func(ctx context.Context, s *Input, seen facts.Node) ([]host.Writer, error) {
				return host.ReadWriters(ctx, seen.Population.Value, s.Between)
			}),
		probe(Probe{ID: "host.mounts", Limit: 2 * longLook, Cheap: true, Walks: true, After: afterSettings},
			func(n *facts.Node) *facts.Reading[host.MountTable] { return &n.Mounts },
			func(ctx context.Context, s *Input, seen facts.Node) (host.MountTable, error) {
				kubeletDir := cmp.Or(seen.Settings.Value.RootDir, kubeletDir)
				return host.ProbeMounts(ctx, s.Root, seen.Population.Value, kubeletDir, s.Child)
			}),
		probe(Probe{ID: "host.peers", Limit: longLook, Cheap: true, Walks: true, After: afterSettings},
			func(n *facts.Node) *facts.Reading[host.Peers] { return &n.Peers },
			func(ctx context.Context, s *Input, seen facts.Node) (host.Peers, error) {
				kubeletDir := cmp.Or(seen.Settings.Value.RootDir, kubeletDir)
				return host.AskPeers(ctx, s.Root, seen.Population.Value, kubeletDir, s.Child)
			}),
	}
}

// limitProbes returns the probes of limits, counts and the clock.
func limitProbes() []Probe {
	afterAll := []string{populationID}
	return []Probe{
		probe(Probe{ID: "host.pids", Limit: longLook, Cheap: true, Walks: true, After: afterAll},
			func(n *facts.Node) *facts.Reading[host.PIDs] { return &n.PIDs },
			func(ctx context.Context, s *Input, seen facts.Node) (host.PIDs, error) {
				return host.ReadPIDs(ctx, s.cgroups, seen.Population.Value)
			}),
		probe(Probe{
			ID: "host.consumers", Limit: longLook, Cheap: true, Walks: true,
			After: []string{populationID, "host.pressure", "host.pids"},
		}, func(n *facts.Node) *facts.Reading[host.Consumers] { return &n.Consumers },
			func(ctx context.Context, s *Input, seen facts.Node) (host.Consumers, error) {
				return host.ReadConsumers(ctx, s.cgroups, seen.Population.Value, seen.Pressure.Value, seen.PIDs.Value)
			}),
		probe(Probe{ID: "host.files", Limit: quickLook, Cheap: true, Walks: true, After: afterAll},
			func(n *facts.Node) *facts.Reading[host.Files] { return &n.Files }, ofAll(host.ReadFiles)),
		probe(Probe{ID: "host.inotify", Limit: longLook, Walks: true, After: afterAll},
			func(n *facts.Node) *facts.Reading[host.Inotify] { return &n.Inotify }, ofAll(host.ReadInotify)),
		probe(Probe{ID: "host.conntrack", Limit: quickLook},
			func(n *facts.Node) *facts.Reading[host.Conntrack] { return &n.Conntrack }, ofRoot(host.ReadConntrack)),
		probe(Probe{ID: "host.clock", Limit: quickLook, Cheap: true},
			func(n *facts.Node) *facts.Reading[host.Clock] { return &n.Clock },
			func(ctx context.Context, s *Input, _ facts.Node) (host.Clock, error) {
				return host.ReadClock(ctx, s.Between)
			}),
	}
}

// ofRoot reads what depends on the host's files alone.
func ofRoot[T any](read func(root string) (T, error)) func(context.Context, *Input, facts.Node) (T, error) {
	return func(_ context.Context, s *Input, _ facts.Node) (T, error) { return read(s.Root) }
}

// ofAll reads what depends on all processes too.
func ofAll[T any](
	read func(ctx context.Context, root string, processes host.Population) (T, error),
) func(context.Context, *Input, facts.Node) (T, error) {
	return func(ctx context.Context, s *Input, seen facts.Node) (T, error) {
		return read(ctx, s.Root, seen.Population.Value)
	}
}

// timeWrites times writes into the folders of runtimes, side by side.
func timeWrites(ctx context.Context, s *Input, seen facts.Node) ([]host.Writes, error) {
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
}

// runtimeUnits returns the systemd units that run a runtime, in the order in which to look for them. Docker's comes
// last: it may be installed beside another runtime without serving the kubelet.
func runtimeUnits() []string {
	const docker = "docker.service"
	var units []string
	for _, in := range crictl.Installations() {
		if !in.RunsKubelet {
			units = append(units, in.Units...)
		}
	}
	return append(slices.DeleteFunc(units, func(u string) bool { return u == docker }), docker)
}

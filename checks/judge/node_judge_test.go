package judge

import (
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/journal/signature"
)

// found writes the causes of facts with their severity.
func found(f *facts.Input) string {
	var words []string
	for _, c := range Judge(f) {
		words = append(words, c.Code+" "+string(c.Severity))
	}
	return strings.Join(words, ", ")
}

// TestHealthyHosts holds hosts on which nothing is wrong, however little can be seen of them.
func TestHealthyHosts(t *testing.T) {
	for _, tt := range []struct {
		name  string
		tweak tweak
	}{
		{"all well", seen()},
		{"nothing may be read", notSeen},
		{"nobody looked", func(f *facts.Input) { f.Node = &facts.Node{} }},
		{"no PSI", seen(func(n *facts.Node) { n.Pressure = facts.Reading[host.Pressure]{Missing: "no such file or directory"} })},
		{"cgroup version 1", seen(func(n *facts.Node) {
			n.Cgroups = good(host.Cgroups{
				Version: 1, Total: 900, Dying: -1,
				ByController: map[string]int{"memory": 900},
			})
		})},
		{"btrfs has no inodes to count", seen(func(n *facts.Node) {
			n.Spaces.Value[0].Inodes,
				n.Spaces.Value[0].InodesFree = 0, 0
		})},
		{"an image as root", seen(func(n *facts.Node) { n.Spaces.Value[1].Free = 0 })},
		{"a copy of files on an idle node", seen(func(n *facts.Node) {
			n.Pressure.Value.IO = &host.Stall{Some: some(99), Full: some(98)}
			n.Disks.Value[0].WriteAwait = 300 * time.Millisecond
		})},
		{"batch work on all CPUs", seen(func(n *facts.Node) { n.Pressure.Value.CPU.Some = some(99) })},
		{
			"a container that reclaims at its limit",
			seen(func(n *facts.Node) { n.Pressure.Value.Memory.Full = some(12) }),
		},
		{"a laptop that slept", seen(func(n *facts.Node) { n.Clock.Value.Suspended = 90 * time.Hour })},
		{"no NTP client", seen(func(n *facts.Node) { n.Clock.Value.Synchronised = false })},
		{"a clock that was set at boot", func(f *facts.Input) {
			seen()(f)
			said(signs(signature.ClockChanged, 1, 5*time.Minute, 5*time.Minute, "Time has been changed"))(f)
		}},
		{
			"a mount that an unprivileged user may not ask",
			seen(func(n *facts.Node) { n.Mounts.Value.Probed[0].Err = "permission denied" }),
		},
		{"a tmpfs with little left", seen(func(n *facts.Node) {
			n.Spaces.Value[0].Type, n.Spaces.Value[0].Size, n.Spaces.Value[0].Free = "tmpfs", 1<<30, 60<<20
		})},
		{"eviction by space is turned off", seen(func(n *facts.Node) {
			n.Settings.Value.EvictionOff = []string{"imagefs.available", "nodefs.available"}
			n.Spaces.Value[0].Free = 10 << 30
		})},
		{"no kubelet runs that would evict", seen(func(n *facts.Node) {
			n.Settings = facts.Reading[kubelet.Settings]{Skipped: true, Missing: "no kubelet runs here"}
			n.Spaces.Value[0].Free, n.Spaces.Value[0].InodesFree = 12<<30, 4_000_000
		})},
		{"no limits", seen(func(n *facts.Node) {
			n.PIDs.Value.PIDMax, n.PIDs.Value.ThreadsMax = 0, 0
			n.Files.Value.Processes[0].Max, n.Inotify.Value.MaxInstances, n.Inotify.Value.MaxWatches = 0, 0, 0
		})},
		{"another user's inotify", seen(func(n *facts.Node) {
			n.Inotify.Value.Users = append(n.Inotify.Value.Users, host.InotifyUser{UID: 1000, Instances: 128})
		})},
		{"simulated", func(f *facts.Input) {
			*f = *gallery()["../causes/testdata/disk_full"]
			f.Runtime.EndpointSource = "simulated"
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := found(node(tt.tweak)); got != "" {
				t.Errorf("found %s", got)
			}
		})
	}
}

// A side is one side of a threshold, and what is found there.
type side struct {
	name  string
	tweak tweak
	want  string
}

// tryBoth judges each side.
func tryBoth(t *testing.T, sides []side) {
	t.Helper()
	for _, s := range sides {
		t.Run(s.name, func(t *testing.T) {
			if diff := cmp.Diff(s.want, found(node(s.tweak))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestStorageAndMemory tries the thresholds for disks and memory from both sides.
func TestStorageAndMemory(t *testing.T) {
	space := func(free uint64) tweak { return seen(func(n *facts.Node) { n.Spaces.Value[0].Free = free }) }
	inodes := func(free uint64) tweak { return seen(func(n *facts.Node) { n.Spaces.Value[0].InodesFree = free }) }
	evict := func(written string, free uint64) tweak {
		return seen(func(n *facts.Node) {
			n.Settings.Value.EvictionHard = map[string]string{"imagefs.available": written}
			n.Spaces.Value[0].Free = free
		})
	}
	writes := func(d time.Duration) tweak {
		return seen(func(n *facts.Node) { n.Writes.Value[0].Times = times10(d) })
	}
	psi := func(full float64, await time.Duration) tweak {
		return seen(func(n *facts.Node) {
			n.Writes = facts.Reading[[]host.Writes]{Skipped: true}
			n.Pressure.Value.IO.Full, n.Disks.Value[0].WriteAwait = some(full), await
		})
	}
	memory := func(available uint64, full float64) tweak {
		return seen(func(n *facts.Node) {
			n.Memory.Value.Available, n.Pressure.Value.Memory.Full = available,
				some(full)
		})
	}
	const gib = 1 << 30
	large := func(available uint64) tweak {
		return seen(func(n *facts.Node) {
			n.Memory.Value = host.Memory{Total: 1 << 40, Available: available, Free: available}
			n.Pressure.Value.Memory.Full = some(5)
		})
	}
	logs := func(free uint64) tweak {
		return seen(func(n *facts.Node) {
			n.Spaces.Value[0].Folders = disk().Folders[1:]
			n.Spaces.Value = append(n.Spaces.Value, host.Space{
				Folders: disk().Folders[:1], Mount: "/var/log",
				Type: "ext4", Size: 20 * gib, Free: free,
			})
		})
	}
	tryBoth(t, []side{
		{"logs apart from the kubelet, below its 10%", logs(gib + 1), ""},
		{"logs apart from the kubelet, and full", logs(0), "DiskFull critical"},
		{"imagefs at 15%", space(30 * gib), ""},
		{"imagefs below 15%", space(30*gib - 1), "DiskFull warning"},
		{"a gibibyte is left of 200", space(gib), "DiskFull warning"},
		{"less than a gibibyte is left of 200", space(gib - 1), "DiskFull critical"},
		{"threshold of the settings in bytes, at", evict("20Gi", 20*gib), ""},
		{"threshold of the settings in bytes, below", evict("20Gi", 20*gib-1), "DiskFull warning"},
		{"threshold of the settings in percent, at", evict("5%", 10*gib), ""},
		{"threshold of the settings in percent, below", evict("5%", 10*gib-1), "DiskFull warning"},
		{"inodes at 5%", inodes(5_000_000), ""},
		{"inodes below 5%", inodes(4_999_999), "InodesExhausted warning"},
		{"10,000 inodes left", inodes(10_000), "InodesExhausted warning"},
		{"fewer than 10,000 inodes left", inodes(9_999), "InodesExhausted critical"},
		{
			"XFS makes its inodes of space, and has none",
			seen(func(n *facts.Node) {
				n.Spaces.Value[0].Free, n.Spaces.Value[0].InodesFree = 0,
					0
			}), "DiskFull critical",
		},
		{"XFS refuses a write for want of space", seen(func(n *facts.Node) {
			n.Spaces.Value[0].Free, n.Spaces.Value[0].InodesFree = 0, 0
			n.Writes.Value[0] = host.Writes{Folder: disk().Folders[1], Mount: "/var", Err: "no space left on device"}
		}), "DiskFull critical"},
		{"ext4 has neither", seen(func(n *facts.Node) {
			n.Spaces.Value[0].Type, n.Spaces.Value[0].Free, n.Spaces.Value[0].InodesFree = "ext4", 0, 0
		}), "InodesExhausted critical, DiskFull critical"},
		{"writes below 100ms", writes(99 * time.Millisecond), ""},
		{"writes at 100ms", writes(100 * time.Millisecond), "IOStall warning"},
		{"writes below 1 s", writes(999 * time.Millisecond), "IOStall warning"},
		{"writes at 1 s", writes(time.Second), "IOStall critical"},
		{"one write of 1 s", seen(func(n *facts.Node) { n.Writes.Value[0].Times[4] = time.Second }), "IOStall warning"},
		{"one write of less", seen(func(n *facts.Node) { n.Writes.Value[0].Times[4] = 999 * time.Millisecond }), ""},
		{"a write hangs", seen(func(n *facts.Node) {
			n.Writes.Value[0].Hung, n.Writes.Value[0].Waiting = true,
				5*time.Second
		}), "IOStall critical"},
		{"no writes timed, pressure alone", psi(80, 99*time.Millisecond), ""},
		{"no writes timed, a slow disk alone", psi(19, time.Second), ""},
		{"no writes timed, both", psi(20, 100*time.Millisecond), "IOStall warning"},
		{"the disk of somebody else", seen(func(n *facts.Node) {
			n.Writes = facts.Reading[[]host.Writes]{Skipped: true}
			n.Pressure.Value.IO.Full, n.Disks.Value[0].WriteAwait, n.Disks.Value[0].Folders = some(90), time.Second, nil
		}), ""},
		{"memory at the threshold", memory(100<<20, 0), ""},
		{"memory below the threshold", memory(100<<20-1, 0), "MemoryPressure warning"},
		{"low memory, pressure below 5", memory(2*gib, 4.9), ""},
		{"low memory, pressure at 5", memory(2*gib, 5), "MemoryPressure warning"},
		{"low memory, pressure at 20", memory(2*gib, 20), "MemoryPressure critical"},
		{"4 GiB of a large machine, pressure at 5", large(4 * gib), ""},
		{"less than 4 GiB of a large machine, pressure at 5", large(4*gib - 1), "MemoryPressure warning"},
		{"much memory, pressure below 20", memory(20*gib, 19.9), ""},
		{"much memory, pressure at 20", memory(20*gib, 20), "MemoryPressure warning"},
		{"evicting and pressure at 5", memory(90<<20, 5), "MemoryPressure critical"},
	})
}

// TestHostLimits tries those for limits, counts and the clock.
func TestHostLimits(t *testing.T) {
	throttled := func(of uint64) tweak {
		return seen(func(n *facts.Node) {
			n.Cgroups.Value.Throttled = []host.Throttling{{
				Path: "/system.slice", Periods: 100, Throttled: of,
				Over: 10 * time.Second,
			}}
		})
	}
	threads := func(tasks int) tweak {
		return seen(func(n *facts.Node) { n.PIDs.Value.Tasks, n.PIDs.Value.PIDMax = tasks, 10_000 })
	}
	group := func(now uint64, o host.Owner) tweak {
		return seen(func(n *facts.Node) {
			n.PIDs.Value.Cgroups = []host.CgroupUsage{{
				Path: "/x", Usage: host.Usage{Current: now, Max: 1000},
				Owner: o,
			}}
		})
	}
	files := func(open uint64) tweak {
		return seen(func(n *facts.Node) { n.Files.Value.Processes[0].Usage = host.Usage{Current: open, Max: 1000} })
	}
	inotify := func(instances, watches int) tweak {
		return seen(func(n *facts.Node) {
			n.Inotify.Value = host.Inotify{
				MaxInstances: 100, MaxWatches: 1000,
				Users: []host.InotifyUser{{Instances: instances, Watches: watches}},
			}
		})
	}
	cgroups := func(version, total, dying, memory int) tweak {
		return seen(func(n *facts.Node) {
			n.Cgroups.Value = host.Cgroups{
				Version: version, Total: total, Dying: dying,
				ByController: map[string]int{"memory": memory},
			}
		})
	}
	mounts := func(n int) tweak { return seen(func(node *facts.Node) { node.Mounts.Value.Total = n }) }
	jump := func(d time.Duration) tweak { return seen(func(n *facts.Node) { n.Clock.Value.Jumped = d }) }
	tryBoth(t, []side{
		{"throttled below a quarter", throttled(24), ""},
		{"throttled in a quarter", throttled(25), "CPUStarved warning"},
		{"throttled in three quarters", throttled(75), "CPUStarved critical"},
		{"threads below 80%", threads(7_999), ""},
		{"threads at 80%", threads(8_000), "PIDsExhausted warning"},
		{"threads at 90%", threads(9_000), "PIDsExhausted critical"},
		{"a unit at 90%", group(900, host.Owner{Unit: "containerd.service"}), "PIDsExhausted critical"},
		{"a pod at its limit", group(1000, host.Owner{PodUID: "uid-1"}), "PIDsExhausted warning"},
		{"files below 80%", files(799), ""},
		{"files at 80%", files(800), "FilesExhausted warning"},
		{"files at 90%", files(900), "FilesExhausted critical"},
		{"files of the node at 90%", seen(func(n *facts.Node) {
			n.Files.Value.System = host.Usage{
				Current: 90,
				Max:     100,
			}
		}), "FilesExhausted critical"},
		{"inotify below 80%", inotify(79, 799), ""},
		{"instances at 80%", inotify(80, 0), "InotifyExhausted warning"},
		{"instances at 90%", inotify(90, 0), "InotifyExhausted critical"},
		{"watches at 90%", inotify(0, 900), "InotifyExhausted critical"},
		{"instances at 90% of many", seen(func(n *facts.Node) {
			n.Inotify.Value = host.Inotify{
				MaxInstances: 8192, MaxWatches: 1000,
				Users: []host.InotifyUser{{Instances: 7400}},
			}
		}), "InotifyExhausted warning"},
		{"mounts below 10,000", mounts(9_999), ""},
		{"10,000 mounts", mounts(10_000), "MountsExploded warning"},
		{"30,000 mounts", mounts(30_000), "MountsExploded critical"},
		{"cgroups below 10,000", cgroups(2, 9_999, 9_999, 0), ""},
		{"10,000 cgroups", cgroups(2, 10_000, 0, 0), "CgroupsLeaked warning"},
		{"10,000 dying", cgroups(2, 500, 10_000, 0), "CgroupsLeaked warning"},
		{"60,000 cgroups", cgroups(2, 60_000, 0, 0), "CgroupsLeaked critical"},
		{"60,000 of memory in version 1", cgroups(1, 60_000, -1, 60_000), "CgroupsLeaked warning"},
		{"the clock went less than a second", jump(-999 * time.Millisecond), ""},
		{"the clock went back a second", jump(-time.Second), "ClockJumped warning"},
	})
}

// TestDeadMounts holds which answers of which mounts make which cause.
func TestDeadMounts(t *testing.T) {
	mount := func(change func(*host.Mount)) tweak {
		return seen(func(n *facts.Node) { change(&n.Mounts.Value.Probed[0]) })
	}
	for _, tt := range []struct {
		name  string
		tweak tweak
		want  string
		sure  bool
	}{
		{
			"hangs for long", mount(func(m *host.Mount) { m.Hung, m.Waiting = true, 30*time.Second }),
			"FilesystemHung critical", true,
		},
		{
			"hangs for a moment", mount(func(m *host.Mount) { m.Hung, m.Waiting = true, 29*time.Second }),
			"FilesystemHung critical", false,
		},
		{"stale", mount(func(m *host.Mount) { m.Err = "stale file handle" }), "FilesystemHung warning", true},
		{
			"no server of FUSE", mount(func(m *host.Mount) { m.Err = "statfs: transport endpoint is not connected" }),
			"FilesystemHung warning", true,
		},
		{"hangs, and nobody's", mount(func(m *host.Mount) {
			m.Hung, m.Waiting, m.PodUID, m.Driver, m.Point = true, time.Minute, "", "", "/mnt/backup"
		}), "FilesystemHung warning", true},
		{"the runtime's own disk", seen(func(n *facts.Node) {
			n.Spaces.Value[0].Hung,
				n.Spaces.Value[0].Waiting = true, time.Minute
		}), "FilesystemHung critical", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := node(tt.tweak)
			if diff := cmp.Diff(tt.want, found(f)); diff != "" {
				t.Fatal(diff)
			}
			c := Judge(f)[0]
			if (c.Confidence == checks.Certain) != tt.sure {
				t.Errorf("confidence %v", c.Confidence)
			}
			for _, s := range c.NextSteps {
				if strings.Contains(s.Command, "kubelet") && strings.Contains(s.Command, "restart") {
					t.Errorf("a kubelet that is restarted now may not come up: %s", s.Command)
				}
			}
		})
	}
}

// TestQuotedPaths holds that a path of the node becomes part of a command only when no shell reads more out of it.
func TestQuotedPaths(t *testing.T) {
	for _, point := range []string{
		"/mnt/a b", "/mnt/$(reboot)", "/mnt/`x`", "/mnt/a;b", "/mnt/'x'", "/mnt/\n", "-f",
		"mnt",
	} {
		f := node(seen(func(n *facts.Node) {
			n.Mounts.Value.Probed[0].Hung, n.Mounts.Value.Probed[0].Point = true, point
			n.Spaces.Value[0].Free, n.Spaces.Value[0].Mount = 0, point
			n.Spaces.Value[0].Folders = []host.Folder{{Path: point, Role: host.FolderRuntime}}
		}))
		for _, c := range Judge(f) {
			for _, s := range c.NextSteps {
				if len(point) > 3 && strings.Contains(s.Command, point) {
					t.Errorf("%s: %q", c.Code, s.Command)
				}
			}
		}
	}
}

// TestRootsOnTheHost holds which cause of the host stands before which of the runtime.
func TestRootsOnTheHost(t *testing.T) {
	all := sickHosts()
	for _, tt := range []struct{ picture, consequence, root string }{
		{"io-stall", causes.RuntimeSlow, causes.IOStall},
		{"memory-pressure", causes.RuntimeSlow, causes.MemoryPressure},
		{"cpu-throttled", causes.RuntimeSlow, causes.CPUStarved},
		{"filesystem-hung", causes.TaskStuck, causes.FilesystemHung},
		{"filesystem-hung", causes.InspectHang, causes.TaskStuck},
	} {
		named := Judge(all[tt.picture])
		i := index(named, tt.consequence)
		if i < 0 || named[i].CausedBy != tt.root {
			t.Errorf("%s: %q", tt.picture, codes(named))
		}
	}
}

// TestLookIsNeverOK holds that a look which failed is unknown or skipped, whatever its value says.
func TestLookIsNeverOK(t *testing.T) {
	for name, change := range map[string]func(*facts.Node){
		"failed":  func(n *facts.Node) { n.Memory.OK, n.Memory.Missing = false, "permission denied" },
		"hung":    func(n *facts.Node) { n.Memory.OK, n.Memory.Hung = false, true },
		"nothing": func(n *facts.Node) { n.Memory = facts.Reading[host.Memory]{} },
	} {
		if r := lineOf(node(seen(change)), "host.memory"); r.Status != checks.StatusUnknown || r.Summary == "" {
			t.Errorf("%s: %s %q", name, r.Status, r.Summary)
		}
	}
	if r := lineOf(node(seen(func(n *facts.Node) { n.Memory.OK, n.Memory.Value.Available = false, 1 })),
		"host.memory"); r.Status != checks.StatusWarning {
		t.Errorf("trouble in a part is trouble: %s %q", r.Status, r.Summary)
	}
	if r := lineOf(node(seen(func(n *facts.Node) { n.Memory.Skipped = true })),
		"host.memory"); r.Status != checks.StatusSkipped {
		t.Errorf("%s %q", r.Status, r.Summary)
	}
}

func TestAmount(t *testing.T) {
	for _, tt := range []struct {
		written string
		want    uint64
	}{
		{"10%", 100},
		{"0%", 0},
		{"100Mi", 100 << 20},
		{"1.5Gi", 3 << 29},
		{"500M", 500_000_000},
		{"12k", 12_000},
		{"2048", 2048},
		{" 5% ", 0},
		{"", 0},
		{"x", 0},
		{"-5%", 0},
		{"NaN", 0},
		{"Inf", 0},
		{"1e300", 0},
		{"%", 0},
		{"5Zi", 0},
	} {
		if got := facts.Amount(tt.written, 1000); got != tt.want {
			t.Errorf("%q: %d, want %d", tt.written, got, tt.want)
		}
	}
}

func FuzzAmount(f *testing.F) {
	f.Add("10%", uint64(1000))
	f.Add("1.5Gi", uint64(math.MaxUint64))
	f.Fuzz(func(_ *testing.T, written string, total uint64) { _ = facts.Amount(written, total) })
}

// FuzzJudgeNode judges hosts of random figures: no panic, the same answer twice, no control character.
func FuzzJudgeNode(f *testing.F) {
	for seed := range uint64(32) {
		f.Add(seed, hostile)
	}
	f.Add(uint64(99), "no space left on device")
	f.Fuzz(func(t *testing.T, seed uint64, text string) {
		r := rand.New(rand.NewPCG(seed, seed))
		in := randomFacts(r, text)
		n := &facts.Node{}
		randomise(r, reflect.ValueOf(n).Elem(), text, 0)
		n.Settings.Value.EvictionHard = map[string]string{"imagefs.available": text, "memory.available": text}
		in.Node = n
		named := Judge(in)
		if diff := cmp.Diff(named, Judge(in)); diff != "" {
			t.Fatal(diff)
		}
		for _, c := range named {
			if c.Confidence <= 0 || c.Confidence > 1 || len(c.Evidence.For) == 0 || len(c.NextSteps) == 0 ||
				c.Subject == nil {
				t.Errorf("%s: %+v", c.Code, c)
			}
		}
		encode(t, NewReport(checks.Header{}, in))
	})
}

// randomise fills a value with whatever its types allow.
func randomise(r *rand.Rand, v reflect.Value, text string, depth int) {
	if depth > 8 || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.String:
		words := []string{
			text, "", "runtime", "kubelet", "stale file handle", "uid-1", "nfs4", "containerd.service",
			"/var",
		}
		v.SetString(words[r.IntN(len(words))])
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt([]int64{0, 1, -1, 70_000, 5e9, math.MaxInt64, math.MinInt64}[r.IntN(7)])
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint([]uint64{0, 1, 100, 70_000, math.MaxUint64}[r.IntN(5)])
	case reflect.Float32, reflect.Float64:
		v.SetFloat([]float64{0, 1, 99, -3, math.NaN(), math.Inf(1)}[r.IntN(6)])
	case reflect.Pointer:
		if r.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			randomise(r, v.Elem(), text, depth+1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(4), 4))
		for i := range v.Len() {
			randomise(r, v.Index(i), text, depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			randomise(r, v.Field(i), text, depth+1)
		}
	}
}

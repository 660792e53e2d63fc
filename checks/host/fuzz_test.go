package host

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/procfs/blockdevice"
)

// FuzzText has one text in the place of all that the kernel, systemd and processes write.
func FuzzText(f *testing.F) {
	for _, file := range []string{"limits", "stack", "fdinfo-inotify", "mountinfo-hybrid", "node/mountinfo-kubelet"} {
		for line := range strings.Lines(fixture(f, file)) { // short ones, which are quick to minimise
			f.Add(line)
		}
	}
	for _, seed := range []string{
		"50000 100000\n", "max 100000\n", "/kubepods.slice/kubepods-pod1.slice/crio-" + idA + ".scope",
		"/system.slice/kubelet.service (deleted)", "11.84 10.70 5.62 8/135 28837\n", "2476\t0\t9223372036854775807\n",
		"some avg10=0.22 avg60=0.17 avg300=1.11 total=58761459\nfull avg10=0.00 avg60=0.13 avg300=0.96 total=1\n",
		`{"annotations":{"io.kubernetes.cri.container-type":"sandbox"}}`, "[]", "\xff\x1b", strings.Repeat("ä", 500),
		statLine(stat{pid: 9, ppid: 8, comm: "x) R 1 (y", state: 'T'}), "1 () Z 0", "conmon\x00-c",
		"containerd-shim\x00-namespace\x00k8s.io\x00-id\x00" + idA + "\x00", "3\x00\x00", "runc\x00kill\x00" + idA,
		"[proxy_plugins.a]\naddress = \"/run/a.sock\"\nimports = ['x', \"y\"]\nsnapshotter = \"a\"",
		"fanotify mnt_id:1c mflags:0 mask:10000 ignored_mask:0\n",
		"1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16", "1 2 3 4 5 6 7 8 1 2 4294967295 4 5 6 4294967295 0",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		check := func(what string, ok bool) {
			if !ok {
				t.Errorf("of %q: %s", text, what)
			}
		}
		check("cores", cores(text) >= 0)
		n, err := parseLoadTasks(text)
		check("tasks", n >= 0 && (err == nil || n == 0))
		soft, hard, err := parseFileLimits(text)
		check("limits of files", err == nil || soft|hard == 0)
		nr, err := parseFileNr(text)
		check("open files", err == nil || nr == Usage{})
		s, err := parseStall(text)
		check("pressure", err != nil || s.Full.Avg10 >= 0 && s.Full.Avg10 <= 100)
		o, ok := parseBundle(idA, text)
		check("the kind of a bundle", !ok || o.Kind == KindPodSandbox || o.Kind == KindContainer)
		check("functions of a stack", !slices.ContainsFunc(parseStack(text), func(name string) bool {
			return !symbol.MatchString(name)
		}))
		check("a listener", !asksPermission(text) || strings.Contains(text, "fanotify"))
		group := OwnerOfCgroup(text)
		check("a container", group.ObjectID == "" || isID(group.ObjectID))
		check("a unit", group.Unit == "" || isUnit(group.Unit))
		table := mountsIn(text)
		for _, m := range table.lines {
			check("a mount", path.IsAbs(m.point) && m.kind != "")
			volumeOf(m.point, "/var/lib/kubelet")
		}
		for _, h := range table.hierarchies("") {
			_, err := h.folder("/../x")
			check("a folder outside", err != nil)
		}
		if st, err := parseStat(text); err == nil {
			check("a parent", st.ppid >= 0)
			processes := Population{all: map[int]stat{st.pid: st}}
			processes.processGroups(nil)
			processes.byWorth()
		}
		argv := strings.Split(text, "\x00")
		for _, parent := range []Role{"", RoleRuntime, RoleShim, RoleOCI, RoleCNI} {
			role, id := testNames.identify(argv[0], argv, parent)
			check("an id", id == "" || plausibleID(id) && strings.Contains(text, id))
			check("a role with an id", id == "" || role == RoleShim || role == RoleOCI)
		}
		for _, p := range parseProxies(text) {
			check("a proxy plugin", p.Name != "" && path.IsAbs(p.Path))
		}
		u := newUnit("x.service", map[string]any{
			"LoadState": 7, "ActiveState": text, "StateChangeTimestamp": uint64(math.MaxUint64), "NRestarts": text,
		})
		check("a unit's state", u.Load == "" && len(u.Active) <= 128 && utf8.ValidString(u.Active) && u.Since.IsZero())
		fuzzDisks(t, text)
	})
}

// fuzzDisks takes the numbers of a text for the counters of a disk, in one read and then in the next.
func fuzzDisks(t *testing.T, text string) {
	var before, after blockdevice.Diskstats
	numbers := strings.NewReader(text)
	for _, d := range []*blockdevice.Diskstats{&before, &after} {
		_, _ = fmt.Fscan(numbers, &d.ReadIOs, &d.ReadSectors, &d.ReadTicks, &d.WriteIOs, &d.WriteSectors, &d.WriteTicks,
			&d.IOsInProgress, &d.IOsTotalTicks)
	}
	d, _ := diskBetween(before, after, time.Second)
	if d.WriteBytesPerSecond < 0 || d.WriteAwait < 0 || d.InFlight < 0 || !(d.Utilisation >= 0 && d.Utilisation <= 1) {
		t.Errorf("of %q: %+v", text, d)
	}
}

package causes

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// FilesystemHung is the code of this cause.
const FilesystemHung = "FilesystemHung"

var filesystemHung = Definition{
	Code:   FilesystemHung,
	Claims: []string{"host.mounts"},
	Roots: []Root{
		{Code: IOStall, When: diskStands},
	},
	Recognise: recogniseFilesystemHung,
	FromLog:   loggedFilesystemHung,
}

// hurts reports whether a mount is one that the kubelet or the runtime uses, so that it hangs with it.
func hurts(f *facts.Facts, m host.Mount) bool {
	return m.PodUID != "" || m.Driver != "" || !m.Network || strings.Contains(m.Point, "/kubelet/")
}

func recogniseFilesystemHung(f *facts.Facts) *Finding {
	mounts := f.Disk.SilentMounts
	if len(mounts) == 0 {
		return nil
	}
	main := mounts[0]
	var e checks.Evidence
	severity, step := checks.Warning, checks.Strong
	for _, m := range mounts[:min(len(mounts), facts.MaxRelated)] {
		Addf(&e.For, "%s", mountLine(f, m))
		if m.Hung && hurts(f, m) {
			severity = checks.Critical
		}
	}
	if more := len(mounts) - facts.MaxRelated; more > 0 {
		Addf(&e.For, "and %s", units.Count(more, "other mount"))
	}
	witness := logEvidence(f, &e, signature.NFSNotResponding)
	if facts.Logged(f, signature.NFSRecovered) != nil && witness {
		if last, bad := facts.LastOf(f, signature.NFSRecovered), facts.LastOf(f,
			signature.NFSNotResponding); last != nil && bad != nil && last.After(*bad) {
			Addf(&e.Against, "the kernel's log says that a server answered again at %s", facts.ClockText(f, *last))
		}
	}
	for _, t := range f.Seen.Tasks.Value.Blocked {
		if w := facts.WaitOf(t); (w == facts.WaitNetworkFS || w == facts.WaitFUSE) && len(e.For) < facts.MaxRelated {
			witness = true
			Addf(&e.For, "%s (pid %d)%s waits for %s in %s", facts.Clean(t.Name), t.PID,
				facts.OwnerSuffix(f, t.Owner), w, cmp.Or(facts.WaitsIn(t), "the kernel"))
		}
	}
	if !main.Hung || witness || main.Waiting >= f.Limits.Node.MountWaiting {
		step = checks.Certain
	} else {
		Addf(&e.Missing, "whether it answers later: it was given %s", units.Duration(main.Waiting))
	}
	missing(f.Seen.Mounts, &e, "the other mounts")
	if left := f.Seen.Mounts.Value.Left; left > 0 {
		Addf(&e.Missing, "%s not asked", units.Plural(left, "1 further mount was",
			units.Number(left)+" further mounts were"))
	}
	c := newFinding(severity, step, mountSummary(f, mounts), e)
	for _, m := range mounts[:min(len(mounts), facts.MaxRelated+1)] {
		c.Related = append(c.Related, mountSubject(f, m))
	}
	c.Subject, c.Related = &c.Related[0], c.Related[1:]
	c.Advise = func(string) []checks.NextStep { return stepsWhenMountHung(f, mounts) }
	return c
}

// mountName says where a mount is and what is behind it: /mnt/data (nfs4 from filer:/export).
func mountName(m host.Mount) string {
	from := ""
	if m.Source != "" && m.Source != "none" && m.Source != m.Type {
		from = " from " + facts.Clean(m.Source)
	}
	return fmt.Sprintf("%s (%s%s)", facts.Clean(m.Point), facts.Clean(cmp.Or(m.Type, "unknown type")), from)
}

// mountLine says what became of asking a mount, and whose it is.
func mountLine(f *facts.Facts, m host.Mount) string {
	line := mountName(m)
	if m.Hung {
		line += " has not answered for " + units.Duration(m.Waiting)
	} else {
		line += " answers: " + facts.Clean(m.Err)
	}
	if m.PodUID != "" {
		line += "; volume " + cmp.Or(facts.Clean(m.Volume), "of unknown name") + " of " + facts.PodLabel(f, m.PodUID)
	}
	if m.Driver != "" {
		line += ", driver " + facts.Clean(m.Driver)
	}
	return line
}

func mountSummary(f *facts.Facts, mounts []host.Mount) string {
	main := mounts[0]
	line := "the mount " + mountName(main)
	if main.PodUID != "" {
		line += " of " + facts.PodLabel(f, main.PodUID)
	}
	if main.Hung {
		line += " has not answered for " + units.Duration(main.Waiting)
	} else {
		line += " answers: " + facts.Clean(main.Err)
	}
	if more := len(mounts) - 1; more > 0 {
		line += ", like " + units.Count(more, "other mount")
	}
	return line
}

func mountSubject(f *facts.Facts, m host.Mount) checks.Subject {
	return facts.InPod(f, checks.Subject{Kind: "Filesystem", ID: facts.Clean(m.Source), Name: facts.Clean(m.Point)},
		m.PodUID)
}

// serverOf is the server in the source of a network mount, safe to paste; empty when there is none.
func serverOf(m host.Mount) string {
	source := strings.TrimPrefix(m.Source, "//")
	name, _, ok := strings.Cut(source, ":/")
	if !ok {
		name, _, ok = strings.Cut(source, "/")
	}
	if !ok || !m.Network || !facts.Safe(name) {
		return ""
	}
	return name
}

func stepsWhenMountHung(f *facts.Facts, mounts []host.Mount) []checks.NextStep {
	var s Steps
	s.Add(checks.TouchesNothing,
		"journalctl --no-pager -k --since -1h | grep -iE 'not responding|server .* OK|timed out|fuse|ceph|cifs'", "Since when, and which server? Do not restart the kubelet while this lasts: it may never come up (kubernetes/kubernetes#122318).")
	s.Add(checks.TouchesNothing, "ps -eo pid,stat,wchan:32,etime,comm | awk '$2 ~ /^D/'",
		"Who waits in it? No signal but KILL reaches them, and that only in some file systems.")
	for _, m := range mounts[:min(len(mounts), 3)] {
		if server := serverOf(m); server != "" {
			s.Add(checks.TouchesNothing, "ping -c 3 -W 2 "+server,
				"Can the server be reached? Bringing it back frees everything and loses nothing.")
		}
		if !facts.SafePath.MatchString(m.Point) {
			continue
		}
		s.Add(checks.TouchesNothing, "stat -f "+m.Point+" & sleep 5; jobs",
			"Still running after five seconds, it hangs. It waits in the background: nothing may end it. Enter no "+
				"path below it in a shell.")
		if m.Network {
			s.Add(checks.TouchesPod, "umount -f "+m.Point,
				"Fails what waits on "+facts.Clean(m.Point)+" with an error. Only when the server does not come "+
					"back: unwritten data of the volume is lost.")
			s.Add(checks.TouchesPod, "umount -l "+m.Point,
				"Hides the mount from whoever comes next, where -f was not enough. What waits already goes on waiting.")
		}
		addDeletePodByUID(f, &s, m.PodUID, "The pod of the mount. It ends only after the mount answers or is gone.")
	}
	if !mounts[0].Hung {
		return s.Done()
	}
	addNode(&s, "The last resort, for tasks that wait in the kernel for good. A clean shutdown may hang in the "+
		"same mount.")
	return s.Done()
}

func loggedFilesystemHung(in *Incident) *LogFinding {
	lost, back := in.records(signature.NFSNotResponding), in.records(signature.NFSRecovered)
	if lost == nil {
		return nil
	}
	f := in.finding(hostTier, 0.8, "A network file server did not answer: whatever touched its mounts waited.",
		signature.NFSNotResponding, signature.MountFailed)
	if back == nil || back.last.Before(lost.last) {
		return f
	}
	again := "it answered again" + in.when(back)
	if in.RecoveredAt != nil && back.last.Sub(*in.RecoveredAt).Abs() <= callDeadline {
		return f.raise(0, again+", and so did PLEG")
	}
	return f.limit(lateConfidence, again)
}

package causes

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/internal/lazyregexp"
	"github.com/kdiag/kdiag/journal/signature"
)

// FilesystemHung is the code of this cause.
const FilesystemHung = "FilesystemHung"

// hurts reports whether the kubelet or the runtime that was asked uses a mount, so that it hangs with it: it is a pod's
// or a driver's, or lies in their folders. One of another runtime, or of a container of docker's, does not count.
func hurts(f *facts.Facts, m host.Mount) bool {
	if m.PID != 0 {
		return m.Inside.Role == host.RoleKubelet || m.PID == f.Target.Daemon.PID
	}
	if m.PodUID != "" || m.Driver != "" || !m.Network {
		return true
	}
	const tasks = "/io.containerd.runtime.v2.task/"
	if strings.Contains(m.Point, tasks) && !strings.Contains(m.Point, tasks+"k8s.io/") {
		return false
	}
	return slices.ContainsFunc(f.Seen.Folders.Value, func(o host.Folder) bool {
		return o.Role != host.FolderRoot && (m.Point == o.Path || strings.HasPrefix(m.Point, o.Path+"/"))
	})
}

func recogniseFilesystemHung(f *facts.Facts) *Finding {
	mounts := f.Disk.SilentMounts
	if len(mounts) == 0 {
		return nil
	}
	main := mounts[0]
	var e checks.Evidence
	var subjects []checks.Subject
	critical := false
	for _, m := range mounts[:min(len(mounts), facts.MaxRelated)] {
		e.For = append(e.For, MountLine(f, m))
		critical = critical || m.Hung && hurts(f, m)
		subjects = append(subjects, facts.InPod(f, checks.Subject{Kind: "Filesystem", ID: m.Source, Name: m.Point},
			m.PodUID))
	}
	summary := "the mount " + e.For[0] + andMore(len(mounts)-1, "mount")
	confirmed := logEvidence(f, &e, signature.NFSNotResponding)
	confirmed = addTasks(f, &e, func(t host.BlockedTask) bool {
		return facts.WaitOf(t) == facts.WaitNetworkFS || facts.WaitOf(t) == facts.WaitFUSE
	}) || confirmed
	step := checks.Certain
	if main.Hung && !confirmed && main.Waiting < f.Limits.Node.MountWaiting {
		step = checks.Strong
		Addf(&e.Missing, "whether it answers later: it was given %s", units.Duration(main.Waiting))
	}
	return newFinding(criticalIf(critical), step, summary, e, subjects...).advise(func(s *Steps, _ string) {
		s.Look("journalctl --no-pager -k --since -1h | grep -iE 'not responding|server .* OK|timed out|fuse|ceph|cifs'",
			"Find the server, and since when it is silent. Do not restart the kubelet meanwhile: it may never come up.")
		s.lookBlocked()
		for _, m := range top(mounts) {
			if server := serverOf(m); server != "" {
				s.Look("ping -c 3 -W 2 "+server, "Check if the server is up; once it answers, everything goes on.")
			}
			if !facts.SafePath.MatchString(m.Point) {
				continue
			}
			point := ifElse(m.PID > 0, textf("/proc/%d/root", m.PID), "") + m.Point
			s.Look("stat -f "+point+" & sleep 5; jobs", "Check if the mount still hangs: then the command still runs. "+
				"Enter no path below it in a shell.")
			if m.Network && m.PID == 0 {
				s.Add(checks.TouchesMount, "umount -f "+m.Point, "Only if the server is gone: unwritten data is lost. "+
					"Waiting processes get an error, even if umount reports busy.")
				s.Add(checks.TouchesMount, "umount -l "+m.Point, "Removes the mount, after -f, if that reported busy.")
			}
			addDeletePod(f, s, podOf(f, m.PodUID), "The pod of the mount; it ends only after the mount answers.")
		}
		s.addNodeIf(critical && mounts[0].Hung,
			"For tasks that wait for good. A clean shutdown may hang in the same mount.")
	})
}

// MountLine describes a mount and its reply.
func MountLine(f *facts.Facts, m host.Mount) string {
	line := textf("%s (%s", facts.Clean(m.Point), facts.Clean(cmp.Or(m.Type, "unknown type")))
	if m.Source != "" && m.Source != "none" && m.Source != m.Type {
		line += " from " + facts.Clean(m.Source)
	}
	line += after(", driver ", facts.Clean(m.Driver)) + ")"
	switch {
	case m.PID != 0:
		line += " in the mount namespace of " + cmp.Or(facts.OwnerLabel(f, m.Inside), textf("process %d", m.PID))
	case m.PodUID != "":
		line += " of " + facts.OwnerLabel(f, host.Owner{PodUID: m.PodUID})
	}
	switch {
	case m.Hung:
		return line + " hangs: no reply in " + units.Duration(m.Waiting)
	case m.Err == "" && m.Slow():
		return line + " is slow: it answered in " + units.Duration(m.Waiting)
	}
	return line + " answers: " + facts.Clean(m.Err)
}

// serverOf is the server in the source of a network mount, safe to paste; empty when there is none.
func serverOf(m host.Mount) string {
	if name := serverInSource.FindStringSubmatch(m.Source); m.Network && name != nil {
		return name[1]
	}
	return ""
}

// serverInSource matches server:/export and //server/share.
var serverInSource = lazyregexp.New(`^(?://)?([A-Za-z0-9][A-Za-z0-9._-]*):?/`)

func loggedFilesystemHung(in *Incident) *Finding {
	lost, back := in.each(signature.NFSNotResponding), in.each(signature.NFSRecovered)
	if len(lost) == 0 {
		return nil
	}
	f := in.early(checks.Strong, "A network file server did not answer: whatever touched its mounts waited.",
		signature.NFSNotResponding, signature.MountFailed)
	if len(back) == 0 || last(back).Before(last(lost)) {
		return f
	}
	again := "it answered again" + in.when(signature.NFSRecovered)
	if in.RecoveredAt == nil || last(back).Sub(*in.RecoveredAt).Abs() > callDeadline {
		return f.unlikely(again)
	}
	return f.supports(again + ", and so did PLEG")
}

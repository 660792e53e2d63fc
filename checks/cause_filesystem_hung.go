package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

func filesystemHung() Definition {
	return Definition{
		Code:  codeFilesystemHung,
		Title: "a mount does not answer",
		Means: "A file server, a FUSE process or a disk behind a mount is gone, and the kernel waits for it, without end for NFS with hard mounts. Whoever touches the mount sleeps uninterruptibly: shims that unmount it, runc that makes it, the " +
			"kubelet's statistics and its volume manager. A kill reaches some of them, a SIGTERM none. The status of their containers hangs with them: InspectHang, ListHang, then PLEG. Load average grows while the CPUs idle.\n\n" +
			"A mount that answers with an error (stale file handle, transport endpoint is not connected) hangs nobody, but its pods neither work nor end.\n\n" +
			"Do not restart the kubelet first. At its start it asks every mount for its size (cAdvisor's getGlobalFsInfo) and hangs there for good: a node that flapped is then down (kubernetes/kubernetes#122318, #122491).",
		Confirm: []string{
			"stat -f PATH & sleep 5; jobs: still running after five seconds, it hangs. In the background, since not even KILL ends some waits. Use no shell completion and no cd below it: they hang as well.",
			"journalctl -k | grep -E 'not responding|timed out': does the kernel name the server, and did it say OK since?",
			"ps -eo pid,stat,wchan:32,comm | grep ' D': nfs, rpc_wait_bit_killable, fuse, ceph, cifs in wchan.",
			"Can the server be reached: ping, rpcinfo -t SERVER nfs, or the CSI driver's pod on this node.",
		},
		Fix: []string{
			"Bring the server back, or the FUSE process or CSI node pod that serves the mount: all who wait go on, and nothing is lost.",
			"The server is gone for good: umount -f fails what waits with an error (NFS, CIFS), umount -l hides the mount from who comes next. Unwritten data of that volume is lost.",
			"Delete the pods that use it; they end once the mount is gone. Move their volume.",
			"Tasks that still wait in the kernel need a reboot. Cordon and drain first; a clean shutdown may hang in the same mount.",
			"The kubelet last, and only when no mount hangs.",
		},
		Mistaken: "IOStall: there everything on a local disk is slow and comes back. RuntimeHung: a restart of the runtime helps for a minute at most, until it touches the mount again. KernelHung tells of the same tasks and not of the mount.",
		Sources: []string{
			"kubernetes/kubernetes#122318, #122491 (a kubelet that never comes up), #90593, #31272, #72048, #74135 (dead NFS)",
			"containerd/containerd#13867 (stat of a CSI mount), kubernetes-csi/csi-driver-smb#419 (stale handles)",
			"aws/eks-node-monitoring-agent#219 (a monitoring agent that hung in df for days)",
			"umount(2): MNT_FORCE, MNT_DETACH; nfs(5): hard and soft mounts",
		},
		RootOf: []string{
			codeRuntimeHung, codeRuntimeSlow, codeListHang, codeInspectHang, codeImageServiceHung, codePLEGUnhealthy, codeTaskStuck, codeShimStuck,
			codeKubeletDown, codeKubeletStalled, codeKernelHung,
		},
		recognise: recogniseFilesystemHung,
	}
}

// filesystemHungExplains reports whether a dead mount is why. One that answers with an error hangs nobody. One that no pod uses, as a
// home folder over NFS, holds up the kubelet, which asks every mount for its size, and tasks of its users; not the runtime.
func filesystemHungExplains(f *Facts, consequence string) bool {
	if u := f.kubeletUnitSeen(); consequence == codeKubeletDown && u != nil && u.Result != "timeout" {
		return false // it ended: one that a mount holds cannot, until systemd gives up
	}
	anybodys := slices.Contains([]string{codeKubeletDown, codeKubeletStalled, codeKernelHung, codeTaskStuck}, consequence)
	return slices.ContainsFunc(f.silentMounts(), func(m host.Mount) bool { return m.Hung && (anybodys || f.hurts(m)) })
}

// isDead reports whether a mount's answer was that nobody is behind it.
func isDead(m host.Mount) bool {
	return m.Hung || says(m.Err, "stale file handle", "stale nfs file handle", "transport endpoint is not connected", "host is down", "input/output error")
}

// deadMounts returns the mounts that the node depends on others for, and that do not answer or say that nobody is there: those of pods
// first, silent ones before broken ones.
func (f *Facts) deadMounts() []host.Mount {
	var out []host.Mount
	for _, m := range f.seen().Mounts.Value.Probed {
		if isDead(m) {
			out = append(out, m)
		}
	}
	slices.SortStableFunc(out, func(a, b host.Mount) int { return cmp.Compare(rankOfMount(b), rankOfMount(a)) })
	return out
}

func rankOfMount(m host.Mount) int {
	rank := 0
	if m.Hung {
		rank += 2
	}
	if m.PodUID != "" {
		rank++
	}
	return rank
}

// silentMounts returns the dead mounts and the folders of the node's own whose file system did not answer.
func (f *Facts) silentMounts() []host.Mount {
	out := f.deadMounts()
	for _, s := range f.seen().Spaces.Value {
		if s.Hung && !slices.ContainsFunc(out, func(m host.Mount) bool { return m.Point == s.Mount }) {
			point := s.Mount
			if point == "" && len(s.Folders) > 0 {
				point = byRole(s.Folders)[0].Path
			}
			out = append(out, host.Mount{Point: point, Type: s.Type, Source: s.Source, Asked: true, Hung: true, Waiting: s.Waiting})
		}
	}
	return out
}

// hurts reports whether a mount is one that the kubelet or the runtime uses, so that it hangs with it.
func (f *Facts) hurts(m host.Mount) bool {
	return m.PodUID != "" || m.Driver != "" || !m.Network || strings.Contains(m.Point, "/kubelet/")
}

func recogniseFilesystemHung(f *Facts) *Cause {
	mounts := f.silentMounts()
	if len(mounts) == 0 {
		return nil
	}
	main := mounts[0]
	var e Evidence
	severity, step := Warning, Strong
	for _, m := range mounts[:min(len(mounts), maxRelated)] {
		addf(&e.For, "%s", f.mountLine(m))
		if m.Hung && f.hurts(m) {
			severity = Critical
		}
	}
	if more := len(mounts) - maxRelated; more > 0 {
		addf(&e.For, "and %s", units.Count(more, "other mount"))
	}
	witness := f.heard(&e, signature.NFSNotResponding)
	if f.logged(signature.NFSRecovered) != nil && witness {
		if last, bad := f.lastOf(signature.NFSRecovered), f.lastOf(signature.NFSNotResponding); last != nil && bad != nil && last.After(*bad) {
			addf(&e.Against, "the kernel's log says that a server answered again at %s", f.clock(*last))
		}
	}
	for _, t := range f.seen().Tasks.Value.Blocked {
		if w := waitOf(t); (w == waitNetworkFS || w == waitFUSE) && len(e.For) < maxRelated {
			witness = true
			addf(&e.For, "%s (pid %d)%s waits for %s in %s", clean(t.Name), t.PID, f.of(t.Owner), w, or(where(t), "the kernel"))
		}
	}
	if !main.Hung || witness || main.Waiting >= f.nodeLimits().MountWaiting {
		step = Certain
	} else {
		addf(&e.Missing, "whether it answers later: it was given %s", units.Duration(main.Waiting))
	}
	f.seen().Mounts.missing(&e, "the other mounts")
	if left := f.seen().Mounts.Value.Left; left > 0 {
		addf(&e.Missing, "%s not asked", verb(left, "1 further mount was", units.Number(left)+" further mounts were"))
	}
	c := newCause(codeFilesystemHung, severity, step, f.mountSummary(mounts), e)
	for _, m := range mounts[:min(len(mounts), maxRelated+1)] {
		c.Related = append(c.Related, f.mountSubject(m))
	}
	c.Subject, c.Related = &c.Related[0], c.Related[1:]
	c.NextSteps = f.stepsWhenMountHung(mounts)
	return c
}

// mountName says where a mount is and what is behind it: /mnt/data (nfs4 from filer:/export).
func mountName(m host.Mount) string {
	from := ""
	if m.Source != "" && m.Source != "none" && m.Source != m.Type {
		from = " from " + clean(m.Source)
	}
	return fmt.Sprintf("%s (%s%s)", clean(m.Point), clean(or(m.Type, "unknown type")), from)
}

// mountLine says what became of asking a mount, and whose it is.
func (f *Facts) mountLine(m host.Mount) string {
	line := mountName(m)
	if m.Hung {
		line += " has not answered for " + units.Duration(m.Waiting)
	} else {
		line += " answers: " + clean(m.Err)
	}
	if m.PodUID != "" {
		line += "; volume " + or(clean(m.Volume), "of unknown name") + " of " + f.podLabel(m.PodUID)
	}
	if m.Driver != "" {
		line += ", driver " + clean(m.Driver)
	}
	return line
}

func (f *Facts) mountSummary(mounts []host.Mount) string {
	main := mounts[0]
	line := "the mount " + mountName(main)
	if main.PodUID != "" {
		line += " of " + f.podLabel(main.PodUID)
	}
	if main.Hung {
		line += " has not answered for " + units.Duration(main.Waiting)
	} else {
		line += " answers: " + clean(main.Err)
	}
	if more := len(mounts) - 1; more > 0 {
		line += ", like " + units.Count(more, "other mount")
	}
	return line
}

func (f *Facts) mountSubject(m host.Mount) Subject {
	return f.inPod(Subject{Kind: "Filesystem", ID: clean(m.Source), Name: clean(m.Point)}, m.PodUID)
}

// serverOf is the server in the source of a network mount, safe to paste; empty when there is none.
func serverOf(m host.Mount) string {
	source := strings.TrimPrefix(m.Source, "//")
	name, _, ok := strings.Cut(source, ":/")
	if !ok {
		name, _, ok = strings.Cut(source, "/")
	}
	if !ok || !m.Network || !safe(name) {
		return ""
	}
	return name
}

func (f *Facts) stepsWhenMountHung(mounts []host.Mount) []NextStep {
	var s steps
	s.add(TouchesNothing, "journalctl --no-pager -k --since -1h | grep -iE 'not responding|server .* OK|timed out|fuse|ceph|cifs'", "Since when, and which server? Do not restart the kubelet while this lasts: it may never come up (kubernetes/kubernetes#122318).")
	s.add(TouchesNothing, "ps -eo pid,stat,wchan:32,etime,comm | awk '$2 ~ /^D/'", "Who waits in it? No signal but KILL reaches them, and that only in some file systems.")
	for _, m := range mounts[:min(len(mounts), 3)] {
		if server := serverOf(m); server != "" {
			s.add(TouchesNothing, "ping -c 3 -W 2 "+server, "Can the server be reached? Bringing it back frees everything and loses nothing.")
		}
		if !safePath.MatchString(m.Point) {
			continue
		}
		s.add(TouchesNothing, "stat -f "+m.Point+" & sleep 5; jobs", "Still running after five seconds, it hangs. It waits in the background: nothing may end it. Enter no path below it in a shell.")
		if m.Network {
			s.add(TouchesPod, "umount -f "+m.Point, "Fails what waits on "+clean(m.Point)+" with an error. Only when the server does not come back: unwritten data of the volume is lost.")
			s.add(TouchesPod, "umount -l "+m.Point, "Hides the mount from whoever comes next, where -f was not enough. What waits already goes on waiting.")
		}
		f.addDeletePodByUID(&s, m.PodUID, "The pod of the mount. It ends only after the mount answers or is gone.")
	}
	if !mounts[0].Hung {
		return s.done()
	}
	addNode(&s, "The last resort, for tasks that wait in the kernel for good. A clean shutdown may hang in the same mount.")
	return s.done()
}

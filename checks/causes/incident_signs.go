package causes

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// hostFinding is a finding of the host by records that speak for themselves; nil without one.
func (in *Incident) hostFinding(code string, confidence float64, summary string, codes ...string) *LogFinding {
	if in.count(codes...) == 0 {
		return nil
	}
	f := newLogFinding(code, hostTier, confidence, summary).addFor(in.found(codes...)...)
	in.lowerIfLate(f, codes...)
	return f
}

// essential reports whether a role is one that all containers of a node, or one of them, cannot do without.
func essential(r journal.Role) bool {
	return r == journal.RoleRuntime || r == journal.RoleShim || r == journal.RoleKubelet
}

// essentialVictim returns the first part of runtime or kubelet that was killed for memory, and whether the log says
// which cgroup was out of memory; victims of which it does go first. What dies by the limit of a pod is of that pod,
// whatever its name is: docker in docker, kind, builds.
func (in *Incident) essentialVictim() (victim *journal.Burst, placed bool) {
	inPod, isPlaced := map[journal.Object]bool{}, map[journal.Object]bool{}
	for _, b := range in.each(signature.OOMInvoked, signature.OOMKill) {
		inPod[b.Object()] = inPod[b.Object()] || b.Call().Pods
		isPlaced[b.Object()] = isPlaced[b.Object()] || b.Call().Placed
	}
	for _, b := range in.each(signature.OOMKill, signature.UnitOOMKilled) {
		o, memcg := b.Object(), b.Call().Constraint == "memcg"
		role := b.Call().Role
		if o.Kind != "Unit" {
			role = journal.TaskRole(o.Name)
		}
		if !essential(role) || memcg && inPod[o] {
			continue
		}
		known := !memcg || isPlaced[o]
		if victim == nil || known && !placed || known == placed && b.First().Before(victim.First()) {
			victim, placed = b, known
		}
	}
	return victim, placed
}

// limitFinding is a finding of a resource that ran out, by words that any program uses: own is for the runtime and
// the kubelet, others for the rest.
func (in *Incident) limitFinding(code, record string, confidence float64, own, others string) *LogFinding {
	if in.records(record) == nil {
		return nil
	}
	runtime, kubelet := false, int64(0)
	for _, b := range in.each(record) {
		c := b.Call()
		switch {
		case c.Role == journal.RoleRuntime, c.Role == journal.RoleShim, c.Role == journal.RoleOCI, c.Everywhere, b.Object().Kind == "Filesystem" && ofRuntime(b.Object().ID):
			runtime = true
		case c.Role == journal.RoleKubelet:
			kubelet += b.Count
		}
	}
	f := newLogFinding(code, hostTier, confidence, own)
	switch {
	case runtime:
	case kubelet > 1:
		f.addFor("the kubelet itself says so")
	case kubelet == 1:
		f.Confidence, f.Summary = lateConfidence, others
		f.addAgainst("the kubelet says so in a single record, which tells of no file of the runtime")
	default:
		f.Confidence, f.Summary = 0.3, others
		f.addAgainst("another program says so, of no file of the runtime or the kubelet")
	}
	f.addFor(in.found(record)...)
	in.lowerIfLate(f, record)
	return f
}

// ofRuntime reports whether a path is where runtimes and kubelets keep their files.
func ofRuntime(path string) bool {
	return slices.ContainsFunc([]string{
		"/var/lib/containers", "/var/lib/containerd", "/var/lib/docker", "/var/lib/kubelet", "/var/lib/rancher", "/var/snap/microk8s",
		"/run", "/var/run", "/var/log/pods", "/var/log/containers",
	}, func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") })
}

// runtimeEnd is how systemd reports that the runtime's unit ended by itself, before the incident or at its beginning,
// and how it was started again.
func (in *Incident) runtimeEnd() (ended []string, again string) {
	var last time.Time
	for _, code := range []string{signature.UnitFailed, signature.UnitOOMKilled} {
		if v := in.ofRole(code, journal.RoleRuntime); v != nil {
			ended = append(ended, in.describe(code, v))
			if v.last.After(last) {
				last = v.last
			}
		}
	}
	for _, v := range []*incidentRecords{
		in.ofRole(signature.UnitStarted, journal.RoleRuntime),
		in.records(signature.RuntimeStarted),
	} {
		if ended != nil && v != nil && v.last.After(last) {
			again = "the runtime was started again" + in.when(v.first, v.last)
		}
	}
	return ended, again
}

// answeredAgain reports whether the last record of a socket that does not speak CRI v1 comes after the last refused
// call.
func (in *Incident) answeredAgain() bool {
	unsupported, refused := in.records(signature.CRIUnsupported), in.records(signature.RuntimeUnreachable)
	return unsupported != nil && (refused == nil || unsupported.last.After(refused.last))
}

// refusals words how often calls were refused: one call writes two or three records.
func (in *Incident) refusals() string {
	text := "refused calls: " + recordCount(in.refused)
	if v := in.records(signature.RuntimeUnreachable); v != nil {
		text += in.when(v.first, v.last)
	}
	return text
}

// listedDown words that the kubelet calls the runtime down.
const listedDown = "the kubelet lists \"" + reasonRuntimeDown + "\""

// lateLists counts the lists that missed their deadline one after the other, by the time between their records: the
// records of one call lie within a second, those of the next one a deadline later.
func (in *Incident) lateLists() int {
	var at []time.Time
	for _, b := range in.each(signature.RelistFailed, signature.ListFailed) {
		if b.Call().Code == "DeadlineExceeded" {
			at = append(at, b.First(), b.Last())
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	n := 0
	for i, t := range at {
		if i == 0 || t.Sub(at[i-1]) > time.Minute {
			n++
		}
	}
	return n
}

// movingText words that relists end, but each too late.
func (in *Incident) movingText() string {
	if len(in.Stalls) < 2 {
		return ""
	}
	return fmt.Sprintf("the anchor moves: %d different relists were late one after the other", len(in.Stalls))
}

func (in *Incident) addStandstill(f *LogFinding) {
	s := in.Standstill
	f.Confidence += 0.75
	f.Summary = fmt.Sprintf("The kubelet itself stood still for %s or more: by so much its first record of the "+
		"trouble is late.", roughly(s.Late))
	f.addFor(fmt.Sprintf("the first record states an age of %s: a loop that runs reports it every 5 s from %s on",
		s.Age.Round(time.Second), s.Due.Round(time.Second)))
	f.AddMissing("what else on the node wrote meanwhile: a machine that stands still as a whole looks the same")
}

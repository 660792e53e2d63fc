package causes

import (
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// essential reports whether a role is one that all containers of a node, or one of them, cannot do without.
func essential(r journal.Role) bool {
	return r == journal.RoleRuntime || r == journal.RoleShim || r == journal.RoleKubelet
}

// essentialVictim returns the first part of runtime or kubelet that was killed for memory. What dies by the limit of a
// pod, or of a cgroup that the log does not name, is of that pod, whatever its name is: docker in docker, kind, builds.
func (in *Incident) essentialVictim() *journal.Burst {
	inPod, placed := map[journal.Object]bool{}, map[journal.Object]bool{}
	for _, b := range in.each(signature.OOMInvoked, signature.OOMKill) {
		inPod[b.Object()] = inPod[b.Object()] || b.Call().Pods
		placed[b.Object()] = placed[b.Object()] || b.Call().Placed
	}
	for _, b := range in.each(signature.OOMKill, signature.UnitOOMKilled) {
		o, role := b.Object(), b.Call().Role
		if o.Kind != "Unit" {
			role = journal.TaskRole(o.Name)
		}
		if essential(role) && (b.Call().Constraint != "memcg" || placed[o] && !inPod[o]) {
			return b
		}
	}
	return nil
}

// exhausted returns the recogniser of a resource that ran out, by words that any program uses: the finding is worth
// its confidence where the records are of the runtime or its files, of the node as a whole, or of the kubelet.
func exhausted(confidence float64, summary, code string) func(*Incident) *LogFinding {
	return func(in *Incident) *LogFinding {
		own, kubelet := false, int64(0)
		for _, b := range in.each(code) {
			switch c := b.Call(); c.Role {
			case journal.RoleKubelet:
				kubelet += b.Count
			case journal.RoleRuntime, journal.RoleShim, journal.RoleOCI:
				own = true
			default:
				own = own || c.Everywhere || b.Object().Kind == "Filesystem" && ofRuntime(b.Object().ID)
			}
		}
		return in.recorded(hostTier, confidence, summary, code).
			limitIf(!own && kubelet < 2, 0.3, "the log does not show that the runtime or the kubelet is affected")
	}
}

// ofRuntime reports whether a path is where runtimes and kubelets keep their files.
func ofRuntime(path string) bool {
	return slices.ContainsFunc([]string{
		"/var/lib/containers", "/var/lib/containerd", "/var/lib/docker", "/var/lib/kubelet", "/var/lib/rancher",
		"/var/snap/microk8s", "/run", "/var/run", "/var/log/pods", "/var/log/containers",
	}, func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") })
}

// runtimeEnd returns the records of systemd that the runtime's unit ended by itself, and whether the runtime was
// started after its end.
func (in *Incident) runtimeEnd() (ended []*journal.Burst, again bool) {
	for _, b := range in.each(signature.UnitFailed, signature.UnitOOMKilled) {
		if b.Call().Role == journal.RoleRuntime {
			ended = append(ended, b)
		}
	}
	end := last(slices.Concat(ended, in.each(signature.RuntimeStopped)))
	return ended, slices.ContainsFunc(in.each(signature.UnitStarted, signature.RuntimeStarted),
		func(b *journal.Burst) bool {
			return b.Last().After(end) && (b.Code == signature.RuntimeStarted || b.Call().Role == journal.RoleRuntime)
		})
}

// signalled words that systemd sent a signal to the daemon of a role; empty if it did not.
func (in *Incident) signalled(role journal.Role, signal string) string {
	for _, b := range in.each(signature.UnitSignalled) {
		if c := b.Call(); c.Role == role && c.Text == signal {
			return textf("systemd sent %s to %s at %s", signal, b.Object().Label(),
				b.First().In(in.Zone).Format(time.TimeOnly))
		}
	}
	return ""
}

// statusAlone reports whether only the runtime's status hangs: the node is NotReady for it, and no list fails.
func (in *Incident) statusAlone() bool {
	return in.NotReady == signature.RuntimeIsDown && in.statusMissed > 0 && in.lists == 0
}

// answeredAgain reports whether the last record of a socket that does not speak CRI v1 comes after the last refused
// call.
func (in *Incident) answeredAgain() bool {
	return in.count(signature.CRIUnsupported) > 0 && (in.count(signature.RuntimeUnreachable) == 0 ||
		last(in.each(signature.CRIUnsupported)).After(last(in.each(signature.RuntimeUnreachable))))
}

// refusals writes how often calls were refused: one call writes two or three records.
func (in *Incident) refusals() string {
	return "refused calls: " + units.Count(in.refused, "record") + in.when(signature.RuntimeUnreachable)
}

// listedDown is that the kubelet calls the runtime down.
const listedDown = "the kubelet lists \"" + reasonRuntimeDown + "\""

// lateLists counts the lists that missed their deadline one after the other, by the time between their records: the
// records of one call lie within a second, those of the next one a deadline later.
func (in *Incident) lateLists() int {
	var at []time.Time
	for _, b := range in.each(signature.RelistFailed, signature.ListFailed) {
		if isLate(b.Call()) {
			at = append(at, b.First(), b.Last())
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	return len(slices.CompactFunc(at, func(a, b time.Time) bool { return b.Sub(a).Abs() <= time.Minute }))
}

// movingText is that relists end, but each too late.
func (in *Incident) movingText() string {
	return textf("the anchor moves: %d different relists were late one after the other", len(in.Stalls))
}

package causes

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal/signature"
)

// ListTooLarge is the code of this cause.
const ListTooLarge = "ListTooLarge"

func recogniseListTooLarge(f *facts.Facts) *Finding {
	s, l := f.Lists.Size, f.Limits
	if !f.Lists.SizeKnown || !s.Over() && (l.SizeWarning <= 0 || s.Share() < l.SizeWarning) {
		return nil
	}
	blind := s.Over() && !f.Lists.Streamed
	critical := !f.Lists.Streamed && (s.Over() || l.SizeCritical > 0 && s.Share() >= l.SizeCritical)
	fills := ifElse(blind, "is over", "fills "+units.Percent(s.Share())+" of")
	after := ifElse(blind, "the kubelet can no longer list containers",
		"above it the kubelet can no longer list containers")
	effect := noRelist(f)
	if !s.Over() {
		effect = textf("kubelet: Ready until the list passes %s; NotReady %s later", units.Size(s.Limit),
			f.Calls.Threshold)
	}
	summary := textf("%s %s the limit of %s: %s", s.RPC, fills, units.Size(s.Limit), after)
	var e checks.Evidence
	if s.Refused != nil {
		Addf(&e.For, "%v", *s.Refused)
	}
	addIf(s.Bytes > 0, &e.For, "%s is %s, %s of the limit", s.RPC, units.Size(s.Bytes), units.Percent(s.Share()))
	if mean := facts.MeanEntry(f, s.RPC); mean > 0 {
		Addf(&e.For, "average entry %s; ordinary ones have 0.9 to 1.8 KB", units.Size(int(mean)))
	}
	subjects := []checks.Subject{{Kind: "RPC", Name: s.RPC}}
	if f.Lists.LargeEntries {
		Addf(&e.For, "large labels or annotations, not the number of entries")
		for _, h := range heaviestEntries(f, s.RPC) {
			Addf(&e.For, "%s: %s in each entry", h.Label(), units.Size(int(h.Size)))
			subjects = append(subjects, checks.Subject{
				Kind: h.Kind, ID: h.ID, Name: h.Name, Namespace: h.Pod.Namespace, Pod: h.Pod.Name, PodUID: h.Pod.UID,
			})
		}
	}
	addIf(f.Lists.Streamed, &e.Against,
		"kubelet and runtime stream the lists (CRIListStreaming): the limit does not apply")
	addGaps(f, &e, gapKubelet, gapLists)
	agrees := fromLog(f, &e.For, signOfSize)
	if !agrees && blind {
		logOfCalm(f, &e)
	}
	agrees = s.Over() && logOfPLEG(f, &e) || agrees
	found := newFinding(criticalIf(critical), raised(checks.Certain, agrees), summary, e, subjects...)
	if !f.Lists.Streamed {
		found.affects(effect)
	}
	return found.advise(func(st *Steps, _ string) { adviseTooLarge(f, st, s, blind) })
}

// heaviestEntries returns the largest entries of a list, one for each pod.
func heaviestEntries(f *facts.Facts, rpc string) []facts.ListEntry {
	heavy := map[crictl.Pod]facts.ListEntry{}
	for e := range facts.Entries(f, rpc) {
		if e.Size > heavy[e.Pod].Size {
			heavy[e.Pod] = e
		}
	}
	return top(slices.SortedFunc(maps.Values(heavy), func(a, b facts.ListEntry) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Label(), b.Label()), cmp.Compare(a.ID, b.ID))
	}))
}

func adviseTooLarge(f *facts.Facts, st *Steps, s facts.ListSize, blind bool) {
	if heavy := heaviestEntries(f, s.RPC); f.Lists.LargeEntries && len(heavy) > 0 {
		e := heavy[0]
		list := ifElse(e.Kind == facts.KindSandbox, "pods --id ", "ps -a --id ")
		st.lookIf(facts.Safe(e.ID), facts.CrictlCommand(f, list+e.ID+" -o json"), "Find the large label or annotation")
		st.lookIf(facts.Safe(e.Pod.Namespace, e.Pod.Name),
			textf("kubectl get pod -n %s %s -o yaml", e.Pod.Namespace, e.Pod.Name),
			"Find its owner, and take the large value out of the workload's pod template")
		if blind {
			addCleanUp(f, st)
			addRemovals(f, st, s)
		}
	} else if !f.Lists.LargeEntries {
		addCleanUp(f, st)
		if c := f.Lists.Census; c.MostlyNewest() {
			addCompletedPods(st, c)
		}
		st.Look(facts.CrictlCommand(f, "ps -q | wc -l"), "List only running containers; that may still work")
		st.lookIf(s.Refused != nil, "grep -rsnE 'max_(send|recv)_(message|msg)_size' /etc/containerd /etc/crio",
			"Check whether a limit below 16 MiB is set; raising it above does not help")
	}
	st.lookIf(blind && (f.Kubelet == nil || !f.Kubelet.CRIListStreaming), `kubectl get node "$(hostname)" -o wide`,
		"Check the versions: kubelet 1.36 with containerd 2.4 or CRI-O 1.36 can stream lists (CRIListStreaming)")
}

// addRemovals adds the removal of the pods that take most of a list: StopPodSandbox and RemovePodSandbox need no list.
// Where the dead alone are enough, nothing that runs is among them. A static pod would come back.
func addRemovals(f *facts.Facts, st *Steps, s facts.ListSize) {
	type load struct {
		id    string // of the sandbox
		pod   crictl.Pod
		bytes int
		runs  bool // something of it does
	}
	by, dead := map[string]*load{}, 0
	for e := range facts.Entries(f, s.RPC) {
		l := by[e.SandboxID]
		if l == nil {
			l = &load{id: e.SandboxID, pod: e.Pod}
			by[l.id] = l
		}
		l.bytes += int(e.Size)
		l.runs = l.runs || !e.Dead
	}
	for _, l := range by {
		if !l.runs {
			dead += l.bytes
		}
	}
	loads := slices.SortedFunc(maps.Values(by), func(a, b *load) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.id, b.id))
	})
	loads = slices.DeleteFunc(loads, func(l *load) bool {
		return !facts.Safe(l.id) || l.runs && (dead >= s.Bytes-s.Limit || facts.IsStaticPod(f, l.pod.UID))
	})
	const few = " without a list; a few at a time, until kdiag pleg finds the list below its limit"
	for _, l := range top(loads) {
		if !l.runs {
			st.Add(checks.TouchesExited, facts.CrictlCommand(f, "rmp "+l.id), "Remove a dead pod"+few)
			continue
		}
		addDeletePod(f, st, l.pod, textf(
			"Delete the pod (%s of the list) in the API, or the kubelet recreates what the next step removes",
			units.Size(l.bytes)))
		st.Add(checks.TouchesPod, facts.CrictlCommand(f, "rmp -f "+l.id), "Stop and remove a pod"+few)
	}
}

func loggedListTooLarge(in *Incident) *Finding {
	if in.count(signature.MessageTooLarge) == 0 {
		return nil
	}
	f := in.finding(checks.Certain, "A list is larger than gRPC lets through: no relist succeeds.",
		signature.MessageTooLarge, signature.RelistFailed)
	for _, b := range in.each(signature.MessageTooLarge) {
		if c := b.Call(); c.Size != 0 {
			side := ifElse(c.Sending, "the runtime refuses to send it", "the kubelet refuses to receive it")
			return f.supports(textf("%d bytes against a limit of %d: %s", c.Size, c.Limit, side))
		}
	}
	return f
}

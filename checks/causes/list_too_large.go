package causes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// ListTooLarge is the code of this cause.
const ListTooLarge = "ListTooLarge"

var listTooLarge = Definition{
	Code:   ListTooLarge,
	Claims: []string{"relist.size"},
	Roots: []Root{
		{Code: TooManyExited, When: manySmallEntries},
	},
	Recognise: recogniseListTooLarge,
	FromLog:   loggedListTooLarge,
}

func recogniseListTooLarge(f *facts.Facts) *Finding {
	s, known := f.Lists.Size, f.Lists.SizeKnown
	l := f.Limits
	if !known || !s.Over() && (l.SizeWarning <= 0 || s.Share() < l.SizeWarning) {
		return nil
	}
	severity := checks.Warning
	if s.Over() || l.SizeCritical > 0 && s.Share() >= l.SizeCritical {
		severity = checks.Critical
	}
	var e checks.Evidence
	sizeEvidence(f, &e, s)
	if f.Lists.Streamed {
		severity = checks.Warning
		Addf(&e.Against, "the kubelet streams its lists (CRIListStreaming), and the runtime offers it: only other "+
			"clients are limited")
	}
	agrees := logOfSize(f, &e, s.Over() && !f.Lists.Streamed)
	if s.Over() && logOfPLEG(f, &e) {
		agrees = true
	}
	c := newFinding(severity, raised(checks.Certain, agrees), sizeSummary(f, s), e)
	c.Subject = &checks.Subject{Kind: "RPC", Name: s.RPC}
	if f.Lists.LargeEntries {
		c.Related = heaviest(f, s.RPC)
	}
	c.Advise = func(string) []checks.NextStep { return stepsWhenTooLarge(f, s) }
	return c
}

func sizeSummary(f *facts.Facts, s facts.ListSize) string {
	switch {
	case s.Over() && f.Lists.Streamed:
		return fmt.Sprintf("the answer of %s is over the limit of %s; the kubelet streams it, others cannot read it",
			s.RPC, units.Size(s.Limit))
	case s.Over():
		return fmt.Sprintf("the answer of %s is over the limit of %s: the kubelet is blind, and so is its garbage "+
			"collection", s.RPC, units.Size(s.Limit))
	}
	return fmt.Sprintf("the answer of %s fills %s of the message limit of %s; over it the kubelet goes blind", s.RPC,
		units.Percent(s.Share()), units.Size(s.Limit))
}

func sizeEvidence(f *facts.Facts, e *checks.Evidence, s facts.ListSize) {
	if s.Refused != nil {
		Addf(&e.For, "%s", facts.CallLine(*s.Refused))
		e.For = append(e.For, limitSide(*s.Refused))
	}
	if s.Bytes > 0 {
		least := ""
		if s.AtLeast {
			least = "at least "
		}
		Addf(&e.For, "%s is %s%s, %s of %s", s.RPC, least, units.Size(s.Bytes), units.Percent(s.Share()),
			units.Size(s.Limit))
	}
	if s.Refused == nil && s.Over() && !f.Lists.Streamed {
		Addf(&e.For, "the runtime sends it and kdiag receives it, but the kubelet's client does not: the "+
			"kubelet's side limits (\"received message larger than max\")")
	}
	if mean := facts.MeanEntry(f, s.RPC); mean > 0 {
		of := "container"
		if s.RPC == facts.RPCSandboxes {
			of = "sandbox"
		}
		line := fmt.Sprintf("%s for one %s's entry on average", units.Size(int(mean)), of)
		if sum := f.Summary; s.RPC == facts.RPCContainers && sum.ContainersAtLimit != nil {
			line += fmt.Sprintf(": the limit is reached at %s", units.Count(*sum.ContainersAtLimit, "container"))
		}
		e.For = append(e.For, line)
	}
	if f.Lists.LargeEntries {
		what := "entries of ordinary containers are 0.9 to 1.8 KB: here labels and annotations make the list " +
			"large, not the number of containers"
		if s.RPC == facts.RPCSandboxes {
			what = "a sandbox carries all labels and annotations of its pod: here they make the list large, not " +
				"the number of pods"
		}
		Addf(&e.For, "%s", what)
		for _, h := range heaviestEntries(f, s.RPC) {
			Addf(&e.For, "%s for each entry of %s", units.Size(int(h.Size)), h.Label())
		}
	}
	missingKubelet(f, e)
	if f.Measurement != nil {
		addCompleteness(f, e)
	}
}

// limitSide says which side's limit the words of an error are about.
func limitSide(c crictl.Call) string {
	if facts.ContainsAny(c.Err, []string{"trying to send"}) {
		const sending = "\"trying to send\": the runtime's own send limit"
		_, limit := facts.ErrorSizes(c)
		switch {
		case limit == 0:
			return sending + " stops it"
		case limit > crictl.DefaultMessageLimit:
			return fmt.Sprintf("%s of %s stops it; the kubelet's %s was passed long before, so raising it helps "+
				"no kubelet", sending, units.Size(limit), units.Size(crictl.DefaultMessageLimit))
		case limit == crictl.DefaultMessageLimit:
			return fmt.Sprintf("%s of %s stops it, which is the kubelet's too: raising it helps no kubelet", sending,
				units.Size(limit))
		}
		return fmt.Sprintf("%s of %s stops it, before the kubelet's %s is reached", sending, units.Size(limit),
			units.Size(crictl.DefaultMessageLimit))
	}
	return "\"received\": the client's receive limit stops it, the runtime would send more"
}

// heaviestEntries returns the largest entries of a list, one for each pod, at most topHeaps.
func heaviestEntries(f *facts.Facts, rpc string) []facts.ListEntry {
	heavy := map[crictl.Pod]facts.ListEntry{}
	for _, e := range facts.Entries(f, rpc) {
		if e.Size > heavy[e.Pod].Size {
			heavy[e.Pod] = e
		}
	}
	out := slices.SortedFunc(maps.Values(heavy), func(a, b facts.ListEntry) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Label(), b.Label()), cmp.Compare(a.ID, b.ID))
	})
	return out[:min(len(out), facts.MostNamed)]
}

func heaviest(f *facts.Facts, rpc string) []checks.Subject {
	var subjects []checks.Subject
	for _, e := range heaviestEntries(f, rpc) {
		subjects = append(subjects, checks.Subject{
			Kind: e.Kind, ID: facts.Clean(e.ID), Name: facts.Clean(e.Name), Namespace: facts.Clean(e.Pod.Namespace), Pod: facts.Clean(e.Pod.Name), PodUID: facts.Clean(e.Pod.UID),
		})
	}
	return subjects
}

func stepsWhenTooLarge(f *facts.Facts, s facts.ListSize) []checks.NextStep {
	var st Steps
	blind := s.Over() && !f.Lists.Streamed
	if f.Lists.LargeEntries {
		addHeaviest(f, &st, s, blind)
		addStreaming(f, &st, blind)
		return st.Done()
	}
	census := f.Lists.Census
	if len(census.Containers) > 0 {
		for _, step := range stepsWhenExited(f, census) {
			if step.Touches != checks.TouchesNothing || strings.Contains(step.Command, "gc-exited") {
				st = append(st, step)
			}
		}
	}
	st.Add(checks.TouchesNothing, facts.CrictlCommand(f, "ps -q | wc -l"),
		"Where the dead make the list large, that of running containers alone still works.")
	if s.Refused != nil {
		addLimitOfRuntime(f, &st)
	}
	addStreaming(f, &st, blind)
	return st.Done()
}

// addStreaming adds the way out that removes nothing, for a kubelet that is blind and does not have the gate on.
func addStreaming(f *facts.Facts, st *Steps, blind bool) {
	if blind && (f.Kubelet == nil || !f.Kubelet.CRIListStreaming) {
		st.Add(checks.TouchesNothing, `kubectl get node "$(hostname)" -o wide`,
			"Which versions? A kubelet 1.36 with containerd 2.4 or CRI-O 1.36 has a way out that removes nothing: "+
				"the feature gate "+
				"CRIListStreaming (alpha, off by default) in the kubelet's configuration, and a restart of the "+
				"kubelet.")
	}
}

// addHeaviest adds the way from the largest entry to its owner and, for a kubelet that is blind and so acts on no
// deletion, out of the list.
func addHeaviest(f *facts.Facts, st *Steps, s facts.ListSize, blind bool) {
	heavy := heaviestEntries(f, s.RPC)
	if len(heavy) == 0 {
		return
	}
	if e := heavy[0]; facts.Safe(e.ID) {
		list := "ps -a"
		if e.Kind == facts.KindSandbox {
			list = "pods"
		}
		st.Add(checks.TouchesNothing, facts.CrictlCommand(f, list+" --id "+e.ID+" -o json"),
			"Which label or annotation is so large? A list by id still works.")
		if facts.Safe(e.Pod.Namespace, e.Pod.Name) {
			why := "Who owns it? Take what is large out of the workload's pod template; new pods are smaller."
			if blind {
				why += " The old ones stay here until they are removed by id: a kubelet whose PLEG is unhealthy " +
					"acts on no deletion and no rollout."
			}
			st.Add(checks.TouchesNothing, fmt.Sprintf("kubectl get pod -n %s %s -o yaml", e.Pod.Namespace,
				e.Pod.Name), why)
		}
	}
	if !blind {
		return
	}
	addCleanUp(f, st, f.Lists.Census)
	loads, enough := heaviestPods(f, s)
	many := "A few at a time, until kdiag pleg finds the list below its limit."
	if enough > 0 {
		many = fmt.Sprintf("Once about %s %s gone, the largest first, the list is below its limit: a few at a "+
			"time, then kdiag pleg again.",
			units.Count(enough, "such pod"), units.Plural(enough, "is", "are"))
	}
	for _, l := range loads[:min(len(loads), facts.MostNamed)] {
		addRemoval(f, st, l, many)
		many = ""
	}
	if len(loads) > facts.MostNamed && facts.Safe(loads[0].Pod.Namespace) {
		st.Add(checks.TouchesNothing,
			facts.CrictlCommand(f, "pods --label io.kubernetes.pod.namespace="+loads[0].Pod.Namespace), "Which ids have the other sandboxes of that namespace? A list by label still works.")
	}
}

// A podLoad is what one sandbox, with its containers, takes of a list.
type podLoad struct {
	ID    string // of the sandbox
	Pod   crictl.Pod
	Bytes int
	Runs  bool // something of it does
}

// heaviestPods returns what takes most of a list, the largest first, and how many of them must go until the list is
// below its limit; 0 where that is not known. Where the dead alone are enough, nothing that runs is among them. What
// the kubelet has from a file would come back.
func heaviestPods(f *facts.Facts, s facts.ListSize) (loads []podLoad, enough int) {
	by := map[string]*podLoad{}
	add := func(id string, pod *crictl.Pod, size uint32, runs bool) {
		l := by[id]
		if l == nil {
			l = &podLoad{ID: id, Pod: facts.PodOf(pod)}
			by[id] = l
		}
		l.Bytes += int(size)
		l.Runs = l.Runs || runs
	}
	m := f.Measurement
	if m.Containers != nil && s.RPC == facts.RPCContainers {
		for _, c := range m.Containers.Containers {
			add(c.SandboxID, c.Pod, c.Size, c.State != crictl.ContainerExited)
		}
	}
	if m.Sandboxes != nil && s.RPC == facts.RPCSandboxes {
		for _, b := range m.Sandboxes.Sandboxes {
			add(b.ID, b.Pod, b.Size, b.State == crictl.SandboxReady)
		}
	}
	over := s.Bytes - s.Limit
	dead := 0
	for _, l := range by {
		if !l.Runs {
			dead += l.Bytes
		}
	}
	for _, l := range by {
		if facts.Safe(l.ID) && !(l.Runs && (dead >= over || facts.IsStatic(f, plegbench.Inspection{SandboxID: l.ID}))) {
			loads = append(loads, *l)
		}
	}
	slices.SortFunc(loads, func(a, b podLoad) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes),
			cmp.Compare(a.ID, b.ID))
	})
	for i, l := range loads {
		if over -= l.Bytes; over <= 0 {
			return loads, i + 1
		}
	}
	return loads, 0
}

// addRemoval adds the removal of one pod by its sandbox: StopPodSandbox and RemovePodSandbox need no list. many says
// how many must go; it is empty for the pods after the first.
func addRemoval(f *facts.Facts, st *Steps, l podLoad, many string) {
	first, then := "Likewise the next largest.", "Likewise."
	switch {
	case many == "":
	case l.Runs:
		first = "First in the API, or the kubelet makes it anew as it was. Here nothing happens before its " +
			"sandbox is removed."
		then = "Ends all containers of that pod at once, without their grace period, and removes it; it needs no " +
			"list. " + many
	default:
		then = "Removes what is left of a pod that no longer runs; it needs no list. " + many
	}
	if !l.Runs {
		st.Add(checks.TouchesExited, facts.CrictlCommand(f, "rmp "+l.ID), then)
		return
	}
	if facts.Safe(l.Pod.Namespace, l.Pod.Name) {
		st.Add(checks.TouchesPod, fmt.Sprintf("kubectl delete pod -n %s %s --wait=false", l.Pod.Namespace,
			l.Pod.Name), first)
	}
	st.Add(checks.TouchesPod, facts.CrictlCommand(f, "rmp -f "+l.ID), then)
}

// addLimitOfRuntime adds a look at the runtime's own limit, where its configuration is known.
func addLimitOfRuntime(f *facts.Facts, st *Steps) {
	const why = "Is the runtime's limit lower than the kubelet's 16 MiB? Raising it beyond helps no kubelet."
	const containerd = "grep -rnE 'max_(send|recv)_message_size' "
	switch unit := f.Target.Unit; {
	case unit == "crio":
		st.Add(checks.TouchesNothing, "grep -rnE 'grpc_max_(send|recv)_msg_size' /etc/crio", why)
	case strings.Contains(f.Runtime.Endpoint, "/k3s/"):
		st.Add(checks.TouchesNothing, containerd+"/var/lib/rancher/*/agent/etc/containerd", why)
	case strings.Contains(f.Runtime.Endpoint, "/k0s/"):
		st.Add(checks.TouchesNothing, containerd+"/etc/k0s /run/k0s/containerd-cri.toml", why)
	case strings.Contains(f.Runtime.Endpoint, "microk8s"):
		st.Add(checks.TouchesNothing, containerd+"/var/snap/microk8s/current/args", why)
	case unit == "containerd":
		st.Add(checks.TouchesNothing, containerd+"/etc/containerd", why)
	}
}

func loggedListTooLarge(in *Incident) *LogFinding {
	if in.count(signature.MessageTooLarge) == 0 {
		return nil
	}
	f := in.finding(objectTier, 0.93, "The answer to a list is larger than gRPC lets through, so no relist can "+
		"succeed.", signature.RelistFailed, signature.MessageTooLarge)
	for _, b := range in.each(signature.MessageTooLarge) {
		if c := b.Call(); c.Size != 0 {
			side := "the kubelet refuses to receive it"
			if c.Sending {
				side = "the runtime refuses to send it"
			}
			return f.raise(0, fmt.Sprintf("%d bytes against a limit of %d: %s", c.Size, c.Limit, side))
		}
	}
	return f
}

package checks

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// sizesInError finds the two sizes in gRPC's words: larger than max (26300000 vs. 16777216).
var sizesInError = regexp.MustCompile(`larger than max \((\d{1,12}) vs\. (\d{1,12})\)`)

func listTooLarge() Definition {
	return Definition{
		Code:  codeListTooLarge,
		Title: "a list is over gRPC's message limit, or soon will be",
		Means: "ListContainers and ListPodSandbox answer in one message. The kubelet's client receives at most 16 MiB, containerd sends at most " +
			"16 MiB by default, CRI-O 80 MiB. Over the smaller of both the call fails at once with ResourceExhausted.\n\n" +
			"Then every relist fails within milliseconds, without any timeout: PLEG is unhealthy 3m later, while Status is fine and \"container runtime is " +
			"down\" does not appear. The kubelet's garbage collection and crictl ps -a need the same list and are blind too. Only filtered or " +
			"streaming lists still work. kdiag receives more than the kubelet does, so it still sees the list where the runtime sends it.",
		Confirm: []string{
			"The kubelet's log: \"trying to send message larger than max\" is the runtime's limit, \"received message larger than max\" the kubelet's.",
			"crictl ps -a fails with the same words. crictl ps (running only) works where it is the dead that make the list large.",
		},
		Fix: []string{
			"Many exited containers: kdiag gc-exited removes those beyond the newest; it needs no whole list (see TooManyExited).",
			"Large entries: find the annotation. A sandbox carries all labels and annotations of its pod (meshes, backup tools); a container carries only the kubelet's own, " +
				"its ports and its preStop hook among them, and those of device plugins.",
			"Over the limit a kubelet whose PLEG is unhealthy acts on no deletion and no rollout: the old pods stay. Take what is large out of their template, delete them in the API, then remove " +
				"them here by id, which needs no list: crictl rmp -f SANDBOX, a few at a time, until the list is below the limit. The kubelet then goes on by itself.",
			"containerd: max_send_message_size in config.toml and CRI-O: grpc_max_send_msg_size raise their side only; the kubelet's 16 MiB cannot be changed.",
			"Where both sides have it, the kubelet's feature gate CRIListStreaming removes the limit (kubelet 1.36, containerd 2.4, CRI-O 1.36).",
		},
		Mistaken: "ListHang: a timeout, not an error at once. TooManyExited is its usual root; if entries are over 2 KiB, their annotations are the root and fewer containers help little.",
		Sources: []string{
			"kubernetes/kubernetes#131407, #63858; containerd/containerd#2320; KEP-5825",
			"kubelet: pkg/kubelet/kuberuntime/labels.go (newPodAnnotations, newContainerAnnotations); cri-client: maxMsgSize; containerd: defaults/defaults.go; CRI-O: pkg/config/config.go",
		},
		recognise: recogniseListTooLarge,
	}
}

// messageLimit is the largest message that the kubelet receives.
func (f *Facts) messageLimit() int {
	if f.Summary != nil && f.Summary.ResponseLimitBytes > 0 {
		return f.Summary.ResponseLimitBytes
	}
	return crictl.DefaultMessageLimit
}

// isTooLarge reports whether a call failed because its message was over a limit.
func isTooLarge(c crictl.Call) bool {
	return c.Code == crictl.ResourceExhausted && containsAny(c.Err, []string{"larger than max"})
}

// refusedList returns the list call that a message limit stopped.
func (f *Facts) refusedList() (crictl.Call, bool) {
	m := f.Measurement
	calls := append(f.rpc(rpcSandboxes).Calls, f.rpc(rpcContainers).Calls...)
	if m != nil && m.Sandboxes != nil {
		calls = append(calls, m.Sandboxes.Calls...)
	}
	if m != nil && m.Containers != nil {
		calls = append(calls, m.Containers.Calls...)
	}
	i := slices.IndexFunc(calls, isTooLarge)
	if i < 0 {
		return crictl.Call{}, false
	}
	return calls[i], true
}

// A listSize is how large the larger list is, against the limit that applies.
type listSize struct {
	RPC     string
	Bytes   int // 0 when only the refusal is known
	Limit   int
	Refused *crictl.Call // the call that the limit stopped; nil when kdiag got the list
	AtLeast bool         // part of the list is missing
}

func (f *Facts) listSize() (listSize, bool) {
	s := listSize{Limit: f.messageLimit()}
	known := false
	if sum := f.Summary; sum != nil && sum.ResponseBytes != nil {
		s.RPC, s.Bytes, s.AtLeast, known = sum.ResponseRPC, *sum.ResponseBytes, sum.ResponseTruncated, true
	}
	if c, refused := f.refusedList(); refused {
		s.RPC, s.Refused, known = canonical(c.Method), &c, true
		if n, limit := errorSizes(c); n > 0 {
			s.Bytes, s.AtLeast = max(n, s.Bytes), false
			if limit > 0 {
				s.Limit = min(s.Limit, limit)
			}
		}
	}
	if s.RPC == "" {
		s.RPC = rpcContainers
	}
	return s, known
}

// over reports whether the kubelet cannot get the list any more.
func (s listSize) over() bool { return s.Refused != nil || s.Bytes > s.Limit }

// share is the list's size as a share of the limit.
func (s listSize) share() float64 { return float64(s.Bytes) / float64(max(s.Limit, 1)) }

// largeEntries reports whether the entries of the larger list, and not their number, make it large.
func (f *Facts) largeEntries() bool {
	s, _ := f.listSize()
	return f.Limits.LargeEntry > 0 && f.meanEntry(s.RPC) > float64(f.Limits.LargeEntry)
}

// meanEntry is the mean size of the entries of a list, in bytes; 0 when it is not known.
func (f *Facts) meanEntry(rpc string) float64 {
	if rpc == rpcContainers {
		if f.Summary == nil || f.Summary.BytesPerContainer == nil {
			return 0
		}
		return *f.Summary.BytesPerContainer
	}
	all, sum := f.entries(rpc), 0.0
	for _, e := range all {
		sum += float64(e.Size)
	}
	return sum / float64(max(len(all), 1))
}

// kubeletStreams reports whether the kubelet itself gets the lists as streams, to which the limit does not apply.
func (f *Facts) kubeletStreams() bool {
	return f.Kubelet != nil && f.Kubelet.CRIListStreaming && f.Measurement != nil &&
		f.Measurement.Containers != nil && f.Measurement.Containers.Mode == crictl.ModeStream
}

func recogniseListTooLarge(f *Facts) *Cause {
	s, known := f.listSize()
	l := f.Limits
	if !known || !s.over() && (l.SizeWarning <= 0 || s.share() < l.SizeWarning) {
		return nil
	}
	severity := Warning
	if s.over() || l.SizeCritical > 0 && s.share() >= l.SizeCritical {
		severity = Critical
	}
	var e Evidence
	f.sizeEvidence(&e, s)
	if f.kubeletStreams() {
		severity = Warning
		addf(&e.Against, "the kubelet streams its lists (CRIListStreaming), and the runtime offers it: only other clients are limited")
	}
	agrees := f.hearSize(&e, s.over() && !f.kubeletStreams())
	if s.over() && f.hearPLEG(&e) {
		agrees = true
	}
	c := newCause(codeListTooLarge, severity, raised(Certain, agrees), f.sizeSummary(s), e)
	c.Subject = &Subject{Kind: "RPC", Name: s.RPC}
	if f.largeEntries() {
		c.Related = f.heaviest(s.RPC)
	}
	c.NextSteps = f.stepsWhenTooLarge(s)
	return c
}

func (f *Facts) sizeSummary(s listSize) string {
	switch {
	case s.over() && f.kubeletStreams():
		return fmt.Sprintf("the answer of %s is over the limit of %s; the kubelet streams it, others cannot read it", s.RPC, units.Size(s.Limit))
	case s.over():
		return fmt.Sprintf("the answer of %s is over the limit of %s: the kubelet is blind, and so is its garbage collection", s.RPC, units.Size(s.Limit))
	}
	return fmt.Sprintf("the answer of %s fills %s of the message limit of %s; over it the kubelet goes blind", s.RPC, units.Percent(s.share()), units.Size(s.Limit))
}

func (f *Facts) sizeEvidence(e *Evidence, s listSize) {
	if s.Refused != nil {
		addf(&e.For, "%s", callLine(*s.Refused))
		e.For = append(e.For, limitSide(*s.Refused))
	}
	if s.Bytes > 0 {
		least := ""
		if s.AtLeast {
			least = "at least "
		}
		addf(&e.For, "%s is %s%s, %s of %s", s.RPC, least, units.Size(s.Bytes), units.Percent(s.share()), units.Size(s.Limit))
	}
	if s.Refused == nil && s.over() && !f.kubeletStreams() {
		addf(&e.For, "the runtime sends it and kdiag receives it, but the kubelet's client does not: the kubelet's side limits (\"received message larger than max\")")
	}
	if mean := f.meanEntry(s.RPC); mean > 0 {
		of := "container"
		if s.RPC == rpcSandboxes {
			of = "sandbox"
		}
		line := fmt.Sprintf("%s for one %s's entry on average", units.Size(int(mean)), of)
		if sum := f.Summary; s.RPC == rpcContainers && sum.ContainersAtLimit != nil {
			line += fmt.Sprintf(": the limit is reached at %s", units.Count(*sum.ContainersAtLimit, "container"))
		}
		e.For = append(e.For, line)
	}
	if f.largeEntries() {
		what := "entries of ordinary containers are 0.9 to 1.8 KB: here labels and annotations make the list large, not the number of containers"
		if s.RPC == rpcSandboxes {
			what = "a sandbox carries all labels and annotations of its pod: here they make the list large, not the number of pods"
		}
		addf(&e.For, "%s", what)
		for _, h := range f.heaviestEntries(s.RPC) {
			addf(&e.For, "%s for each entry of %s", units.Size(int(h.Size)), h.label())
		}
	}
	f.missingKubelet(e)
	if f.Measurement != nil {
		f.addCompleteness(e)
	}
}

// errorSizes returns the size of the message and the limit that gRPC's error names, 0 where it names none.
func errorSizes(c crictl.Call) (n, limit int) {
	if m := sizesInError.FindStringSubmatch(c.Err); m != nil {
		n, _ = strconv.Atoi(m[1])
		limit, _ = strconv.Atoi(m[2])
	}
	return n, limit
}

// limitSide says which side's limit the words of an error are about.
func limitSide(c crictl.Call) string {
	if containsAny(c.Err, []string{"trying to send"}) {
		const sending = "\"trying to send\": the runtime's own send limit"
		_, limit := errorSizes(c)
		switch {
		case limit == 0:
			return sending + " stops it"
		case limit > crictl.DefaultMessageLimit:
			return fmt.Sprintf("%s of %s stops it; the kubelet's %s was passed long before, so raising it helps no kubelet", sending, units.Size(limit), units.Size(crictl.DefaultMessageLimit))
		case limit == crictl.DefaultMessageLimit:
			return fmt.Sprintf("%s of %s stops it, which is the kubelet's too: raising it helps no kubelet", sending, units.Size(limit))
		}
		return fmt.Sprintf("%s of %s stops it, before the kubelet's %s is reached", sending, units.Size(limit), units.Size(crictl.DefaultMessageLimit))
	}
	return "\"received\": the client's receive limit stops it, the runtime would send more"
}

// A listEntry is what a list holds of one container or sandbox.
type listEntry struct {
	Kind, ID, Name string
	Pod            crictl.Pod
	Size           uint32 // bytes
}

func (e listEntry) label() string { return labelOf(e.Kind, e.ID, e.Pod.Namespace, e.Pod.Name, e.Name) }

// entries returns what a list holds.
func (f *Facts) entries(rpc string) []listEntry {
	var out []listEntry
	m := f.Measurement
	switch {
	case m == nil:
	case rpc == rpcSandboxes && m.Sandboxes != nil:
		for _, s := range m.Sandboxes.Sandboxes {
			out = append(out, listEntry{kindSandbox, s.ID, "", podOf(s.Pod), s.Size})
		}
	case rpc == rpcContainers && m.Containers != nil:
		for _, c := range m.Containers.Containers {
			out = append(out, listEntry{kindContainer, c.ID, c.Name, podOf(c.Pod), c.Size})
		}
	}
	return out
}

// heaviestEntries returns the largest entries of a list, one for each pod, at most topHeaps.
func (f *Facts) heaviestEntries(rpc string) []listEntry {
	heavy := map[crictl.Pod]listEntry{}
	for _, e := range f.entries(rpc) {
		if e.Size > heavy[e.Pod].Size {
			heavy[e.Pod] = e
		}
	}
	out := slices.SortedFunc(maps.Values(heavy), func(a, b listEntry) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.label(), b.label()), cmp.Compare(a.ID, b.ID))
	})
	return out[:min(len(out), topHeaps)]
}

func (f *Facts) heaviest(rpc string) []Subject {
	var subjects []Subject
	for _, e := range f.heaviestEntries(rpc) {
		subjects = append(subjects, Subject{
			Kind: e.Kind, ID: clean(e.ID), Name: clean(e.Name), Namespace: clean(e.Pod.Namespace), Pod: clean(e.Pod.Name), PodUID: clean(e.Pod.UID),
		})
	}
	return subjects
}

func (f *Facts) stepsWhenTooLarge(s listSize) []NextStep {
	var st steps
	blind := s.over() && !f.kubeletStreams()
	if f.largeEntries() {
		f.addHeaviest(&st, s, blind)
		f.addStreaming(&st, blind)
		return st.done()
	}
	census := f.takeCensus()
	if len(census.Containers) > 0 {
		for _, step := range f.stepsWhenExited(census) {
			if step.Touches != TouchesNothing || strings.Contains(step.Command, "gc-exited") {
				st = append(st, step)
			}
		}
	}
	st.add(TouchesNothing, f.crictlCommand("ps -q | wc -l"), "Where the dead make the list large, that of running containers alone still works.")
	if s.Refused != nil {
		f.addLimitOfRuntime(&st)
	}
	f.addStreaming(&st, blind)
	return st.done()
}

// addStreaming adds the way out that removes nothing, for a kubelet that is blind and does not have the gate on.
func (f *Facts) addStreaming(st *steps, blind bool) {
	if blind && (f.Kubelet == nil || !f.Kubelet.CRIListStreaming) {
		st.add(TouchesNothing, `kubectl get node "$(hostname)" -o wide`, "Which versions? A kubelet 1.36 with containerd 2.4 or CRI-O 1.36 has a way out that removes nothing: the feature gate "+
			"CRIListStreaming (alpha, off by default) in the kubelet's configuration, and a restart of the kubelet.")
	}
}

// addHeaviest adds the way from the largest entry to its owner and, for a kubelet that is blind and so acts on no deletion, out of the list.
func (f *Facts) addHeaviest(st *steps, s listSize, blind bool) {
	heavy := f.heaviestEntries(s.RPC)
	if len(heavy) == 0 {
		return
	}
	if e := heavy[0]; safe(e.ID) {
		list := "ps -a"
		if e.Kind == kindSandbox {
			list = "pods"
		}
		st.add(TouchesNothing, f.crictlCommand(list+" --id "+e.ID+" -o json"), "Which label or annotation is so large? A list by id still works.")
		if safe(e.Pod.Namespace, e.Pod.Name) {
			why := "Who owns it? Take what is large out of the workload's pod template; new pods are smaller."
			if blind {
				why += " The old ones stay here until they are removed by id: a kubelet whose PLEG is unhealthy acts on no deletion and no rollout."
			}
			st.add(TouchesNothing, fmt.Sprintf("kubectl get pod -n %s %s -o yaml", e.Pod.Namespace, e.Pod.Name), why)
		}
	}
	if !blind {
		return
	}
	f.addCleanUp(st, f.takeCensus())
	loads, enough := f.heaviestPods(s)
	many := "A few at a time, until kdiag pleg finds the list below its limit."
	if enough > 0 {
		many = fmt.Sprintf("Once about %s %s gone, the largest first, the list is below its limit: a few at a time, then kdiag pleg again.",
			units.Count(enough, "such pod"), verb(enough, "is", "are"))
	}
	for _, l := range loads[:min(len(loads), topHeaps)] {
		f.addRemoval(st, l, many)
		many = ""
	}
	if len(loads) > topHeaps && safe(loads[0].Pod.Namespace) {
		st.add(TouchesNothing, f.crictlCommand("pods --label io.kubernetes.pod.namespace="+loads[0].Pod.Namespace), "Which ids have the other sandboxes of that namespace? A list by label still works.")
	}
}

// A podLoad is what one sandbox, with its containers, takes of a list.
type podLoad struct {
	ID    string // of the sandbox
	Pod   crictl.Pod
	Bytes int
	Runs  bool // something of it does
}

// heaviestPods returns what takes most of a list, the largest first, and how many of them must go until the list is below its limit; 0 where that
// is not known. Where the dead alone are enough, nothing that runs is among them. What the kubelet has from a file would come back.
func (f *Facts) heaviestPods(s listSize) (loads []podLoad, enough int) {
	by := map[string]*podLoad{}
	add := func(id string, pod *crictl.Pod, size uint32, runs bool) {
		l := by[id]
		if l == nil {
			l = &podLoad{ID: id, Pod: podOf(pod)}
			by[id] = l
		}
		l.Bytes += int(size)
		l.Runs = l.Runs || runs
	}
	m := f.Measurement
	if m.Containers != nil && s.RPC == rpcContainers {
		for _, c := range m.Containers.Containers {
			add(c.SandboxID, c.Pod, c.Size, c.State != crictl.ContainerExited)
		}
	}
	if m.Sandboxes != nil && s.RPC == rpcSandboxes {
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
		if safe(l.ID) && !(l.Runs && (dead >= over || f.isStatic(plegbench.Inspection{SandboxID: l.ID}))) {
			loads = append(loads, *l)
		}
	}
	slices.SortFunc(loads, func(a, b podLoad) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.ID, b.ID)) })
	for i, l := range loads {
		if over -= l.Bytes; over <= 0 {
			return loads, i + 1
		}
	}
	return loads, 0
}

// addRemoval adds the removal of one pod by its sandbox: StopPodSandbox and RemovePodSandbox need no list. many says how many must go; it is
// empty for the pods after the first.
func (f *Facts) addRemoval(st *steps, l podLoad, many string) {
	first, then := "Likewise the next largest.", "Likewise."
	switch {
	case many == "":
	case l.Runs:
		first = "First in the API, or the kubelet makes it anew as it was. Here nothing happens before its sandbox is removed."
		then = "Ends all containers of that pod at once, without their grace period, and removes it; it needs no list. " + many
	default:
		then = "Removes what is left of a pod that no longer runs; it needs no list. " + many
	}
	if !l.Runs {
		st.add(TouchesExited, f.crictlCommand("rmp "+l.ID), then)
		return
	}
	if safe(l.Pod.Namespace, l.Pod.Name) {
		st.add(TouchesPod, fmt.Sprintf("kubectl delete pod -n %s %s --wait=false", l.Pod.Namespace, l.Pod.Name), first)
	}
	st.add(TouchesPod, f.crictlCommand("rmp -f "+l.ID), then)
}

// addLimitOfRuntime adds a look at the runtime's own limit, where its configuration is known.
func (f *Facts) addLimitOfRuntime(st *steps) {
	const why = "Is the runtime's limit lower than the kubelet's 16 MiB? Raising it beyond helps no kubelet."
	const containerd = "grep -rnE 'max_(send|recv)_message_size' "
	switch unit := f.unit(); {
	case unit == "crio":
		st.add(TouchesNothing, "grep -rnE 'grpc_max_(send|recv)_msg_size' /etc/crio", why)
	case strings.Contains(f.Runtime.Endpoint, "/k3s/"):
		st.add(TouchesNothing, containerd+"/var/lib/rancher/*/agent/etc/containerd", why)
	case strings.Contains(f.Runtime.Endpoint, "/k0s/"):
		st.add(TouchesNothing, containerd+"/etc/k0s /run/k0s/containerd-cri.toml", why)
	case strings.Contains(f.Runtime.Endpoint, "microk8s"):
		st.add(TouchesNothing, containerd+"/var/snap/microk8s/current/args", why)
	case unit == "containerd":
		st.add(TouchesNothing, containerd+"/etc/containerd", why)
	}
}

package checks

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/crictl"
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
			"crictl ps -a fails with the same words, crictl ps (running only) works.",
		},
		Fix: []string{
			"Many exited containers: kdiag gc-exited removes those beyond the newest; it needs no whole list (see TooManyExited).",
			"Large entries: find the annotation. Every container repeats its pod-level labels and annotations; kubectl.kubernetes.io/last-applied-configuration is not " +
				"among them, but those of meshes, backup tools and device plugins are.",
			"containerd: max_send_message_size in config.toml and CRI-O: grpc_max_send_msg_size raise their side only; the kubelet's 16 MiB cannot be changed.",
			"Where both sides have it, the kubelet's feature gate CRIListStreaming removes the limit (kubelet 1.36, containerd 2.4, CRI-O 1.36).",
		},
		Mistaken: "ListHang: a timeout, not an error at once. TooManyExited is its usual root; if entries are over 2 KiB, their annotations are the root and fewer containers help little.",
		Sources: []string{
			"kubernetes/kubernetes#131407, #63858; containerd/containerd#2320; KEP-5825",
			"cri-client: maxMsgSize; containerd: defaults/defaults.go; CRI-O: pkg/config/config.go",
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

// largeEntries reports whether the entries, and not their number, make the list large.
func (f *Facts) largeEntries() bool {
	return f.Limits.LargeEntry > 0 && f.Summary != nil && f.Summary.BytesPerContainer != nil &&
		*f.Summary.BytesPerContainer > float64(f.Limits.LargeEntry)
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
		c.Related = f.heaviest()
	}
	c.NextSteps = f.stepsWhenTooLarge(s)
	return c
}

func (f *Facts) sizeSummary(s listSize) string {
	switch {
	case s.over() && f.kubeletStreams():
		return fmt.Sprintf("the answer of %s is over the limit of %s; the kubelet streams it, others cannot read it", s.RPC, size(s.Limit))
	case s.over():
		return fmt.Sprintf("the answer of %s is over the limit of %s: the kubelet is blind, and so is its garbage collection", s.RPC, size(s.Limit))
	}
	return fmt.Sprintf("the answer of %s fills %s of the message limit of %s; over it the kubelet goes blind", s.RPC, percent(s.share()), size(s.Limit))
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
		addf(&e.For, "%s is %s%s, %s of %s", s.RPC, least, size(s.Bytes), percent(s.share()), size(s.Limit))
	}
	if s.Refused == nil && s.over() && !f.kubeletStreams() {
		addf(&e.For, "the runtime sends it and kdiag receives it, but the kubelet's client does not: the kubelet's side limits (\"received message larger than max\")")
	}
	if sum := f.Summary; sum != nil && sum.BytesPerContainer != nil {
		line := fmt.Sprintf("%s for one container's entry on average", size(int(*sum.BytesPerContainer)))
		if sum.ContainersAtLimit != nil {
			line += fmt.Sprintf(": the limit is reached at %s", count(*sum.ContainersAtLimit, "container"))
		}
		e.For = append(e.For, line)
	}
	if f.largeEntries() {
		addf(&e.For, "entries of ordinary containers are 0.9 to 1.8 KB: here labels and annotations make the list large, not the number of containers")
		for _, h := range f.heaviestContainers() {
			addf(&e.For, "%s for each entry of %s", size(int(h.Size)), containerLabel(h))
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
			return fmt.Sprintf("%s of %s stops it; the kubelet's %s was passed long before, so raising it helps no kubelet", sending, size(limit), size(crictl.DefaultMessageLimit))
		case limit == crictl.DefaultMessageLimit:
			return fmt.Sprintf("%s of %s stops it, which is the kubelet's too: raising it helps no kubelet", sending, size(limit))
		}
		return fmt.Sprintf("%s of %s stops it, before the kubelet's %s is reached", sending, size(limit), size(crictl.DefaultMessageLimit))
	}
	return "\"received\": the client's receive limit stops it, the runtime would send more"
}

// heaviestContainers returns the containers with the largest entries, one for each pod, at most topHeaps.
func (f *Facts) heaviestContainers() []crictl.Container {
	if f.Measurement == nil || f.Measurement.Containers == nil {
		return nil
	}
	all := f.Measurement.Containers.Containers
	heavy := map[crictl.Pod]crictl.Container{}
	for i := range all {
		pod := podOf(all[i].Pod)
		if all[i].Size > heavy[pod].Size {
			heavy[pod] = all[i]
		}
	}
	out := make([]crictl.Container, 0, len(heavy))
	for _, c := range heavy {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b crictl.Container) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(containerLabel(a), containerLabel(b)), cmp.Compare(a.ID, b.ID))
	})
	return out[:min(len(out), topHeaps)]
}

func (f *Facts) heaviest() []Subject {
	var subjects []Subject
	for _, c := range f.heaviestContainers() {
		pod := podOf(c.Pod)
		subjects = append(subjects, Subject{
			Kind: kindContainer, ID: clean(c.ID), Name: clean(c.Name), Namespace: clean(pod.Namespace), Pod: clean(pod.Name), PodUID: clean(pod.UID),
		})
	}
	return subjects
}

// containerLabel names a listed container.
func containerLabel(c crictl.Container) string {
	pod := podOf(c.Pod)
	return labelOf(kindContainer, c.ID, pod.Namespace, pod.Name, c.Name)
}

func (f *Facts) stepsWhenTooLarge(s listSize) []NextStep {
	var st steps
	if f.largeEntries() {
		heavy := f.heaviestContainers()
		for _, c := range heavy[:min(len(heavy), 1)] {
			if pod := podOf(c.Pod); safe(c.ID) {
				st.add(TouchesNothing, f.crictlCommand("ps -a --id "+c.ID+" -o json"), "Which label or annotation is so large? A list by id still works.")
				if safe(pod.Namespace, pod.Name) {
					st.add(TouchesNothing, fmt.Sprintf("kubectl get pod -n %s %s -o yaml", pod.Namespace, pod.Name),
						"Who owns it? Take the annotation out of the workload's pod template; new pods are smaller.")
				}
			}
		}
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
	st.add(TouchesNothing, f.crictlCommand("ps -q | wc -l"), "A list of running containers alone still works when the whole one does not.")
	if s.Refused != nil {
		f.addLimitOfRuntime(&st)
	}
	return st.done()
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

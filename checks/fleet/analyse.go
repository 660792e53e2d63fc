package fleet

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/advisories"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

const (
	// stale is the age from which on a condition of the agent does not count: it writes each 5 minutes at the latest.
	stale = 15 * time.Minute
	// leaseAlive is the age of a lease that a running kubelet has at most: it renews each 10 s, for 40 s.
	leaseAlive     = 40 * time.Second
	mostAdvisories = 3 // of a group
)

// Causes of nodes that are no cause codes. The first two are reasons that the node controller sets.
const (
	silentNode     = "NodeStatusUnknown"
	neverUpdated   = "NodeStatusNeverUpdated"
	statusNotTaken = "NodeStatusNotUpdated" // the lease is renewed, the status is not
)

// zones and pools are the labels with the zone and the pool of a node; the first that it has counts.
var (
	zones = []string{v1.LabelTopologyZone, v1.LabelFailureDomainBetaZone}
	types = []string{v1.LabelInstanceTypeStable, v1.LabelInstanceType}
	pools = []string{
		"eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name", // EKS
		"cloud.google.com/gke-nodepool",               // GKE
		"kubernetes.azure.com/agentpool", "agentpool", // AKS, and before
		"karpenter.sh/nodepool", "karpenter.sh/provisioner-name", // Karpenter, and before 0.32
		"kops.k8s.io/instancegroup", "node.openshift.io/machine-pool", "doks.digitalocean.com/node-pool",
		"topology.cluster.x-k8s.io/deployment-name", "cluster.x-k8s.io/deployment-name", // Cluster API, where synced
		"cluster.x-k8s.io/pool-name",
	}
)

func label(n *Node, names []string) string {
	for _, name := range names {
		if v := n.Labels[name]; v != "" {
			return v
		}
	}
	return ""
}

// roots are the signatures of Ready messages, the root first, and the causes that they stand for. The message of a
// kubelet lists all that it misses. Those without a cause are groups of their own.
var roots = []struct{ signature, cause string }{
	{"NodeShutdown", "NodeShutdown"},
	{signature.RuntimeIsDown, "RuntimeDown"},
	{signature.RuntimeNotReadyReported, "RuntimeNotReady"},
	{"RuntimeRecovering", "RuntimeNotReady"},
	{signature.NetworkNotReady, "NetworkNotReady"},
	{signature.CNINotInitialized, "NetworkNotReady"},
	{signature.EventedPLEGFull, "KubeletStalled"},
	{signature.PLEGNotHealthy, "PLEGUnhealthy"},
	{"StatusCheckPending", "StatusCheckPending"},
}

// code matches the code of a cause. The API server accepts anything as the reason of a condition, and this one becomes a
// part of a command.
var code = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)

// An illness is why a node is sick.
type illness struct {
	cause   string   // the group of the node
	codes   []string // of causes that it may be; none where it is no cause of kdiag's
	summary string
	silent  bool // the kubelet is
}

// An analysis is a Snapshot on its way to a report.
type analysis struct {
	*Snapshot
	matcher *signature.Matcher
	report  *checks.FleetReport
	ill     map[string]illness // by node
	byName  map[string]*Node
	healthy []*Node
}

// Report analyses a snapshot. Of the header it sets the time, which is the server's, status, problems and next steps.
func Report(s *Snapshot) *checks.FleetReport {
	cost := s.Cost
	a := &analysis{
		Snapshot: s, matcher: signature.NewMatcher(), ill: map[string]illness{}, byName: map[string]*Node{},
		report: &checks.FleetReport{Nodes: []checks.FleetNode{}, Groups: []checks.FleetGroup{}, Server: &cost},
	}
	r := a.report
	r.GeneratedAt, r.Status = s.At.UTC().Truncate(time.Second), checks.Healthy
	r.Problems = append([]string{}, s.Problems...) // [] in JSON
	for i := range s.Nodes {
		n := &s.Nodes[i]
		a.byName[n.Name] = n
		r.Nodes = append(r.Nodes, a.node(n))
	}
	r.Counts.Nodes = len(r.Nodes)
	members := map[string][]string{}
	for name, ill := range a.ill {
		members[ill.cause] = append(members[ill.cause], name)
	}
	healthy := a.count(a.healthy)
	for cause, names := range members {
		slices.Sort(names)
		r.Groups = append(r.Groups, a.group(cause, names, healthy))
	}
	slices.SortFunc(r.Groups, func(x, y checks.FleetGroup) int {
		return cmp.Or(len(y.Nodes)-len(x.Nodes), cmp.Compare(x.Cause, y.Cause))
	})
	a.sort()
	switch {
	case len(r.Groups) > 0:
		r.Status, r.NextSteps = checks.Unhealthy, r.Groups[0].NextSteps
	case len(r.Nodes) == 0:
		r.Status, r.Problems = checks.Unknown, append(r.Problems, "the API server has no such nodes")
	}
	return r
}

// sort orders the nodes: groups as in the report, in each the silent nodes, those that post NotReady, those that are
// Ready, and the longest so first; then the nodes that are not sick.
func (a *analysis) sort() {
	rank := map[string]int{"": len(a.report.Groups)}
	for i, g := range a.report.Groups {
		rank[g.Cause] = i
	}
	states := []string{"", string(v1.ConditionUnknown), string(v1.ConditionFalse), string(v1.ConditionTrue)}
	slices.SortFunc(a.report.Nodes, func(x, y checks.FleetNode) int {
		if c := cmp.Compare(rank[x.Cause], rank[y.Cause]); c != 0 || x.Cause == "" {
			return cmp.Or(c, cmp.Compare(x.Name, y.Name))
		}
		var since [2]time.Time
		for i, n := range []checks.FleetNode{x, y} {
			if n.Since != nil {
				since[i] = *n.Since
			}
		}
		return cmp.Or(cmp.Compare(slices.Index(states, x.Ready), slices.Index(states, y.Ready)),
			since[0].Compare(since[1]), cmp.Compare(x.Name, y.Name))
	})
}

// node describes a node, counts it, and finds out whether it is sick.
func (a *analysis) node(n *Node) checks.FleetNode {
	ready := n.Condition(v1.NodeReady)
	out := checks.FleetNode{
		Name: n.Name, Ready: string(ready.Status), Reason: ready.Reason, Message: ready.Message,
		Kubelet: n.Info.KubeletVersion, Runtime: n.Info.ContainerRuntimeVersion, Kernel: n.Info.KernelVersion,
		OSImage: n.Info.OSImage, Zone: label(n, zones), InstanceType: label(n, types), Pool: label(n, pools),
		Owner: n.Owner, Created: n.Created, Unschedulable: n.Unschedulable, Diagnosis: a.diagnosis(n),
	}
	if at := ready.LastTransitionTime.Time; !at.IsZero() {
		out.Since = &at
	}
	if !n.Renewed.IsZero() {
		out.LeaseAgeSeconds = new(max(a.At.Sub(n.Renewed).Seconds(), 0))
	}
	if a.Pods {
		out.Pods = new(n.Pods)
	}
	counts := &a.report.Counts
	found := out.Diagnosis != nil && out.Diagnosis.Status == checks.Unhealthy
	if a.fresh(n) {
		counts.Diagnosed++
	}
	switch {
	case ready.Status == v1.ConditionFalse:
		counts.NotReady++
	case ready.Status != v1.ConditionTrue:
		counts.Silent++
	case found:
		counts.Ready++
		counts.Problems++
	default:
		counts.Ready++
		a.healthy = append(a.healthy, n)
		return out
	}
	ill := a.illness(n, ready)
	if found {
		cause := out.Diagnosis.Cause
		ill = illness{cause: cause, codes: []string{cause}, summary: cmp.Or(out.Diagnosis.Summary, cause)}
	}
	a.ill[n.Name] = ill
	out.Cause, out.Events = ill.cause, n.Events
	return out
}

// fresh reports whether the node's agent has published lately. The time is of the node's clock.
func (a *analysis) fresh(n *Node) bool {
	at := n.Condition(agentCondition).LastHeartbeatTime.Time
	return !at.IsZero() && a.At.Sub(at) < stale
}

// diagnosis returns what the agent of a node published; nil where there is none.
func (a *analysis) diagnosis(n *Node) *checks.FleetDiagnosis {
	c := n.Condition(agentCondition)
	d := &checks.FleetDiagnosis{Status: checks.Unknown, Summary: c.Message, At: c.LastHeartbeatTime.UTC()}
	switch {
	case c.Type == "":
		return nil
	case !a.fresh(n):
		d.Summary = "stale since " + units.Duration(a.At.Sub(d.At)) + ": " + c.Message
	case c.Status == v1.ConditionTrue:
		d.Status, d.Cause = checks.Unhealthy, cmp.Or(c.Reason, agentCondition)
		d.Summary = strings.TrimPrefix(c.Message, c.Reason+": ")
	case c.Status == v1.ConditionFalse:
		d.Status = checks.Healthy
	}
	return d
}

// illness tells why a node is not ready from its Ready condition alone.
func (a *analysis) illness(n *Node, ready v1.NodeCondition) illness {
	if ready.Status == v1.ConditionFalse {
		const posts = "the kubelet posts NotReady: "
		matches := a.matcher.Match([]byte(ready.Message), nil)
		for _, root := range roots {
			for _, m := range matches {
				if m.Signature.Code == root.signature {
					return illness{
						cause: root.cause, codes: m.Signature.Implies, summary: posts + m.Signature.Title,
					}
				}
			}
		}
		cause := cmp.Or(ready.Reason, "NotReady")
		return illness{cause: cause, summary: posts + cmp.Or(ready.Message, cause)}
	}
	cause := cmp.Or(ready.Reason, silentNode)
	switch age := a.At.Sub(n.Renewed); {
	case ready.Status == "":
		return illness{cause: neverUpdated, summary: "the node has no condition Ready: no kubelet has posted its status"}
	case age <= leaseAlive:
		return illness{cause: statusNotTaken, summary: "the kubelet renews its lease, but its status does not change: " +
			"the API server or a webhook refuses it, or the kubelet has only just come back"}
	}
	return illness{
		cause: cause, summary: "the kubelet is silent: it is down, or the machine or its network is",
		silent: true,
	}
}

// group describes the nodes with one cause.
func (a *analysis) group(cause string, names []string, healthy map[property]int) checks.FleetGroup {
	g := checks.FleetGroup{Cause: cause, Nodes: names, Common: a.common(names, healthy), Advisories: a.advisories(names)}
	first, times := map[string]string{}, map[string]int{}
	known, agents := false, 0 // to kdiag explain; of silent nodes
	for _, name := range names {
		ill := a.ill[name]
		if times[ill.summary]++; first[ill.summary] == "" {
			first[ill.summary] = name
		}
		known = known || slices.Contains(ill.codes, cause) && code.MatchString(cause)
		if ill.silent && a.fresh(a.byName[name]) {
			agents++
		}
	}
	g.Summary = slices.MinFunc(slices.Sorted(maps.Keys(times)), func(x, y string) int { return times[y] - times[x] })
	if times[g.Summary] < len(names) {
		g.Summary += " (" + first[g.Summary] + ")"
	}
	if agents > 0 {
		g.Summary += "; on " + units.Number(agents) + " of them kdiag agent publishes, so machine and network work"
	}
	g.NextSteps = a.steps(&g, known)
	return g
}

// advisories returns the known bugs that fit at least half of some nodes, those that fit most first.
func (a *analysis) advisories(names []string) []string {
	type build struct{ runtime, kubelet, kernel string }
	nodes, texts, codes := map[build]int{}, map[build][]string{}, map[build][]string{}
	for _, name := range names {
		n, ill := a.byName[name], a.ill[name]
		b := build{n.Info.ContainerRuntimeVersion, n.Info.KubeletVersion, n.Info.KernelVersion}
		nodes[b]++
		texts[b] = append(texts[b], ill.summary, n.Condition(v1.NodeReady).Message)
		codes[b] = append(codes[b], ill.codes...)
	}
	fits := map[string]int{}
	for b, n := range nodes {
		for _, bug := range advisories.Match(advisories.NodeVersions(b.runtime, b.kubelet, b.kernel), codes[b]...) {
			if bug.Shows(texts[b]...) {
				fits[bug.ID] += n
			}
		}
	}
	maps.DeleteFunc(fits, func(_ string, n int) bool { return 2*n < len(names) })
	ids := slices.SortedFunc(maps.Keys(fits), func(x, y string) int {
		return cmp.Or(fits[y]-fits[x], cmp.Compare(x, y))
	})
	return ids[:min(len(ids), mostAdvisories)]
}

// steps returns what to do about a group, at one of its nodes: one with an agent, where there is one.
func (a *analysis) steps(g *checks.FleetGroup, known bool) (all []checks.NextStep) {
	add := func(why, command, touches string) {
		all = append(all, checks.NextStep{Why: why, Command: command, Touches: touches})
	}
	name := g.Nodes[0]
	if i := slices.IndexFunc(g.Nodes, func(name string) bool { return a.fresh(a.byName[name]) }); i >= 0 {
		name = g.Nodes[i]
		add("Read what the agent of one of them found", "kdiag fleet report "+name, checks.TouchesNothing)
	} else if a.byName[name].Condition(v1.NodeReady).Status == v1.ConditionFalse {
		add("Diagnose one of them in a debug pod", "kdiag node "+name, checks.TouchesNewPod)
	}
	add("Look at its conditions and events", "kubectl describe node "+name, checks.TouchesNothing)
	if known {
		add("Read about the cause", "kdiag explain "+g.Cause, checks.TouchesNothing)
	}
	for _, id := range g.Advisories {
		add("Read about a known bug that fits cause and versions", "kdiag explain "+id, checks.TouchesNothing)
	}
	return all
}

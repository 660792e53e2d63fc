package fleet

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/advisories"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/internal/lazyregexp"
	"github.com/kdiag/kdiag/journal/signature"
)

const (
	// stale is the age from which on a condition of the agent does not count: it writes each 5 minutes at the latest.
	stale = 15 * time.Minute
	// leaseAlive is the age of a lease that a running kubelet has at most: it renews each 10 s, for 40 s
	// (nodeLeaseDurationSeconds).
	leaseAlive     = 40 * time.Second
	mostAdvisories = 3 // of a group
)

// zones, types and pools are the labels with the zone, the instance type and the pool of a node.
var (
	zones = []string{v1.LabelTopologyZone, v1.LabelFailureDomainBetaZone}
	types = []string{v1.LabelInstanceTypeStable, v1.LabelInstanceType}
	pools = []string{
		"eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name", // EKS
		"cloud.google.com/gke-nodepool",               // GKE
		"kubernetes.azure.com/agentpool", "agentpool", // AKS, and before
		"karpenter.sh/nodepool", "karpenter.sh/provisioner-name", // Karpenter, and before 0.32
		"kops.k8s.io/instancegroup", "doks.digitalocean.com/node-pool",
		"topology.cluster.x-k8s.io/deployment-name", "cluster.x-k8s.io/deployment-name", // Cluster API, if synced
	}
)

// label returns the first of some labels that a node has.
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
	{signature.RuntimeIsDown, causes.RuntimeDown},
	{signature.RuntimeNotReadyReported, causes.RuntimeNotReady},
	{"RuntimeRecovering", causes.RuntimeNotReady},
	{signature.NetworkNotReady, causes.NetworkNotReady},
	{signature.CNINotInitialized, causes.NetworkNotReady},
	{signature.EventedPLEGFull, causes.KubeletStalled},
	{signature.PLEGNotHealthy, causes.PLEGUnhealthy},
	{"StatusCheckPending", "StatusCheckPending"},
}

// code matches the code of a cause. The API server accepts anything as the reason of a condition, and this one becomes
// a part of a command.
var code = lazyregexp.New(`^[A-Z][A-Za-z]+$`)

// An illness is why a node is sick.
type illness struct {
	*Node
	cause   string   // the group of the node
	codes   []string // of causes that it may be; none where it is no cause of kdiag's
	summary string
	silent  bool // the kubelet is
}

// An analysis is a Snapshot on its way to a report.
type analysis struct {
	*Snapshot
	matcher *signature.Matcher
	counts  checks.FleetCounts
	groups  map[string][]illness // by cause; nodes by name
	well    []illness            // nodes without one
}

// Report analyses a snapshot. Of the header it sets the time, which is the server's, status, problems and next steps.
func Report(s *Snapshot) *checks.FleetReport {
	a := &analysis{Snapshot: s, matcher: signature.NewMatcher(), groups: map[string][]illness{}}
	r := &checks.FleetReport{Nodes: []checks.FleetNode{}, Groups: []checks.FleetGroup{}, Server: new(s.Cost)}
	r.GeneratedAt, r.Status = s.At.UTC().Truncate(time.Second), checks.Healthy
	r.Problems = append([]string{}, s.Problems...) // [] in JSON
	for i := range s.Nodes {
		r.Nodes = append(r.Nodes, a.node(&s.Nodes[i]))
	}
	r.Counts = a.counts
	healthy := a.count(a.well)
	for cause, nodes := range a.groups {
		r.Groups = append(r.Groups, a.group(cause, nodes, healthy))
	}
	slices.SortFunc(r.Groups, func(x, y checks.FleetGroup) int {
		return cmp.Or(len(y.Nodes)-len(x.Nodes), cmp.Compare(x.Cause, y.Cause))
	})
	sortNodes(r)
	switch {
	case len(r.Groups) > 0:
		r.Status, r.NextSteps = checks.Unhealthy, r.Groups[0].NextSteps
	case len(r.Nodes) == 0:
		r.Status, r.Problems = checks.Unknown, append(r.Problems, "the API server has no such nodes")
	case a.counts.Logs != nil && *a.counts.Logs == 0:
		r.Status = checks.Unknown // the first problem says why
	case a.counts.Logs != nil && *a.counts.Findings > 0:
		r.Status = checks.Degraded
	}
	return r
}

// sortNodes orders nodes that are sorted by name: groups as in the report, in each the silent nodes, those that post
// NotReady, those that are Ready, and the longest so first; then the nodes that are not sick.
func sortNodes(r *checks.FleetReport) {
	rank := map[string]int{"": len(r.Groups)}
	for i, g := range r.Groups {
		rank[g.Cause] = i
	}
	since := func(n checks.FleetNode) time.Time { return *cmp.Or(n.Since, &time.Time{}) }
	states := []string{"", string(v1.ConditionUnknown), string(v1.ConditionFalse), string(v1.ConditionTrue)}
	slices.SortStableFunc(r.Nodes, func(x, y checks.FleetNode) int {
		if x.Cause == "" || x.Cause != y.Cause {
			return rank[x.Cause] - rank[y.Cause]
		}
		return cmp.Or(slices.Index(states, x.Ready)-slices.Index(states, y.Ready), since(x).Compare(since(y)))
	})
}

// node describes a node, counts it, and finds out whether it is sick.
func (a *analysis) node(n *Node) checks.FleetNode {
	ready := n.Condition(v1.NodeReady)
	out := checks.FleetNode{
		Name: n.Name, Ready: string(ready.Status), Reason: ready.Reason, Message: ready.Message,
		Kubelet: n.Info.KubeletVersion, Runtime: n.Info.ContainerRuntimeVersion, Kernel: n.Info.KernelVersion,
		OSImage: n.Info.OSImage, Zone: label(n, zones), InstanceType: label(n, types), Pool: label(n, pools),
		Owner: n.Owner, Created: n.Created, Unschedulable: n.Unschedulable, Diagnosis: a.diagnosis(n), Log: n.Log,
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
	found := out.Diagnosis != nil && out.Diagnosis.Status == checks.Unhealthy
	logged := n.Log != nil && n.Log.Status == checks.Unhealthy
	a.counts.Nodes++
	a.countLog(n.Log)
	if a.fresh(n) {
		a.counts.Diagnosed++
	}
	switch {
	case ready.Status == v1.ConditionFalse:
		a.counts.NotReady++
	case ready.Status != v1.ConditionTrue:
		a.counts.Silent++
	case found, logged:
		a.counts.Ready++
		a.counts.Problems++
	default:
		a.counts.Ready++
		a.well = append(a.well, illness{Node: n})
		return out
	}
	ill := byLog(n.Log, a.illness(n, ready))
	if found {
		cause := out.Diagnosis.Cause
		ill = illness{cause: cause, codes: []string{cause}, summary: cmp.Or(out.Diagnosis.Summary, cause)}
	}
	ill.Node = n
	a.groups[ill.cause] = append(a.groups[ill.cause], ill)
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

// illness returns why a node is not ready by its condition Ready alone.
func (a *analysis) illness(n *Node, ready v1.NodeCondition) illness {
	if ready.Status == v1.ConditionFalse {
		const posts = "the kubelet posts NotReady: "
		matches := a.matcher.Match([]byte(ready.Message), nil)
		for _, root := range roots {
			for _, m := range matches {
				if m.Signature.Code == root.signature {
					return illness{cause: root.cause, codes: m.Signature.Implies, summary: posts + m.Signature.Title}
				}
			}
		}
		cause := cmp.Or(ready.Reason, "NotReady")
		return illness{cause: cause, summary: posts + cmp.Or(ready.Message, cause)}
	}
	switch {
	case ready.Status == "":
		return illness{
			cause: "NodeStatusNeverUpdated", summary: "there is no condition Ready: no kubelet has posted its status",
		}
	case a.At.Sub(n.Renewed) <= leaseAlive:
		return illness{cause: "NodeStatusNotUpdated", summary: "the kubelet renews its lease, but its status does not " +
			"change: the API server or a webhook refuses it, or the kubelet has only just come back"}
	}
	return illness{
		cause:   cmp.Or(ready.Reason, "NodeStatusUnknown"),
		summary: "the kubelet is silent: it is down, or the machine or its network is", silent: true,
	}
}

// byLog returns the illness that goes on at the end of a node's log, else that which Ready shows. That PLEG is not
// healthy says less than the other messages of Ready.
func byLog(l *checks.FleetLog, ready illness) illness {
	if l == nil || !l.Ongoing || l.Cause == causes.PLEGUnhealthy && len(ready.codes) > 0 {
		return ready
	}
	return illness{
		cause: l.Cause, codes: []string{l.Cause}, summary: "by the kubelet's log: " + cmp.Or(l.Summary, l.Cause),
		silent: ready.silent,
	}
}

// countLog counts a node by its log; nil where logs were not asked for.
func (a *analysis) countLog(l *checks.FleetLog) {
	if l == nil {
		return
	}
	if a.counts.Logs == nil {
		a.counts.Logs, a.counts.Findings = new(int), new(int)
	}
	if l.Problem == "" {
		*a.counts.Logs++
	}
	if l.Status == checks.Degraded {
		*a.counts.Findings++
	}
}

// group describes the nodes with one cause.
func (a *analysis) group(cause string, nodes []illness, healthy map[property]int) checks.FleetGroup {
	g := checks.FleetGroup{Cause: cause, Common: a.common(nodes, healthy), Advisories: knownBugs(nodes)}
	first, times := map[string]string{}, map[string]int{} // of the summaries
	addresses := map[string][]v1.NodeAddress{}
	known, agent, logged, alive := false, "", "", 0
	for _, n := range nodes {
		g.Nodes, addresses[n.Name] = append(g.Nodes, n.Name), n.Addresses
		if times[n.summary]++; first[n.summary] == "" {
			first[n.summary] = n.Name
		}
		known = known || slices.Contains(n.codes, cause) && code.MatchString(cause)
		if n.Log != nil && n.Log.Cause == cause {
			logged = cmp.Or(logged, n.Name)
		}
		if a.fresh(n.Node) {
			agent = cmp.Or(agent, n.Name)
			if n.silent {
				alive++
			}
		}
	}
	g.Summary = slices.MinFunc(slices.Sorted(maps.Keys(times)), func(x, y string) int { return times[y] - times[x] })
	if times[g.Summary] < len(nodes) {
		g.Summary += " (" + first[g.Summary] + ")"
	}
	if alive > 0 {
		g.Summary += "; on " + units.Number(alive) + " of them kdiag agent publishes, so machine and network work"
	}
	add := func(why, command, touches string) {
		g.NextSteps = append(g.NextSteps, checks.NextStep{Why: why, Command: command, Touches: touches})
	}
	name := cmp.Or(agent, logged, g.Nodes[0])
	if logged != "" {
		add("Read the log of one of them", "kubectl get --raw '"+logPath(logged)+"?query=kubelet&tailLines=20000' | "+
			"TZ=UTC kdiag journal", checks.TouchesNothing)
	}
	if agent != "" {
		add("Read what the agent of one of them found", "kdiag fleet report "+name, checks.TouchesNothing)
	} else if nodes[0].Condition(v1.NodeReady).Status == v1.ConditionFalse {
		if a.counts.Diagnosed > 0 {
			add("Diagnose one of them in a debug pod", "kdiag node "+name, checks.TouchesNewPod)
		} else { // no image of kdiag is known
			add("Copy kdiag to one of them and diagnose it there", byHand(name, addresses[name]), checks.TouchesNothing)
		}
	}
	add("Look at its conditions and events", "kubectl describe node "+name, checks.TouchesNothing)
	if known {
		add("Read about the cause", "kdiag explain "+cause, checks.TouchesNothing)
	}
	for _, id := range g.Advisories {
		add("Read about a known bug that fits cause and versions", "kdiag explain "+id, checks.TouchesNothing)
	}
	return g
}

// knownBugs returns the advisories that fit the versions that most of some nodes have, the best first.
func knownBugs(nodes []illness) (ids []string) {
	builds := map[[3]string]int{}
	var texts, codes []string
	for _, n := range nodes {
		builds[[3]string{n.Info.ContainerRuntimeVersion, n.Info.KubeletVersion, n.Info.KernelVersion}]++
		texts = append(texts, n.summary, n.Condition(v1.NodeReady).Message)
		codes = append(codes, n.codes...)
	}
	most := slices.MaxFunc(slices.Collect(maps.Keys(builds)), func(x, y [3]string) int {
		return cmp.Or(builds[x]-builds[y], slices.Compare(x[:], y[:]))
	})
	for _, bug := range advisories.Match(advisories.NodeVersions(most[0], most[1], most[2]), codes...) {
		if len(ids) < mostAdvisories && bug.Shows(texts...) {
			ids = append(ids, bug.ID)
		}
	}
	return ids
}

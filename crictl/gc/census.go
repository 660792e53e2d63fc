package gc

import (
	"cmp"
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// A PodCount counts objects of one pod: the exited instances of one of its containers, or its dead sandboxes.
type PodCount struct {
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	PodUID    string    `json:"podUID"`
	Container string    `json:"container"` // empty for sandboxes
	Count     int       `json:"count"`
	Bytes     int64     `json:"bytes"`  // of their entries in the runtime's list
	Oldest    time.Time `json:"oldest"` // by creation
	Newest    time.Time `json:"newest"`
	NewestID  string    `json:"newestID"`
	// LastReason and LastExitCode are the newest container's, if its status could be read.
	LastReason   string `json:"lastReason,omitempty"`
	LastExitCode *int32 `json:"lastExitCode,omitempty"`
	Gone         bool   `json:"gone,omitempty"` // the pod no longer exists
}

// An OwnerCount counts the exited containers of one workload. Kind is that of crictl.Owner; Pod, with the pod's name,
// where the labels show no workload.
type OwnerCount struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Count     int    `json:"count"`
	Pods      int    `json:"pods"`
	Bytes     int64  `json:"bytes"`
}

// CountExited groups exited containers by pod and container name, the kubelet's evict unit; the largest group comes
// first. All but one of each group are beyond the newest. Containers that no kubelet made are in a group without a
// PodUID.
func CountExited(all []crictl.Container) []PodCount {
	g := grouping{}
	for i := range all {
		if c := &all[i]; c.State == crictl.ContainerExited {
			g.add(c.Pod, c.Name, c.ID, c.Created(), int64(c.Size))
		}
	}
	return g.sorted()
}

// Count groups the candidates of a plan like CountExited.
func (p *Plan) Count() []PodCount {
	g := grouping{}
	for i := range p.Remove {
		c := &p.Remove[i]
		pod := crictl.Pod{UID: c.PodUID, Namespace: c.Namespace, Name: c.Pod}
		g.add(&pod, c.Container, c.ID, c.CreatedAt, c.Bytes)
	}
	return g.sorted()
}

// BeyondNewest is how many of the groups' members are not the newest of their group.
func BeyondNewest(groups []PodCount) int {
	n := 0
	for i := range groups {
		n += groups[i].Count - 1
	}
	return n
}

// A grouping gathers PodCounts by pod and container name.
type grouping map[groupKey]*PodCount

type groupKey struct {
	pod       crictl.Pod
	container string
}

func (g grouping) add(pod *crictl.Pod, container, id string, created time.Time, bytes int64) {
	c := entry(g, groupKey{*pod, container}, PodCount{
		Namespace: pod.Namespace, Pod: pod.Name, PodUID: pod.UID, Container: container, Oldest: created,
		Newest: created,
	})
	c.Count++
	c.Bytes += bytes
	if created.Before(c.Oldest) {
		c.Oldest = created
	}
	if n := created.Compare(c.Newest); n > 0 || n == 0 && id > c.NewestID {
		c.Newest, c.NewestID = created, id
	}
}

func (g grouping) sorted() []PodCount {
	return sorted(g, func(a, b PodCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod),
			cmp.Compare(a.Container, b.Container), cmp.Compare(a.PodUID, b.PodUID))
	})
}

// sorted returns the entries of m in order, and never nil.
func sorted[K comparable, V any](m map[K]*V, order func(a, b V) int) []V {
	all := make([]V, 0, len(m))
	for _, v := range m {
		all = append(all, *v)
	}
	slices.SortFunc(all, order)
	return all
}

// A Census counts the exited containers and dead sandboxes of a node. With apiVersion, kind and generatedAt before it,
// it is the ExitedCensus of kdiag's JSON.
type Census struct {
	Total       int              `json:"total"`     // exited containers
	Sandboxes   int              `json:"sandboxes"` // that are not ready
	States      StateCounts      `json:"states"`
	ByPod       []PodCount       `json:"byPod"`       // as CountExited returns them, without those that no kubelet made
	ByOwner     []OwnerCount     `json:"byOwner"`     // most first
	ByNamespace []NamespaceCount `json:"byNamespace"` // most first
	// ByReason counts how the newest of each pod and container ended, where that is known; most first.
	ByReason []ReasonCount `json:"byReason"`
	ByAge    []AgeCount    `json:"byAge"` // exited containers by the time since their creation; youngest first
	// Bytes is the size of the exited containers' entries in the runtime's list, ListBytes that of the whole list.
	Bytes        int64   `json:"bytes"`
	ListBytes    int64   `json:"listBytes"`
	LimitBytes   int64   `json:"limitBytes"`   // of one message
	ShareOfLimit float64 `json:"shareOfLimit"` // Bytes / LimitBytes
	ListOfLimit  float64 `json:"listOfLimit"`  // ListBytes / LimitBytes; beyond 1 the kubelet gets no list
	Partial      bool    `json:"partial"`      // a list was incomplete: there may be more
	Growth       *Growth `json:"growth,omitempty"`
}

// StateCounts are the containers and sandboxes of a node by state.
type StateCounts struct {
	Created        int `json:"created"`
	Running        int `json:"running"`
	Exited         int `json:"exited"`
	Unknown        int `json:"unknown"`
	ReadySandboxes int `json:"readySandboxes"`
	DeadSandboxes  int `json:"deadSandboxes"`
	EmptySandboxes int `json:"emptySandboxes"` // not ready and without containers
}

// A NamespaceCount counts exited containers and the pods that they belong to.
type NamespaceCount struct {
	Namespace string `json:"namespace"`
	Count     int    `json:"count"`
	Pods      int    `json:"pods"`
	Bytes     int64  `json:"bytes"`
}

// A ReasonCount counts units by how their newest instance ended.
type ReasonCount struct {
	Reason   string `json:"reason"`
	ExitCode int32  `json:"exitCode"`
	Count    int    `json:"count"`  // units
	Exited   int    `json:"exited"` // exited containers of those units
}

// An AgeCount counts exited containers that were created less than UpToSeconds ago and not in an earlier bucket. The
// last has no bound: 0.
type AgeCount struct {
	UpToSeconds float64 `json:"upToSeconds,omitempty"`
	Count       int     `json:"count"`
}

// TakeCensus counts. ends holds the ends that are known, by container id; limit is the largest message, in bytes, that
// the kubelet accepts, see crictl.DefaultMessageLimit.
func TakeCensus(node Node, ends map[string]End, limit int64, now time.Time) Census {
	c := Census{LimitBytes: limit, Partial: node.Partial, ByPod: []PodCount{}}
	c.count(&node, now)
	p := newPlanner(&node, Rules{}, now)
	c.ShareOfLimit = float64(c.Bytes) / float64(limit)
	c.ListOfLimit = float64(c.ListBytes) / float64(limit)
	namespaces, reasons, pods := map[string]*NamespaceCount{}, map[ReasonCount]*ReasonCount{}, map[string]bool{}
	owners, workloads := map[OwnerCount]*OwnerCount{}, map[string]crictl.Owner{}
	for i := range node.Sandboxes {
		workloads[node.Sandboxes[i].Pod.UID] = node.Sandboxes[i].Owner
	}
	for _, u := range CountExited(node.Containers) {
		if u.PodUID == "" || u.Container == "" {
			continue
		}
		u.Gone = p.pods[u.PodUID] != nil && p.pods[u.PodUID].gone
		if end, ok := ends[u.NewestID]; ok {
			u.LastReason, u.LastExitCode = end.Reason, &end.ExitCode
			key := ReasonCount{Reason: end.Reason, ExitCode: end.ExitCode}
			r := entry(reasons, key, key)
			r.Count++
			r.Exited += u.Count
		}
		n := entry(namespaces, u.Namespace, NamespaceCount{Namespace: u.Namespace})
		owner := workloads[u.PodUID]
		if owner.Kind == "" {
			owner = crictl.Owner{Kind: "Pod", Name: u.Pod}
		}
		key := OwnerCount{Namespace: u.Namespace, Kind: owner.Kind, Name: owner.Name}
		o := entry(owners, key, key)
		n.Count, o.Count = n.Count+u.Count, o.Count+u.Count
		n.Bytes, o.Bytes = n.Bytes+u.Bytes, o.Bytes+u.Bytes
		if !pods[u.PodUID] {
			pods[u.PodUID] = true
			n.Pods++
			o.Pods++
		}
		c.ByPod = append(c.ByPod, u)
	}
	c.ByOwner = sorted(owners, func(a, b OwnerCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Kind, b.Kind))
	})
	c.ByNamespace = sorted(namespaces, func(a, b NamespaceCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Namespace, b.Namespace))
	})
	c.ByReason = sorted(reasons, func(a, b ReasonCount) int {
		return cmp.Or(cmp.Compare(b.Exited, a.Exited), cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.ExitCode, b.ExitCode))
	})
	return c
}

// count counts containers and sandboxes by state, age and size.
func (c *Census) count(node *Node, now time.Time) {
	const day = 24 * time.Hour
	bounds := []time.Duration{time.Hour, day, 7 * day, 30 * day}
	c.ByAge = make([]AgeCount, len(bounds)+1)
	for i, b := range bounds {
		c.ByAge[i].UpToSeconds = b.Seconds()
	}
	occupied := make(map[string]bool, len(node.Sandboxes))
	for i := range node.Containers {
		k := &node.Containers[i]
		occupied[k.SandboxID] = true
		c.ListBytes += int64(k.Size)
		switch k.State {
		case crictl.ContainerCreated:
			c.States.Created++
		case crictl.ContainerRunning:
			c.States.Running++
		case crictl.ContainerExited:
			c.States.Exited++
			c.Bytes += int64(k.Size)
			at, _ := slices.BinarySearch(bounds, now.Sub(k.Created())+1)
			c.ByAge[at].Count++
		default:
			c.States.Unknown++
		}
	}
	for i := range node.Sandboxes {
		switch s := &node.Sandboxes[i]; {
		case s.State == crictl.SandboxReady:
			c.States.ReadySandboxes++
			continue
		case !occupied[s.ID]:
			c.States.EmptySandboxes++
		}
		c.States.DeadSandboxes++
	}
	c.Total, c.Sandboxes = c.States.Exited, c.States.DeadSandboxes
}

// entry returns the entry of m at key, which it adds as fresh if it is missing.
func entry[K comparable, V any](m map[K]*V, key K, fresh V) *V {
	if m[key] == nil {
		m[key] = &fresh
	}
	return m[key]
}

// A Growth is the difference between two censuses of a node.
type Growth struct {
	Seconds          float64 `json:"seconds"`    // between the two
	Containers       int     `json:"containers"` // more exited ones; negative when there are fewer
	Sandboxes        int     `json:"sandboxes"`  // more that are not ready
	Bytes            int64   `json:"bytes"`      // by which the list of containers has grown
	ContainersPerDay float64 `json:"containersPerDay"`
	// SecondsToLimit is the time until the list of containers exceeds the limit of a message, if growth continues: 0
	// when it does already, absent when it does not grow.
	SecondsToLimit *float64 `json:"secondsToLimit,omitempty"`
}

// Grow compares two censuses that were taken so many seconds apart. It returns nil when no time has passed, or when one
// of them is incomplete.
func Grow(before, after *Census, seconds float64) *Growth {
	if seconds <= 0 || before.Partial || after.Partial {
		return nil
	}
	const day = 24 * 60 * 60 // seconds
	g := &Growth{
		Seconds:    seconds,
		Containers: after.Total - before.Total,
		Sandboxes:  after.Sandboxes - before.Sandboxes,
		Bytes:      after.ListBytes - before.ListBytes,
	}
	g.ContainersPerDay = float64(g.Containers) / seconds * day
	left := after.LimitBytes - after.ListBytes
	switch {
	case left <= 0:
		g.SecondsToLimit = new(float64)
	case g.Bytes > 0:
		g.SecondsToLimit = new(float64(left) / float64(g.Bytes) * seconds)
	}
	return g
}

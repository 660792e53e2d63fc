package facts

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/internal/lazyregexp"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// When workloads fail together. What is younger is a rollout, or a node that comes up.
const (
	leastFailing = 3                // workloads: two may share a dependency by chance
	longRun      = 5 * time.Minute  // age of a pod's sandbox
	recent       = 10 * time.Minute // age of a container that was started again
	// A probe is made each 10 s by default. One that fails more seldom than each half a minute is late now and then.
	probePause = 30 * time.Second
	// A pod that is not ready since so long after its sandbox was made has been ready before.
	wasReady = 30 * time.Second
)

var (
	// generated is what a controller adds to the name of a pod.
	generated = lazyregexp.New(`-([a-z0-9]{5}|[0-9]+)$`)
	// quotedPart finds the command of a probe in its result.
	quotedPart = lazyregexp.New(`"[^"]*"? ?`)
)

// A workload is what the pods of one owner, or else those of the same name but for its generated end, belong to.
type workload struct {
	namespace string
	owner     crictl.Owner
}

// failing returns the pods that restart in their sandbox, fail their probes or are ready no more, by their names, where
// they belong to at least three workloads and to half of those that have run on the node for a while. Pods of Jobs do
// not count.
func failing(f *Facts) map[string]PodTrouble {
	trouble := map[string]PodTrouble{}
	if !f.Calls.BothLists {
		return trouble
	}
	probes := subjectsOf(f, signature.ProbeFailed)
	restarted := restarts(f)
	all, some := map[workload]bool{}, map[workload]bool{}
	for _, s := range sandboxesOf(f) {
		lost, ready := readiness(f, &s)
		young := f.Now.Sub(s.Created()) < longRun && lost.IsZero() && !ready
		if s.State != crictl.SandboxReady || young || s.Owner.Kind == "Job" || s.Owner.Kind == "CronJob" ||
			goes(f, s.Pod.UID) {
			continue
		}
		w := workload{s.Pod.Namespace, cmp.Or(s.Owner, crictl.Owner{Name: generated.ReplaceAllString(s.Pod.Name, "")})}
		all[w] = true
		name, t := s.Pod.Namespace+"/"+s.Pod.Name, PodTrouble{Pod: *s.Pod, Stage: Fails}
		t.Since = later(restarted[s.ID], lost)
		if i := slices.IndexFunc(probes, func(p journal.SubjectCount) bool { return p.ID == name }); i >= 0 {
			// Of several lines klog has the first mark, and journald the others in other records.
			t.Words = strings.TrimPrefix(quotedPart.ReplaceAllString(errorOf(probes[i].Error), ""), "<")
			if failsNow(f, probes[i]) {
				t.Since = *probes[i].First
			}
		}
		if !t.Since.IsZero() {
			some[w], trouble[name] = true, t
		}
	}
	// A report names so many pods of a signature at most.
	if len(some) < leastFailing || 2*len(some) < len(all) && len(some) < topSubjects {
		return map[string]PodTrouble{}
	}
	f.Pods.Failing, f.Pods.Workloads = len(some), len(all)
	return trouble
}

// readiness returns since when the pod of a sandbox is not ready, for a minute at least, though it has been; zero if
// that is not so, or not known. It reports whether the kubelet has it as ready now.
func readiness(f *Facts, s *crictl.PodSandbox) (lost time.Time, ready bool) {
	for _, w := range f.Seen.Pods.Value {
		switch {
		case w.UID != s.Pod.UID || w.Phase != "Running":
		case w.Unready == nil:
			return lost, true
		case f.Now.Sub(*w.Unready) >= troubleAge && w.Unready.Sub(s.Created()) >= wasReady:
			return *w.Unready, false
		}
	}
	return lost, false
}

// ProbeWords returns what the last failed probe of a pod said, without its command; empty where none failed of late.
func ProbeWords(f *Facts, name string) string {
	for _, p := range subjectsOf(f, signature.ProbeFailed) {
		if p.ID == name && Fresh(f, p.Last, troubleAge) {
			return quotedPart.ReplaceAllString(errorOf(p.Error), "")
		}
	}
	return ""
}

// goes reports whether the kubelet has a pod that is to go.
func goes(f *Facts, uid string) bool {
	return slices.ContainsFunc(f.Seen.Pods.Value, func(w kubelet.Pod) bool { return w.UID == uid && w.Deleted != nil })
}

// failsNow reports whether the probes of a pod fail again and again, until now.
func failsNow(f *Facts, p journal.SubjectCount) bool {
	return p.Count >= leastProbes && p.First != nil && Fresh(f, p.Last, troubleAge) &&
		p.Last.Sub(*p.First) < time.Duration(p.Count)*probePause
}

// restarts returns the sandboxes with a container that was started again, and has ended or not run for long since, and
// when the newest of those was made. The first containers of a sandbox are made with it.
func restarts(f *Facts) map[string]time.Time {
	made := map[string]time.Time{}
	for _, s := range sandboxesOf(f) {
		made[s.ID] = s.Created()
	}
	at, newest := map[string]time.Time{}, newestOf(containersOf(f))
	for _, c := range containersOf(f) {
		age := f.Now.Sub(c.Created())
		ended := c.State == crictl.ContainerExited
		if c.Attempt > 0 && newest[attempts{c.SandboxID, c.Name}] == c.CreatedAt && age < recent &&
			(ended || age < attachTime) && c.Created().Sub(made[c.SandboxID]) > troubleAge {
			at[c.SandboxID] = later(at[c.SandboxID], c.Created())
		}
	}
	return at
}

// DefaultPodLogs is the default of the kubelet's podLogsDir.
const DefaultPodLogs = "/var/log/pods"

// An Unexecutable is a container whose program the kernel cannot execute: it is made for another architecture, or is a
// script that does not name its interpreter. It ends as it starts, and only its own log says why.
type Unexecutable struct {
	Pod   crictl.Pod
	Words string // of the OCI runtime
	Since time.Time
}

// cannotExecute finds the only line of such a container, in the format of the CRI: runc's, crun's, and those of runc
// before 1.1.
var cannotExecute = lazyregexp.New(`^\S+ std(?:err|out) F ((?:\S+: )?exec [^:]*: (?i:exec format error))\n?$`)

// CannotExecute returns the OCI runtime's words about a program that the kernel cannot execute, where the log of a
// container has nothing else; else empty.
func CannotExecute(log string) string {
	m := append(cannotExecute.FindStringSubmatch(log), "", "")
	return m[1]
}

// LogOf is the path of a container's log below podLogsDir (BuildContainerLogsDirectory in pkg/kubelet/kuberuntime).
func LogOf(c crictl.Container) string {
	p := PodOf(c.Pod)
	return path.Join("/", path.Base(p.Namespace+"_"+p.Name+"_"+p.UID), path.Base(c.Name), fmt.Sprint(c.Attempt, ".log"))
}

// CrashLoops returns the newest containers that ended, of those that were started again within the last minutes.
func CrashLoops(m *plegbench.Measurement, now time.Time) []crictl.Container {
	if m == nil || m.Containers == nil {
		return nil
	}
	all := m.Containers.Containers
	newest := newestOf(all)
	return filter(all, func(c crictl.Container) bool {
		return c.State == crictl.ContainerExited && c.Attempt > 0 && now.Sub(c.Created()) < recent &&
			newest[attempts{c.SandboxID, c.Name}] == c.CreatedAt
	})
}

package syncloop

import (
	"cmp"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/kuberuntime"
	"github.com/kdiag/kdiag/plegbench/syncloop/pleg"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// The kinds of a Step.
const (
	StepChapter = "chapter" // a change of the pod begins: it is created, changed, deleted, or a container of it ends
	StepWork    = "step"    // a part did something
	StepWaiting = "waiting" // nothing was done; the next step ended it
	StepRemark  = "remark"  // on a pod or an answer that does not come
	StepEnd     = "end"     // of the chapter, with its slowest work
)

// A Step is one in the life of a pod.
type Step struct {
	Kind string
	N    int           // from 1 in each chapter; of work only
	At   time.Duration // of its end, since the chapter began
	Took time.Duration // by a call, or waited; 0 where that was not measured
	Part string        // one of TraceParts
	Func string        // that does this in the kubelet
	Text string
}

// TraceParts are the parts of the syncLoop that a Trace names, in the order in which a new pod passes them.
var TraceParts = []string{"loop", "worker", "volumes", "containers", "runtime", "PLEG", "probes", "status"}

// A Trace follows one pod by the log lines about it, at any verbosity, and by the CRI calls for it. What happens to the
// pod is told in chapters, from a change to the moment at which the pod is ready, has ended or is gone.
type Trace struct {
	names  []string // namespace/name
	report func(Step)

	mu   sync.Mutex
	seen bool              // a source has the pod
	ids  map[string]string // of the pod's sandboxes and containers; the latter have names
	spec *v1.PodSpec
	busy int // CRI calls for the pod that are under way
	chapter
}

// A chapter is what a Trace knows of the change that it tells.
type chapter struct {
	start  time.Time
	open   bool   // it is under way
	leaves bool   // the pod is to go
	next   string // the chapter that waits for the end of this one
	n      int
	last   time.Duration
	failed bool            // the last sync did
	work   Step            // the slowest
	told   map[string]bool // lines that are not repeated
}

// NewTrace makes a Trace of the pod [namespace/]name. The name of a static pod may lack the node's. report gets the
// steps, one at a time.
func NewTrace(name, node string, report func(Step)) *Trace {
	if !strings.Contains(name, "/") {
		name = v1.NamespaceDefault + "/" + name
	}
	return &Trace{
		names: []string{name, name + "-" + strings.ToLower(node)}, report: report, ids: map[string]string{},
	}
}

const (
	// patience is the time after which a Trace remarks on a missing pod or answer.
	patience = 10 * time.Second
	// leastWait is the shortest pause that is told as waiting, and the shortest status call that is told at all.
	leastWait = 100 * time.Millisecond
)

// late reports that the pod has not appeared, and the pods that have.
func (t *Trace) late(pods []*v1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen {
		return
	}
	seen := "none"
	for i, p := range pods {
		seen = ifElse(i > 0, seen+", ", "") + pod.Format(p)
	}
	t.report(Step{Kind: StepRemark, Text: fmt.Sprintf("no pod %s yet; pods seen: %s", t.names[0], seen)})
}

// sees keeps the specification of the pod, for the names of its containers. t may be nil.
func (t *Trace) sees(pods []*v1.Pod) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range pods {
		if slices.Contains(t.names, pod.Format(p)) {
			t.spec = &p.Spec
		}
	}
}

// begin starts a chapter. One in which the pod goes ends first.
func (t *Trace) begin(text string, leaves bool) {
	if t.open && t.leaves && !leaves {
		t.next = text
		return
	}
	t.seen, t.chapter = true, chapter{open: true, leaves: leaves, start: time.Now(), told: map[string]bool{}}
	t.report(Step{Kind: StepChapter, Text: text})
}

// end ends the chapter.
func (t *Trace) end(text string) {
	if t.work.Took > 0 {
		text += "; slowest work: " + t.work.Text
	}
	t.report(Step{Kind: StepEnd, At: t.last, Took: t.work.Took, Text: text})
	t.open, t.leaves = false, false
	if next := t.next; next != "" {
		t.begin(next, false)
	}
}

// add reports a step that ended now. took is how long it worked, 0 where that was not measured; until tells what a
// pause before it waited for, empty where the pause was work.
func (t *Trace) add(part, function, text string, took time.Duration, until string) {
	at := time.Since(t.start)
	pause := at - took - t.last
	switch {
	case until == "":
		took = max(took, pause)
	case pause >= leastWait && t.busy == 0:
		t.report(Step{Kind: StepWaiting, At: at - took, Took: pause, Text: until})
	}
	t.n, t.last = t.n+1, at
	s := Step{StepWork, t.n, at, took, part, function, text}
	if took > t.work.Took {
		t.work = s
		t.work.Text = fmt.Sprintf("%d, %s", s.N, text)
	}
	t.report(s)
}

// call takes each CRI call. ImageStatus names no pod.
func (t *Trace) call(req any) (ended func(resp any, err error)) {
	if t == nil {
		return nil
	}
	var sandbox *runtimeapi.PodSandboxConfig
	id, name, more, until := "", "", "", "until it was called"
	rpc := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", req), "*v1."), "Request")
	switch r := req.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		sandbox = r.GetConfig()
	case *runtimeapi.PullImageRequest:
		sandbox, name = r.GetSandboxConfig(), r.GetImage().GetImage()
	case *runtimeapi.CreateContainerRequest:
		sandbox, name = r.GetSandboxConfig(), r.GetConfig().GetMetadata().GetName()
	case *runtimeapi.ExecSyncRequest: // a probe has a timeout
		id, more = r.GetContainerId(), ifElse(r.GetTimeout() == 0, ": its hook", ": its probe")
		until = ifElse(r.GetTimeout() == 0, until, "until the next probe")
	case interface{ GetContainerId() string }:
		id = r.GetContainerId()
	case interface{ GetPodSandboxId() string }:
		id = r.GetPodSandboxId()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known, ours := t.ids[id]
	of := sandbox.GetMetadata().GetNamespace() + "/" + sandbox.GetMetadata().GetName()
	if !ours && !slices.Contains(t.names, of) {
		return nil
	}
	t.busy++
	text, start := strings.TrimSpace(rpc+" "+known+name)+more, time.Now()
	late := time.AfterFunc(patience, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.open {
			t.report(Step{Kind: StepRemark, Text: fmt.Sprintf("%s has no answer after %v", text, patience)})
		}
	})
	return func(resp any, err error) {
		late.Stop()
		t.mu.Lock()
		defer t.mu.Unlock()
		t.busy--
		switch r := resp.(type) {
		case *runtimeapi.CreateContainerResponse:
			t.ids[r.GetContainerId()] = name
		case *runtimeapi.RunPodSandboxResponse:
			t.ids[r.GetPodSandboxId()] = ""
		}
		// What only looks is told by what it finds, unless it is slow.
		took, looks := time.Since(start), strings.HasSuffix(rpc, "Status") || strings.HasSuffix(text, " probe")
		if t.open && (!looks || took >= leastWait || err != nil) {
			function := cmp.Or(functionsOf[rpc], "a CRI call")
			t.add("runtime", function, text+ifElse(err != nil, " failed", ""), took, until)
		}
	}
}

// functionsOf are the functions of the kubelet that make a CRI call for a pod.
var functionsOf = map[string]string{
	"RunPodSandbox": "createPodSandbox", "PullImage": "EnsureImageExists", "CreateContainer": "startContainer",
	"StartContainer": "startContainer", "ExecSync": "RunInContainer", "StopContainer": "killContainer",
	"StopPodSandbox": "killPodWithSyncResult", "RemoveContainer": "removeContainer", "RemovePodSandbox": "evictSandboxes",
	"PodSandboxStatus": "GetPodStatus", "ContainerStatus": "GetPodStatus",
}

// A traceSink passes log lines to a Trace and to another sink.
type traceSink struct {
	logr.LogSink
	trace *Trace
	keys  []any // and values, of all lines
}

func (s traceSink) Enabled(int) bool { return true }

func (s traceSink) WithValues(kv ...any) logr.LogSink {
	return traceSink{s.LogSink.WithValues(kv...), s.trace, slices.Concat(s.keys, kv)}
}

func (s traceSink) Info(level int, msg string, kv ...any) {
	s.trace.line(msg, slices.Concat(s.keys, kv), nil)
	if s.LogSink.Enabled(level) {
		s.LogSink.Info(level, msg, kv...)
	}
}

func (s traceSink) Error(err error, msg string, kv ...any) {
	s.trace.line(msg, slices.Concat(s.keys, kv), err)
	s.LogSink.Error(err, msg, kv...)
}

// line takes a line of the log.
func (t *Trace) line(msg string, kv []any, err error) {
	values, ours := map[string]any{}, false
	for i := 0; i+1 < len(kv); i += 2 {
		key, _ := kv[i].(string)
		values[key] = kv[i+1]
		if key == "pod" || key == "pods" {
			for name := range strings.FieldsSeq(strings.Trim(fmt.Sprint(kv[i+1]), "[]")) {
				ours = ours || slices.Contains(t.names, name)
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !ours {
		return
	}
	t.chapterOf(msg, values)
	if !t.open {
		return
	}
	l, known := traceLines[msg]
	switch {
	case !known && err == nil:
		return
	case !known:
		_, file, _, _ := runtime.Caller(3) // of logr
		l = traceLine{part: path.Base(path.Dir(file)), until: "until it failed"}
	}
	text := msg
	if known {
		text = t.textOf(l, values)
	}
	if err != nil {
		text = strings.TrimSpace(text + ": " + err.Error())
	}
	if text == "" || t.told[msg+text] {
		return
	}
	t.told[msg+text] = !strings.HasPrefix(msg, "SyncLoop (PLEG)")
	until := l.until
	switch ready, _ := values["ready"].(bool); {
	case strings.HasSuffix(text, hasEnded) && until == untilRelist:
		until = "until a relist saw that " + text
	case ready:
		until = "until its probes succeeded"
	}
	if msg == "Error syncing pod, skipping" || msg == "MountVolume.SetUp failed for volume" {
		t.failed = true
	} else if t.failed && (l.function == "HandlePodSyncs" || l.part == "containers" || l.part == "volumes") {
		t.failed, until = false, "until it was tried again"
	}
	t.add(l.part, l.function, text, 0, until)
	t.endOf(msg, values)
}

// chapterOf begins a chapter where a line tells of a change.
func (t *Trace) chapterOf(msg string, values map[string]any) {
	name, source := t.names[0], fmt.Sprint(values["source"])
	switch msg {
	case "SyncLoop ADD":
		if source == pod.APIServerSource && t.open { // the mirror pod of a static one
			return
		}
		t.begin(fmt.Sprintf("%s is new: the source %s has it", name, source), false)
	case "SyncLoop UPDATE":
		t.begin(fmt.Sprintf("%s changed: the source %s has another specification", name, source), false)
	case "SyncLoop DELETE":
		t.begin(name+" is deleted: it has its grace period to end", true)
	case "SyncLoop REMOVE":
		if !t.open || !t.leaves {
			t.begin(fmt.Sprintf("%s is removed: the source %s does not have it any more", name, source), true)
		}
	case "SyncLoop (PLEG): event for pod":
		e, _ := values["event"].(pleg.Event)
		if c := t.ids[e.Data]; !t.open && t.seen && e.Type == pleg.ContainerDied && c != "" {
			t.begin(fmt.Sprintf("%s: container %s has ended", name, c), false)
		}
	case "SyncLoop (probe)":
		if !t.open && t.seen && values["status"] != "ready" && values["status"] != "started" {
			t.begin(fmt.Sprintf("%s: the %v probe fails", name, values["probe"]), false)
		}
	}
}

// endOf ends the chapter where a line tells that the pod is ready, has ended or is gone.
func (t *Trace) endOf(msg string, values map[string]any) {
	ready, _ := values["ready"].(bool)
	phase, _ := values["phase"].(v1.PodPhase)
	switch {
	case msg == "Pod is complete and the worker can now stop" && t.leaves:
		t.end("Gone")
	case msg == "updateStatusInternal" && !t.leaves && ready:
		t.end("Ready")
	case msg == "updateStatusInternal" && !t.leaves && pod.IsTerminal(phase):
		t.end(string(phase))
	}
}

// A traceLine says how a Trace tells a line of the log.
type traceLine struct {
	part, function string
	until          string // what a pause before it waited for; empty: the pause was its work
	text           string // with the line's values in the place of {key}; empty: textOf makes it
}

const (
	untilTold   = "until the source changed"
	untilRelist = "until the next relist"
	untilWorker = "until the worker came to it"
	untilProbe  = "until the next probe"
)

// traceLines are the lines that a Trace tells, with the kubelet's functions. Other lines are told only if they are
// errors.
var traceLines = map[string]traceLine{
	"SyncLoop ADD":                  {"loop", "HandlePodAdditions", untilTold, "new pod from the source {source}"},
	"SyncLoop UPDATE":               {"loop", "HandlePodUpdates", untilTold, "another specification from {source}"},
	"SyncLoop DELETE":               {"loop", "HandlePodUpdates", untilTold, "deletion requested in the API"},
	"SyncLoop REMOVE":               {"loop", "HandlePodRemoves", untilTold, "gone from the source {source}"},
	"SyncLoop (SYNC) pods":          {"loop", "HandlePodSyncs", "until the pod was due for a sync", "sync it again"},
	"SyncLoop (probe)":              {"loop", "handleProbeSync", untilProbe, ""},
	"Pod admission denied":          {"loop", "canAdmitPod", "", "refused: {message}"},
	"Failed to delete pod":          {"loop", "deletePod", "", "not yet: {err}"},
	"PLEG: Write status":            {"PLEG", "relistPod", untilRelist, "the pod cache has its new status"},
	"Pod data directories are made": {"worker", "makePodDataDirs", untilWorker, "folders of the pod made"},

	"SyncLoop (PLEG): event for pod": {"PLEG", "syncLoopIteration", untilRelist, ""},

	"Pod is being synced for the first time": {"worker", "UpdatePod", untilWorker, "starts a worker for it"},
	"Cancelling current pod sync":            {"worker", "UpdatePod", untilWorker, "ends the sync under way"},
	"Error syncing pod, skipping":            {"worker", "podWorkerLoop", "", "the sync failed"},
	"Pod terminated all containers successfully": {
		"worker", "SyncTerminatingPod", "", "all its containers have ended",
	},
	"Pod is complete and the worker can now stop": {
		"worker", "SyncTerminatedPod", untilRelist, "volumes are unmounted, the worker ends",
	},
	"Pod is being removed by the kubelet, begin teardown": {"worker", "UpdatePod", untilWorker, "termination begins"},
	"Pod is marked for graceful deletion, begin teardown": {"worker", "UpdatePod", untilWorker, "termination begins"},
	"Pod is orphaned and must be torn down": {
		"worker", "UpdatePod", untilWorker, "termination begins: no source has it",
	},
	"Pod is being evicted by the kubelet, begin teardown": {
		"worker", "UpdatePod", untilWorker, "termination begins: it is evicted",
	},

	"MountVolume.SetUp succeeded for volume": {"volumes", "WaitForAttachAndMount", "", "mounted {volumeName}"},
	"MountVolume.SetUp failed for volume":    {"volumes", "WaitForAttachAndMount", "", "cannot mount {volumeName}"},

	"computePodActions got for pod": {"containers", "computePodActions", untilWorker, ""},
	"Killing container with a grace period": {
		"containers", "killContainer", untilWorker, "stop {containerName}, grace {gracePeriod}s",
	},
	"Container exited normally": {"containers", "killContainer", "", "{containerName} has ended"},

	"Probe failed":  {"probes", "probe", untilProbe, ""},
	"Probe errored": {"probes", "probe", untilProbe, ""},

	"updateStatusInternal":                       {"status", "SetPodStatus", untilWorker, ""},
	"Status for pod updated successfully":        {"status", "syncPod", "", "the API server has the status"},
	"Pod fully terminated and removed from etcd": {"status", "syncPod", "", "deleted in the API"},
	"Creating a mirror pod for static pod": {
		"status", "CreateMirrorPod", untilWorker, "mirror pod created in the API",
	},
}

const hasEnded = " has ended"

// textOf tells a line of the log.
func (t *Trace) textOf(l traceLine, values map[string]any) string {
	text := l.text
	for key, value := range values {
		text = strings.ReplaceAll(text, "{"+key+"}", fmt.Sprint(value))
	}
	if text != "" {
		return text
	}
	switch l.function {
	case "computePodActions":
		return actionsText(t, values)
	case "handleProbeSync":
		return fmt.Sprintf("%v: %v", values["probe"], cmp.Or(fmt.Sprint(values["status"]), "not ready"))
	case "probe":
		output := strings.TrimSpace(fmt.Sprint(cmp.Or(values["output"], values["err"])))
		return strings.TrimSuffix(
			fmt.Sprintf("%v of %v fails: %s", values["probeType"], values["containerName"], output), ": ")
	case "SetPodStatus":
		text, why := fmt.Sprint(values["phase"]), fmt.Sprint(values["why"])
		if ready, _ := values["ready"].(bool); ready {
			return text + ", ready"
		}
		why = strings.Replace(why, "containers with unready status:", "not ready:", 1)
		return text + ifElse(why == "" || why == "<nil>", "", ", "+why)
	case "syncLoopIteration":
		e, _ := values["event"].(pleg.Event)
		what := cmp.Or(t.ids[e.Data], "the sandbox")
		switch e.Type {
		case pleg.ContainerStarted:
			return what + " runs"
		case pleg.ContainerDied:
			return what + hasEnded
		}
	}
	return ""
}

// actionsText names the actions, such as "create sandbox, start setup". It is empty without any.
func actionsText(t *Trace, values map[string]any) string {
	a, ok := values["podActions"].(kuberuntime.PodActions)
	if !ok {
		return ""
	}
	var do []string
	if a.KillPod && a.SandboxID != "" {
		do = append(do, "stop all")
	}
	for _, k := range a.ContainersToKill {
		do = append(do, "stop "+k.Name)
	}
	if a.CreateSandbox {
		do = append(do, "create sandbox")
	}
	start := func(containers []v1.Container, indexes []int) {
		for _, i := range indexes {
			name := fmt.Sprintf("container %d", i)
			if i < len(containers) {
				name = containers[i].Name
			}
			do = append(do, "start "+name)
		}
	}
	spec := cmp.Or(t.spec, &v1.PodSpec{})
	start(spec.InitContainers, a.InitContainersToStart)
	start(spec.Containers, a.ContainersToStart)
	return strings.Join(do, ", ")
}

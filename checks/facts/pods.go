package facts

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/internal/lazyregexp"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// Pods are the pods that are not where the kubelet wants them, for longer than their own grace period and the pauses
// between its attempts explain. What the pod itself causes is left out: its image, its command, an object of the
// cluster that it names and that is not there.
type Pods struct {
	NotStarting []PodTrouble
	NotStopping []PodTrouble
	// NoneStarts is set when two pods or more get no sandbox, and no sandbox has been made since their first failure.
	NoneStarts bool
	// Workloads have run on the node for a while; Failing of them fail at once, and the pods of those are in NotStarting.
	// Both are 0 unless those are most.
	Failing, Workloads int
	// Missing are the drivers for which the kubelet waits in vain, the one that it has asked for longest first.
	Missing []MissingDriver
}

// A MissingDriver is a CSI or DRA driver that is not registered with the kubelet, though a pod needs it.
type MissingDriver struct {
	Kind, Name string    // CSI or DRA; as in StorageClass, DeviceClass and ResourceSlice
	Since      time.Time // of the first record that is known
	Pods       []string  // NAMESPACE/NAME, as far as the records name them
}

// A PodTrouble is a pod that should run and does not, or that should be gone and is not.
type PodTrouble struct {
	Pod   crictl.Pod // its UID only where a list has it
	Stage Stage
	Since time.Time
	Words string // the last error about it in the words of the kubelet, or of the runtime; empty where none was logged
	Own   bool   // Words are kdiag's
}

// A Stage is how far a pod has come.
type Stage string

// The stages, as reports word them.
const (
	NoSandbox    Stage = "has no sandbox"
	NoVolume     Stage = "waits for a volume"
	NoContainer  Stage = "has a sandbox, and a container does not start"
	NeverStarted Stage = "has a container that was created and not started"
	StillRuns    Stage = "still runs"
	StillMounted Stage = "has a volume that is still mounted"
	StillHolds   Stage = "has devices that its driver must release"
	Unreachable  Stage = "cannot be reached from the node"
	InHook       Stage = "runs, and its postStart hook has not returned"
	Rejected     Stage = "was rejected by the kubelet"
	NoManifest   Stage = "was stopped: its manifest is gone, and so is the folder"
	TwoManifests Stage = "has two manifests"
	NotExecuted  Stage = "ends as it starts"
	Fails        Stage = "restarts, or fails its probes,"
)

// stops reports whether a pod of the stage is to go.
func (s Stage) stops() bool { return s == StillRuns || s == StillMounted || s == StillHolds }

// How long a pod may take. A start has 5 s (the scalability SLOs of Kubernetes), and images, volumes and the
// first failures of a node that has just come up take longer.
const (
	// troubleAge is the age from which failures that go on are trouble.
	troubleAge = time.Minute
	// The kubelet tries again after 10 to 15 s (backOffPeriod and workerBackOffPeriodJitterFactor in pkg/kubelet), a
	// mount after at most 2m2s (goroutinemap's exponential back-off), and a container after at most 5m
	// (MaxContainerBackOff).
	sandboxRetry   = 45 * time.Second
	containerRetry = 5*time.Minute + SkipFresh
	// A failure to prepare devices is tried again with the next sync of the pod, after 60 to 90 s (syncFrequency, and
	// workerResyncIntervalJitterFactor in pkg/kubelet/pod_workers.go).
	syncRetry = 90*time.Second + SkipFresh
	// attachTime is how long a pod may have no sandbox without an error: volumes are attached in that time.
	attachTime = 2 * time.Minute
	// leastProbes is the number of probes that fail until the kubelet believes it (failureThreshold).
	leastProbes = 3
)

// podSigns are the signatures about pods that do not start or stop.
var podSigns = []string{
	signature.PodRejected, signature.PluginMissing, signature.CNIFailed, signature.CreateFailed, signature.NameReserved,
	signature.MountFailed, signature.StopFailed, signature.PodSyncFailed, signature.ImagePullFailed,
	signature.ProbeUnroutable,
}

var (
	// ofWorkload finds the errors that the pod causes itself, or an object, an image or a registry that it names.
	ofWorkload = lazyregexp.New(`BackOff|ErrImage|InvalidImageName|CreateContainerConfigError|(Post|Pre)StartHook` +
		`|process: exec|exec: \\*"|exec format error|o command specified|onRoot|run as root|nable to find user|o users found` +
		`|hdir to cwd|ot a directory|ubPath|" not registered\b` +
		`|(?i:configmap|secret|persistentvolumeclaim|networkattachmentdefinition|network-attachment-definition|` +
		`serviceaccount)s?\b[^:]*\b(not found|non-existent)|ouldn't find key|o runtime for|ontext canceled` +
		`|OOM-killed|code = (NotFound|Canceled|InvalidArgument)`)
	// ofNode finds, in such an error, what the node lacks: a program that cannot be started, a folder or a device.
	ofNode = lazyregexp.New(`process: exec|exec: \\*"|exec format error|hostPath type check failed.*`)
	// missingDriver finds a driver that is not registered: GetPlugin in pkg/kubelet/cm/dra/plugin, newCsiDriverClient in
	// pkg/volume/csi.
	missingDriver = lazyregexp.New(`(DRA) driver (\S+) is not registered` +
		`|(?:driver|plugin) name (\S+) not found in the list of registered (CSI|DRA)`)
	// ofPlacement finds a rejection for which a controller makes another pod, on a node that has room.
	ofPlacement = lazyregexp.New(`^(OutOf\w+|Node(Affinity|Name|Ports)|Taint\w*): `)
	stops       = lazyregexp.New(`KillContainer|KillPodSandbox|illing (terminating )?pod|` +
		`(destroy|teardown|tear down).*network`)
	// innerError ends where the innermost error of nested ones begins.
	innerError = lazyregexp.New(`^.*desc = `)
	// baseImage finds the image of sandboxes: ensureImageExists in containerd's pkg/cri/server/sandbox_run.go.
	baseImage = lazyregexp.New(`failed to get sandbox image "([^"]+)"`)
	// volumeName finds the pod's UID in the name of a volume.
	volumeName = lazyregexp.New(`volume "kubernetes\.io/[^"]*[0-9a-f]{12}-([^"]+)"`)
)

// A podError is what the kubelet's log has of one pod, or of one container or sandbox.
type podError struct {
	name        string // NAMESPACE/NAME, or the id of a container or a sandbox
	code        string // of the signature
	text        string // the newest error, or its beginning
	first, last time.Time
	count       int64
}

// podErrors returns the errors about pods that the log holds, those first whose text is certainly of the pod.
func podErrors(f *Facts) (all []podError) {
	if f.Journal == nil {
		return nil
	}
	add := func(name, code, text string, first, last *time.Time, count int64) {
		if first != nil && last != nil {
			all = append(all, podError{strings.TrimSpace(name), code, text, *first, *last, count})
		}
	}
	for _, code := range podSigns {
		c := cmp.Or(Logged(f, code), &journal.Count{})
		for _, s := range c.Subjects {
			add(s.ID, code, cmp.Or(s.Error, ErrorWords(c.Newest())), s.First, s.Last, s.Count)
		}
	}
	for _, g := range f.Journal.Errors {
		for _, name := range g.Pods {
			// A group has the times of all its pods together.
			dated := slices.ContainsFunc(subjectsOf(f, g.Code), func(s journal.SubjectCount) bool { return s.ID == name })
			if slices.Contains(podSigns, g.Code) && !dated {
				add(name, g.Code, ErrorWords(g.Example), g.First, g.Last, g.Count)
			}
		}
	}
	return all
}

// A listedPod is what the runtime's lists have of a pod.
type listedPod struct {
	crictl.Pod
	ready   bool      // a sandbox of it is ready
	running int       // containers that run
	newest  time.Time // when the newest of them was created; zero for none
	made    time.Time // when the newest sandbox that is ready was created
	backOff bool      // a container has ended that was started again, and waits for its next start
}

// derivePods finds the pods that are not where the kubelet wants them.
func derivePods(f *Facts) {
	if f.Target.Simulated || !f.Log.SameRuntime && f.Journal != nil || !f.Calls.Connected {
		return
	}
	errs, created, fails := podErrors(f), neverStarted(f), failing(f)
	if len(errs) == 0 && len(created) == 0 && len(fails) == 0 && len(f.Unexecutable) == 0 && len(f.Seen.Pods.Value) == 0 &&
		f.Seen.Settings.Value.NoManifests == "" && len(f.Seen.Settings.Value.Twins) == 0 &&
		Logged(f, signature.PluginMissing) == nil {
		return
	}
	pods, ids := listedPods(f)
	for _, w := range f.Seen.Pods.Value { // also those without a sandbox
		ids[w.UID] = w.Namespace + "/" + w.Name
	}
	trouble := map[string]PodTrouble{}
	for _, e := range errs {
		name := cmp.Or(ids[e.name], e.name)
		e, of := ofPresent(f, e, name, pods[name])
		if !of {
			continue
		}
		t, ok := troubleOf(f, e, name, pods[name])
		had, found := trouble[name]
		switch {
		case ok && !found:
			trouble[name] = t
		case ok && t.Stage == had.Stage && e.code != signature.PodSyncFailed && t.Since.Before(had.Since):
			had.Since = t.Since
			trouble[name] = had
		}
	}
	for _, c := range created {
		name := c.Pod.Namespace + "/" + c.Pod.Name
		t, found := trouble[name]
		if !found || t.Stage == NoContainer {
			trouble[name] = PodTrouble{Pod: *c.Pod, Stage: NeverStarted, Since: c.Created(), Words: t.Words}
		}
	}
	addWanted(f, pods, trouble)
	addRemoved(f, trouble)
	addTwins(f, trouble)
	for _, u := range f.Unexecutable {
		trouble[u.Pod.Namespace+"/"+u.Pod.Name] = PodTrouble{
			Pod: u.Pod, Stage: NotExecuted, Since: u.Since, Words: u.Words, Own: true,
		}
	}
	dropLoneTimeouts(f, trouble)
	if !slices.ContainsFunc(slices.Collect(maps.Values(trouble)), func(t PodTrouble) bool { return !t.Stage.stops() }) {
		maps.Copy(trouble, fails)
	}
	for name, t := range trouble {
		if strings.HasSuffix(t.Words, "context deadline exceeded") {
			held := automountWords(f)
			t.Words, t.Own = cmp.Or(held, runtimeWords(f, name, ids), t.Words), held != ""
		}
		if t.Stage.stops() {
			f.Pods.NotStopping = append(f.Pods.NotStopping, t)
		} else {
			f.Pods.NotStarting = append(f.Pods.NotStarting, t)
		}
	}
	for _, list := range [][]PodTrouble{f.Pods.NotStarting, f.Pods.NotStopping} {
		slices.SortFunc(list, func(a, b PodTrouble) int {
			return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Pod.Namespace, b.Pod.Namespace),
				cmp.Compare(a.Pod.Name, b.Pod.Name))
		})
	}
	f.Pods.NoneStarts = noneStarts(f)
	f.Pods.Missing = missingDrivers(f, errs, ids)
}

// ofPresent reports whether an error can be of the pod that the kubelet has now, and not of its predecessor of the same
// name alone, and returns it without the time before.
func ofPresent(f *Facts, e podError, name string, listed listedPod) (podError, bool) {
	i := slices.IndexFunc(f.Seen.Pods.Value, func(w kubelet.Pod) bool { return w.Namespace+"/"+w.Name == name })
	if i < 0 || stageOf(e, listed).stops() {
		return e, true
	}
	if since := cmp.Or(f.Seen.Pods.Value[i].Started, f.Seen.Pods.Value[i].Known); since != nil {
		e.first = later(e.first, *since)
		return e, !e.last.Before(*since)
	}
	return e, true
}

// missingDrivers finds the drivers that errors say are not registered. One that registers as the node comes up is none.
func missingDrivers(f *Facts, errs []podError, ids map[string]string) (all []MissingDriver) {
	for _, e := range errs {
		m := missingDriver.FindStringSubmatch(e.text)
		if m == nil || f.Log.At.Sub(e.first) < troubleAge || !Fresh(f, &e.last, f.Log.RetryPause) {
			continue
		}
		d := MissingDriver{Kind: m[1] + m[4], Name: m[2] + m[3], Since: e.first}
		i := slices.IndexFunc(all, func(o MissingDriver) bool { return o.Kind == d.Kind && o.Name == d.Name })
		if i < 0 {
			i, all = len(all), append(all, d)
		}
		if e.first.Before(all[i].Since) {
			all[i].Since = e.first
		}
		name := cmp.Or(ids[e.name], e.name)
		if strings.Contains(name, "/") && !slices.Contains(all[i].Pods, name) {
			all[i].Pods = append(all[i].Pods, name)
		}
	}
	slices.SortStableFunc(all, func(a, b MissingDriver) int { return a.Since.Compare(b.Since) })
	waits := func(name string) bool {
		return slices.ContainsFunc(slices.Concat(f.Pods.NotStarting, f.Pods.NotStopping),
			func(t PodTrouble) bool { return t.Pod.Namespace+"/"+t.Pod.Name == name })
	}
	return filter(all, func(d MissingDriver) bool { return len(d.Pods) == 0 || slices.ContainsFunc(d.Pods, waits) })
}

// runtimeWords returns the newest error of the runtime about a container or a sandbox of a pod; empty without one. Of a
// call that misses its deadline the kubelet knows nothing else.
func runtimeWords(f *Facts, pod string, ids map[string]string) string {
	for _, g := range f.Journal.Errors {
		for id, name := range ids {
			if name == pod && g.Lane == string(signature.Runtime) && len(id) >= 12 && strings.Contains(g.Example, id[:12]) {
				return errorOf(ErrorWords(g.Example))
			}
		}
	}
	return ""
}

// addWanted compares the pods that the kubelet has with those of the runtime: it adds those that are late without an
// error, and removes what is over, since the pod has ended, or is to go, or is gone.
func addWanted(f *Facts, pods map[string]listedPod, trouble map[string]PodTrouble) {
	if !f.Seen.Pods.OK {
		return
	}
	wanted := map[string]kubelet.Pod{}
	for _, w := range f.Seen.Pods.Value {
		wanted[w.Namespace+"/"+w.Name] = w
	}
	for name, t := range trouble {
		w, found := wanted[name]
		ended := w.Phase == "Succeeded" || w.Phase == "Failed" || w.Deleted != nil
		if !t.Stage.stops() && (!found || ended) {
			delete(trouble, name)
		}
	}
	for name, w := range wanted {
		static := !strings.Contains(w.UID, "-") // its UID is a hash; nobody replaces it
		if w.Rejected != "" && w.Deleted == nil && w.Started != nil &&
			(static || w.Started.After(f.Log.From) && !ofPlacement.MatchString(w.Rejected)) {
			trouble[name] = PodTrouble{Pod: w.Pod, Stage: Rejected, Since: *w.Started, Words: w.Rejected}
		}
	}
	if !f.Calls.BothLists {
		return
	}
	before := f.Now.Add(-attachTime)
	for name, w := range wanted {
		p, listed := pods[name]
		_, found := trouble[name]
		since := w.Started
		if since == nil || w.Known != nil && w.Known.Before(*since) { // a kubelet without an API server is late to set it
			since = w.Known
		}
		switch {
		case found:
		case w.Deleted != nil:
			if w.Deleted.Before(before) && (p.ready || p.running > 0) {
				trouble[name] = PodTrouble{Pod: p.Pod, Stage: StillRuns, Since: *w.Deleted}
			}
		case w.Phase == "Pending" && !listed && since != nil && since.Before(before) && !waitsForObject(f, name):
			words := automountWords(f)
			trouble[name] = PodTrouble{Pod: w.Pod, Stage: NoSandbox, Since: *since, Words: words, Own: words != ""}
		case w.Phase == "Pending" && p.ready && p.made.Before(before) && stalledPull(f) != "":
			trouble[name] = PodTrouble{Pod: w.Pod, Stage: NoContainer, Since: p.made, Words: stalledPull(f), Own: true}
		case w.Unreachable != "" && w.Phase == "Running" && p.ready && p.made.Before(before):
			trouble[name] = PodTrouble{Pod: w.Pod, Stage: Unreachable, Since: p.made, Words: w.Unreachable, Own: true}
		case w.Phase == "Pending" && w.Hooked != "" && hookRuns(f, w, before):
			trouble[name] = PodTrouble{Pod: w.Pod, Stage: InHook, Since: p.newest}
		}
	}
}

// hookRuns reports whether the runtime has run the container of a pod's hook since before a time: the kubelet shows it
// as running once the hook has returned, for which it waits without a limit.
func hookRuns(f *Facts, w kubelet.Pod, before time.Time) bool {
	return slices.ContainsFunc(containersOf(f), func(c crictl.Container) bool {
		return c.State == crictl.ContainerRunning && c.Name == w.Hooked && PodOf(c.Pod).UID == w.UID &&
			c.Created().Before(before)
	})
}

// waitsForObject reports whether a pod without a sandbox may wait for an object of the cluster, such as a Secret: the
// kubelet logs that as a mount that fails, as far as its log was read.
func waitsForObject(f *Facts, name string) bool {
	return f.Journal == nil || !KubeletLogs(f) || slices.ContainsFunc(podErrors(f), func(e podError) bool {
		return e.name == name && ofWorkload.MatchString(e.text)
	})
}

// noneStarts reports whether no pod can start, as far as it shows without a try, or by a canary.
func noneStarts(f *Facts) bool {
	if CanaryStarts(f) {
		return false
	}
	stuck := filter(f.Pods.NotStarting, func(t PodTrouble) bool {
		return t.Stage == NoSandbox && t.Words != "" && !missingDriver.MatchString(t.Words)
	})
	base := slices.ContainsFunc(stuck, func(t PodTrouble) bool { return BaseImage(t.Words) != "" })
	return (len(stuck) > 1 || base) && f.Calls.BothLists &&
		!slices.ContainsFunc(sandboxesOf(f), func(s crictl.PodSandbox) bool {
			return s.State == crictl.SandboxReady && s.Created().After(stuck[0].Since)
		})
}

// CanaryStarts reports whether a canary has started, with a network of its own unless no pod fails for its network.
func CanaryStarts(f *Facts) bool {
	c := f.Canary
	started := func(s checks.CanaryStep) bool {
		return s.Name == "StartContainer" && (s.Status == checks.StatusOK || s.Status == checks.StatusWarning)
	}
	return c != nil && slices.ContainsFunc(c.Steps, started) && (c.Network == "cni" ||
		!slices.ContainsFunc(f.Pods.NotStarting, func(t PodTrouble) bool { return OfNetwork(t.Words) }))
}

// BaseImage returns the image of sandboxes, where the error of a pod is that it cannot be pulled; else empty.
func BaseImage(words string) string {
	m := append(baseImage.FindStringSubmatch(words), "", "")
	return m[1]
}

// OfNetwork reports whether the error of a pod is about its network.
func OfNetwork(words string) bool { return Says(words, "setup network", "set up network", "cni") }

// listedPods returns the pods of the newest lists by their names, and the names of the pods by the ids of
// their containers and sandboxes.
func listedPods(f *Facts) (pods map[string]listedPod, ids map[string]string) {
	pods, ids = map[string]listedPod{}, map[string]string{}
	for e := range Entries(f, RPCSandboxes, RPCContainers) {
		name := e.Pod.Namespace + "/" + e.Pod.Name
		p := pods[name]
		if p.UID == "" || e.Runs {
			p.Pod = e.Pod
		}
		switch created := time.Unix(0, e.CreatedAt); {
		case !e.Runs:
		case e.Kind == KindSandbox:
			p.ready, p.made = true, later(p.made, created)
		default:
			p.running, p.newest = p.running+1, later(p.newest, created)
		}
		pods[name], ids[e.ID], ids[e.Pod.UID] = p, name, name
	}
	newest := newestOf(containersOf(f))
	for _, c := range containersOf(f) {
		if c.State == crictl.ContainerExited && c.Attempt > 0 && newest[attempts{c.SandboxID, c.Name}] == c.CreatedAt {
			name := PodOf(c.Pod).Namespace + "/" + PodOf(c.Pod).Name
			p := pods[name]
			p.backOff = true
			pods[name] = p
		}
	}
	return pods, ids
}

// attempts are the containers that were made one after the other in the same place.
type attempts struct{ sandbox, name string }

// newestOf returns when the newest of the containers in each place was created.
func newestOf(all []crictl.Container) map[attempts]int64 {
	newest := map[attempts]int64{}
	for _, c := range all {
		k := attempts{c.SandboxID, c.Name}
		newest[k] = max(newest[k], c.CreatedAt)
	}
	return newest
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// troubleOf returns the trouble that an error is, if it goes on, and is not the pod's own.
func troubleOf(f *Facts, e podError, name string, listed listedPod) (PodTrouble, bool) {
	t := PodTrouble{Pod: listed.Pod, Stage: stageOf(e, listed), Since: e.first, Words: errorOf(e.text)}
	if t.Pod.Name == "" {
		var found bool
		switch t.Pod.Namespace, t.Pod.Name, found = strings.Cut(name, "/"); {
		case found:
		case t.Stage == StillMounted: // of a pod that is gone the UID is left
			t.Pod = crictl.Pod{UID: name}
		default:
			return t, false // a container that no list has
		}
	}
	late := Says(e.text, "deadlineexceeded", "deadline exceeded")
	retry, over, known := containerRetry, listed.made.After(e.last), f.Calls.BothLists
	w := wantedPod(f, name)
	if t.Stage == StillRuns && known && !listed.ready && listed.running == 0 && w.Phase == "Pending" {
		t.Stage = NoSandbox // what is left of a failed start is cleaned up before the next one
	}
	well := w.Phase == "Running" && w.Unready == nil // and the kubelet has something else to do for it in vain
	switch t.Stage {
	case Rejected:
		return t, !listed.ready && Fresh(f, &e.last, f.Log.Window) && !ofPlacement.MatchString(t.Words)
	case NoSandbox:
		switch over = over || well; {
		case e.code == signature.PluginMissing:
			retry = syncRetry
		case !late:
			retry = sandboxRetry
		}
	case StillHolds:
		retry, over = syncRetry, false
	case NoVolume, StillMounted: // the kubelet waits twice as long each time
		retry = min(f.Log.RetryPause, e.last.Sub(e.first)*3/2+SkipFresh)
		over = (over || well) && t.Stage == NoVolume
	case Unreachable:
		over = known && !listed.ready || e.count < leastProbes
		// Once its container has been started again, as many probes as ended it take no longer.
		if known && !listed.backOff && f.Log.At.Sub(listed.newest) >= sandboxRetry {
			retry = sandboxRetry
		}
	case NoContainer:
		over = well || listed.newest.After(e.last)
		if e.code == signature.PodSyncFailed && !Says(e.text, "startcontainer") { // which has a back-off of its own
			retry = sandboxRetry
		}
	case StillRuns:
		ended := known && !listed.ready && listed.running == 0 && !Says(e.text, "podsandbox", "network")
		over = over || ended || known && listed.Name == "" || listed.newest.After(e.last)
	}
	long := f.Log.At.Sub(e.first) >= troubleAge || late // a call that has missed its deadline has lasted for minutes
	ready := !known || listed.ready || w.Phase != "Pending"
	return t, long && !over && Fresh(f, &e.last, retry) && !ofWorkload.MatchString(ofOthers(f, e, ready))
}

// wantedPod returns what the kubelet has of a pod that is not to go; zero where that is not known.
func wantedPod(f *Facts, name string) (p kubelet.Pod) {
	i := slices.IndexFunc(f.Seen.Pods.Value, func(w kubelet.Pod) bool {
		return w.Namespace+"/"+w.Name == name && w.Deleted == nil
	})
	if f.Seen.Pods.OK && i >= 0 {
		p = f.Seen.Pods.Value[i]
	}
	return p
}

// stageOf returns how far the pod of an error has come.
func stageOf(e podError, listed listedPod) Stage {
	switch {
	case Says(e.text, "unprepare dynamic resources"):
		return StillHolds
	case e.code == signature.PodRejected:
		return Rejected
	case e.code == signature.ProbeUnroutable:
		return Unreachable
	case e.code == signature.StopFailed || stops.MatchString(e.text):
		return StillRuns
	case e.code == signature.MountFailed && Says(e.text, "unmountvolume", "unmountdevice", "teardown"):
		return StillMounted
	case e.code == signature.MountFailed, Says(e.text, "unmounted volumes", "mountvolume"):
		return NoVolume
	case listed.ready:
		return NoContainer
	}
	return NoSandbox
}

// errorOf returns the innermost error, with its ids cut short, and the outermost where that says too little.
func errorOf(text string) string {
	text = signature.ShortIDs(strings.ReplaceAll(text, `\"`, `"`))
	text = volumeName.ReplaceAllString(text, `volume "$1"`)
	words := strings.TrimRight(innerError.ReplaceAllString(text, ""), `"\ `)
	words = strings.TrimSuffix(words, ": unknown") // the code that containerd gives an error without one
	if strings.Count(words, `"`)%2 > 0 {
		words += `"` // of the words themselves
	}
	if words == "context deadline exceeded" {
		return text
	}
	return words
}

// neverStarted returns the containers that were created long ago and not started, although the kubelet starts each at
// once: the newest attempts, in sandboxes that are ready.
func neverStarted(f *Facts) []crictl.Container {
	if f.Kubelet == nil || !f.Calls.BothLists {
		return nil
	}
	created := filter(containersOf(f), func(c crictl.Container) bool {
		return c.State == crictl.ContainerCreated && c.Pod.UID != "" && f.Now.Sub(c.Created()) >= troubleAge
	})
	if len(created) == 0 {
		return nil
	}
	newest, ready := newestOf(containersOf(f)), map[string]bool{}
	for _, s := range sandboxesOf(f) {
		ready[s.ID] = s.State == crictl.SandboxReady
	}
	return filter(created, func(c crictl.Container) bool {
		return ready[c.SandboxID] && newest[attempts{c.SandboxID, c.Name}] == c.CreatedAt
	})
}

// CutOff returns the pods, NAMESPACE/NAME, whose sandbox is ready and was attached to a bridge that is gone.
func CutOff(f *Facts) (pods []string) {
	cni := f.Seen.CNI.Value
	for _, s := range sandboxesOf(f) {
		if s.State == crictl.SandboxReady && slices.Contains(cni.CutOff, s.ID) && f.Seen.CNI.OK {
			p := PodOf(s.Pod)
			pods = append(pods, p.Namespace+"/"+p.Name)
		}
	}
	slices.Sort(pods)
	return pods
}

// PodOfLog returns the pod in whose log folder a file lies, /var/log/pods/NAMESPACE_NAME_UID; empty for none.
func PodOfLog(file string) (namespace, name, uid string) {
	_, below, found := strings.Cut(file, "/pods/")
	parts := strings.Split(strings.Split(below, "/")[0], "_")
	if !found || len(parts) != 3 {
		return "", "", ""
	}
	return parts[0], parts[1], parts[2]
}

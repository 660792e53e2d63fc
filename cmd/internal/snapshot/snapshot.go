// Package snapshot lists the containers and sandboxes of a runtime and the pods that exist, for kdiag exited and
// gc-exited.
package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/crictl/gc"
	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/plegbench"
)

// helloTimeout bounds the first call, Version, before anything else is asked.
const helloTimeout = 5 * time.Second

// A Snapshot has all containers and sandboxes of a runtime at one time.
type Snapshot struct {
	Node    gc.Node
	Version crictl.Version // of the runtime that answered
	Missing []string       // evidence on which pods exist that could not be read, and why
	Keep    string         // why the kubelet's retention of exited containers is not known; empty when it is
	Problem string         // why there is no snapshot: a list failed as a whole
	Denied  bool           // because this user may not ask
}

// Take lists everything and finds out which pods exist. Node.Partial marks a list that is not complete; Problem
// explains why there is none.
func Take(
	ctx context.Context, env cli.Env, c *connection.Connection, src Sources, progress *render.Progress,
) Snapshot {
	s := Snapshot{}
	waitFor := func(what string) { progress.Update(plegbench.Progress{Phase: "waiting for " + what}) }
	waitFor("the runtime: Version")
	hello, cancel := context.WithTimeout(ctx, helloTimeout)
	version, call := c.Client.Version(hello)
	due, _ := hello.Deadline()
	if end, limited := ctx.Deadline(); call.Code == crictl.Canceled && ctx.Err() == nil && (!limited || end.After(due)) {
		call.Code = crictl.DeadlineExceeded // the deadline of this call, which the runtime may see first; not the command's
	}
	cancel()
	if !call.OK() {
		connect, _ := connection.Probe(ctx, env, c.Socket)
		switch {
		case connect.State == crictl.ConnectDenied:
			s.Problem, s.Denied = connection.Denied(c.Endpoint.URL), true
		case call.Code == crictl.Canceled:
			s.Problem = unanswered(ctx, call)
		default:
			s.Problem = judge.WhySilent(c.Runtime(), connect, call)
		}
		return s
	}
	s.Version.RuntimeName = connection.Shorten(version.RuntimeName)
	s.Version.RuntimeVersion = connection.Shorten(version.RuntimeVersion)
	// Sandboxes first: a container that comes in between has a sandbox that is not listed, and is left alone.
	waitFor("the runtime: ListPodSandbox")
	sandboxes := c.Client.ListPodSandbox(ctx, crictl.Filter{}, "")
	if !sandboxes.Complete && len(sandboxes.Sandboxes) == 0 {
		s.Problem = unanswered(ctx, sandboxes.Calls...)
		return s
	}
	waitFor("the runtime: ListContainers")
	containers := c.Client.ListContainers(ctx, crictl.Filter{}, "")
	if !containers.Complete && len(containers.Containers) == 0 {
		s.Problem = unanswered(ctx, containers.Calls...)
		return s
	}
	s.Node.Sandboxes, s.Node.Containers = sandboxes.Sandboxes, containers.Containers
	s.Node.Partial = !sandboxes.Complete || !containers.Complete
	waitFor("the kubelet's pods")
	evidence := readEvidence(ctx, env, c, src, s.Node.Sandboxes)
	s.Node.Pods = gc.NewLiveness(&evidence)
	s.Missing, s.Keep = s.Node.Pods.Missing(), unknownRetention(c)
	if keep := collection(c).DeadPerContainer; keep != nil {
		s.Node.Kubelet.Keep = *keep
	}
	s.Node.Kubelet.MinAge = collection(c).MinAge
	return s
}

// unknownRetention explains why it is not known how many exited containers the kubelet of this runtime keeps; empty if
// it is known.
func unknownRetention(c *connection.Connection) string {
	switch k := c.Kubelet; {
	case c.Simulated():
		return ""
	case k == nil:
		return "no kubelet runs here"
	case k.Unreadable != "" && k.Collection.DeadPerContainer == nil:
		return "cannot read the kubelet's settings: " + connection.Shorten(k.Unreadable)
	case !c.KubeletUses():
		return "the kubelet here uses another runtime, " + connection.Shorten(k.Endpoint)
	}
	return ""
}

// Logs returns where the kubelet has the logs of this runtime's containers. A simulation has none, and neither has a
// runtime that the kubelet here does not use.
func Logs(c *connection.Connection, root string) gc.Logs {
	if c.Simulated() || c.Kubelet != nil && !c.KubeletUses() {
		return gc.Logs{}
	}
	return gc.Logs{Root: root, Dir: cmp.Or(collection(c).PodLogsDir, kubeletconfig.Defaults().PodLogsDir)}
}

// Selected returns the UIDs of the pods that have the labels, by their sandboxes: lists carry none.
func Selected(
	ctx context.Context, c *connection.Connection, labels map[string]string,
) (map[string]bool, error) {
	list := c.Client.ListPodSandbox(ctx, crictl.Filter{Labels: labels}, "")
	if !list.Complete {
		return nil, fmt.Errorf("listing the sandboxes with these labels: %s", unanswered(ctx, list.Calls...))
	}
	uids := map[string]bool{}
	for i := range list.Sandboxes {
		uids[list.Sandboxes[i].Pod.UID] = true
	}
	return uids, nil
}

// unanswered describes the last of the calls, which has no answer.
func unanswered(ctx context.Context, calls ...crictl.Call) string {
	switch call := calls[len(calls)-1]; {
	case call.Code == crictl.Canceled && errors.Is(ctx.Err(), context.Canceled):
		return "interrupted before " + call.Method + " replied"
	case call.Code == crictl.Canceled:
		return "--timeout reached before " + call.Method + " replied"
	case call.Hung():
		return fmt.Sprintf("%s hangs (no reply in %v)", call.Method, call.Elapsed.Round(time.Millisecond))
	default:
		return crictl.Shorten(fmt.Sprintf("%s: %s: %s", call.Method, call.Code, call.Err), maxReason)
	}
}

// TakeCensus counts exited containers and dead sandboxes, with progress on standard error. A snapshot with a problem
// has no census.
func TakeCensus(
	ctx context.Context, env cli.Env, c *connection.Connection, src Sources,
) (Snapshot, *gc.Census) {
	progress := document.NewProgress(env)
	defer progress.Done()
	s := Take(ctx, env, c, src, progress)
	if s.Problem != "" {
		return s, nil
	}
	var newest []gc.Candidate
	for _, exited := range gc.CountExited(s.Node.Containers) {
		if exited.PodUID != "" {
			newest = append(newest, gc.Candidate{ID: exited.NewestID, PodUID: exited.PodUID})
		}
	}
	ends, _ := gc.ReadEnds(ctx, c.Client, newest, func(asked int) {
		progress.Update(plegbench.Progress{Phase: "inspect", Done: asked, Total: len(newest)})
	})
	return s, new(gc.TakeCensus(s.Node, ends, crictl.DefaultMessageLimit, env.Now()))
}

// ConcludeCensus fills in the document of kdiag exited from a census. pleg is the command that diagnoses a runtime
// which gives no list.
func ConcludeCensus(
	ctx context.Context, env cli.Env, doc *render.ExitedCensus, s Snapshot, census *gc.Census, pleg string,
) {
	doc.GeneratedAt = env.Now().UTC().Truncate(time.Second)
	doc.Runtime.Name, doc.Runtime.Version = s.Version.RuntimeName, s.Version.RuntimeVersion
	if s.Problem != "" {
		doc.Problems = append(doc.Problems, s.Problem)
		if !s.Denied && ctx.Err() == nil {
			doc.Status = checks.Unhealthy // a runtime that gives no list is an answer
			doc.NextSteps = []checks.NextStep{judge.StepWhenSilent(pleg)}
		}
		return
	}
	doc.Census, doc.Missing = census, append([]string{}, s.Missing...)
	if census.Total > 0 {
		doc.NextSteps = CensusSteps(doc.Next)
	}
	doc.Status = censusVerdict(census, checks.DefaultLimits())
	if doc.Status == checks.Healthy && census.Partial {
		doc.Status = checks.Unknown
	}
}

// censusVerdict compares a census with the limits by which kdiag pleg finds TooManyExited and ListTooLarge.
func censusVerdict(c *gc.Census, l checks.Limits) checks.Verdict {
	most := max(c.Total, c.Sandboxes)
	switch {
	case most >= l.ExitedCritical, c.ListOfLimit >= l.SizeCritical:
		return checks.Unhealthy
	case c.Total >= l.ExitedWarning, c.Sandboxes >= l.DeadSandboxes, c.ListOfLimit >= l.SizeWarning:
		return checks.Degraded
	}
	return checks.Healthy
}

// Census returns the document of kdiag exited for the runtime that the flags name.
func Census(ctx context.Context, env cli.Env, f *cli.Flags) (*render.ExitedCensus, error) {
	c, err := connection.Open(ctx, env, f)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	doc := &render.ExitedCensus{
		Header: document.Header(env, "exited", "ExitedCensus"), Next: "kdiag gc-exited", Missing: []string{},
		Runtime: c.Runtime(),
	}
	s, census := TakeCensus(ctx, env, c, Sources{})
	if s.Problem != "" {
		return nil, errors.New(s.Problem)
	}
	ConcludeCensus(ctx, env, doc, s, census, "kdiag pleg")
	return doc, nil
}

// CensusSteps returns the next step after a census that is not empty. plan is the command that shows the removal plan.
func CensusSteps(plan string) []checks.NextStep {
	return []checks.NextStep{{
		Why: "Show the removal plan (dry run)", Command: plan, Touches: checks.TouchesNothing,
	}}
}

// Bounds of the evidence on which pods exist.
const (
	evidenceTimeout = 5 * time.Second
	maxPods         = 64 << 20         // bytes of the kubelet's /pods; a pod takes some ten thousand
	freshPods       = 10 * time.Minute // how old a file of --pods may be
	defaultRootDir  = "/var/lib/kubelet"
)

// Sources override the places where the running kubelet shows which pods exist.
type Sources struct {
	KubeletRoot string // --kubelet-root
	Manifests   string // --manifests
	Pods        string // --pods: a file with the answer of the kubelet's /pods
}

// SourceFlags are the names of these flags.
func SourceFlags() []string { return []string{"kubelet-root", "manifests", "pods"} }

// AddSources adds these flags.
func (s *Sources) AddSources(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&s.KubeletRoot, "kubelet-root", "",
		"the kubelet's root folder (default: the running kubelet's, usually /var/lib/kubelet)")
	fs.StringVar(&s.Manifests, "manifests", "",
		"the folder of static pod manifests (default: the running kubelet's)")
	fs.StringVar(&s.Pods, "pods", "",
		"a file with the kubelet's /pods as JSON (default: its read-only port, if it has one)")
}

// CheckSources returns an error for the first invalid flag. It makes the folders absolute.
func (s *Sources) CheckSources(cmd *cobra.Command) error {
	if err := cli.RejectEmpty(cmd, SourceFlags()...); err != nil {
		return err
	}
	for _, path := range []*string{&s.KubeletRoot, &s.Manifests} {
		if abs, err := filepath.Abs(*path); err == nil && *path != "" {
			*path = abs
		}
	}
	return cli.Regular("pods", &s.Pods, "for example: kubectl get --raw /api/v1/nodes/NODE/proxy/pods > pods.json")
}

// readEvidence reads which pods of the node exist, from each source within its own deadline. A pod counts as alive if a
// source cannot be read. A source that names no pod of a sandbox here proves nothing: it is empty, another node's, or a
// kubelet's that has just started.
func readEvidence(
	ctx context.Context, env cli.Env, c *connection.Connection, src Sources, sandboxes []crictl.PodSandbox,
) gc.KubeletView {
	here := make(map[string]bool, len(sandboxes))
	for i := range sandboxes {
		here[sandboxes[i].Pod.UID] = true
	}
	var e gc.KubeletView
	var all sync.WaitGroup
	source := func(without *string, ask func(context.Context) error) {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, evidenceTimeout)
			defer cancel()
			if err := ask(ctx); err != nil {
				*without = crictl.Shorten(err.Error(), maxReason)
			}
		})
	}
	source(&e.PodsWithout, func(ctx context.Context) (err error) {
		e.Pods, err = readPods(ctx, env, c, src)
		if err == nil && !slices.ContainsFunc(e.Pods, func(p gc.KubeletPod) bool { return here[p.UID] }) {
			err = errors.New("none has a sandbox here: another node's pods, or none was started yet")
		}
		return err
	})
	source(&e.DirsWithout, func(ctx context.Context) error {
		dir, err := folder(c, "--kubelet-root", src.KubeletRoot, collection(c).RootDir, defaultRootDir)
		if err == nil {
			e.Dirs, err = gc.ReadPodDirs(ctx, env.Root, dir)
		}
		if err == nil && !slices.ContainsFunc(e.Dirs, func(uid string) bool { return here[uid] }) {
			err = errors.New("none belongs to a pod with a sandbox here: another kubelet's or runtime's, " +
				"or none was started yet")
		}
		return err
	})
	source(&e.ManifestsWithout, func(ctx context.Context) error {
		if src.Manifests == "" && collection(c).StaticPodURL != "" {
			return errors.New("the kubelet also reads some from a URL; kdiag does not")
		}
		dir, err := folder(c, "--manifests", src.Manifests, collection(c).StaticPodPath, "")
		if err == nil && dir != "" { // a kubelet without a folder runs none
			e.Manifests, err = gc.ReadManifests(ctx, env.Root, dir)
		}
		return err
	})
	all.Wait()
	return e
}

// maxReason bounds a quoted error, in runes: paths may be long.
const maxReason = 400

// collection returns the kubelet's settings for collecting garbage; the zero value where none runs.
func collection(c *connection.Connection) crictl.Collection {
	if c.Kubelet == nil {
		return crictl.Collection{}
	}
	return c.Kubelet.Collection
}

// folder returns the folder that a flag names, else the one that the kubelet was given, else its default. The last is
// known only of a kubelet that is a process by itself: one that is embedded, as in k3s, is given folders that no
// argument shows.
func folder(c *connection.Connection, flag, named, given, usual string) (string, error) {
	switch {
	case named != "":
		return named, nil
	case c.Simulated():
		return "", errSimulated
	case c.Kubelet == nil:
		return "", errors.New("no kubelet runs here; name the folder with " + flag)
	case given != "":
		return given, nil
	case c.Kubelet.Unreadable != "" || c.Kubelet.Name != "kubelet":
		return "", errors.New("folder unknown; name it with " + flag)
	}
	return usual, nil
}

var errSimulated = errors.New("the runtime is simulated")

// readPods asks the kubelet's read-only port for its pods, or reads the answer from a file.
func readPods(ctx context.Context, env cli.Env, c *connection.Connection, src Sources) ([]gc.KubeletPod, error) {
	switch {
	case src.Pods != "":
		return deadline.Run(ctx, "reading "+src.Pods, func(context.Context) ([]gc.KubeletPod, error) {
			return podsFromFile(src.Pods, env.Now())
		})
	case c.Simulated():
		return nil, errSimulated
	case c.Kubelet == nil:
		return nil, errors.New("no kubelet runs here; --pods takes the list from a file")
	case collection(c).ReadOnlyPort <= 0:
		return nil, errors.New("the kubelet has no read-only port; --pods takes the list from a file")
	}
	data, err := kubelet.Pods(ctx, collection(c).ReadOnlyPort)
	if err != nil {
		return nil, err
	}
	return parsePods(data)
}

func podsFromFile(name string, now time.Time) ([]gc.KubeletPod, error) {
	data, err := cli.ReadFile(name, maxPods)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(name); err == nil && now.Sub(info.ModTime()) > freshPods {
		return nil, fmt.Errorf("%s is older than %v; ask the kubelet again", name, freshPods)
	}
	pods, err := parsePods(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return pods, nil
}

// parsePods reads the answer of the kubelet's /pods, of which only names are read:
//
//	{"kind":"PodList","items":[{"metadata":{"uid":"..","namespace":"..","name":".."},
//	 "spec":{"containers":[{"name":"app"}]}}]}
//
// A static pod from the API server's view has the UID of its mirror; the kubelet's own is the annotation
// kubernetes.io/config.hash or config.mirror, so those count as UIDs too.
func parsePods(data []byte) ([]gc.KubeletPod, error) {
	var list struct {
		Kind  string
		Items []struct {
			Metadata struct {
				UID, Namespace, Name string
				Annotations          map[string]string
			}
			Spec struct{ Containers []struct{ Name string } }
		}
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("not a list of pods: %w", err)
	}
	if list.Kind != "PodList" {
		return nil, fmt.Errorf("kind %.40q, not PodList", list.Kind)
	}
	var pods []gc.KubeletPod
	for i := range list.Items {
		m := &list.Items[i].Metadata
		if m.UID == "" || m.Name == "" {
			return nil, fmt.Errorf("item %d has no UID or no name", i)
		}
		p := gc.KubeletPod{UID: m.UID, Namespace: m.Namespace, Name: m.Name}
		for _, c := range list.Items[i].Spec.Containers {
			p.Main = append(p.Main, c.Name)
		}
		pods = append(pods, p)
		for _, key := range []string{"kubernetes.io/config.hash", "kubernetes.io/config.mirror"} {
			if uid := m.Annotations[key]; uid != "" && uid != m.UID {
				p.UID = uid
				pods = append(pods, p)
			}
		}
	}
	return pods, nil
}

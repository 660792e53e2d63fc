package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/gc"
)

// helloTimeout is how long the runtime may take to say who it is before anything else is asked.
const helloTimeout = 5 * time.Second

// A Snapshot is everything that a runtime holds at one time, for the commands about what has exited.
type Snapshot struct {
	Node    gc.Node
	Runtime gc.Identity // of the runtime that answered
	Missing []string    // evidence on which pods exist that could not be had
	Keep    string      // why the kubelet's number of exited containers to keep is not known; empty when it is
	Problem string      // why there is nothing to judge: a list could not be had at all
	Denied  bool        // because this user may not ask
}

// TakeSnapshot lists everything and finds out which pods exist. A list that is not complete is said in Node.Partial; a
// runtime that gives none at all in Problem.
func (t *Target) TakeSnapshot(ctx context.Context, env cli.Env, src Sources) Snapshot {
	look := Snapshot{}
	hello, cancel := context.WithTimeout(ctx, helloTimeout)
	version, call := t.Client.Version(hello)
	if call.Code == crictl.Canceled && hello.Err() != nil && ctx.Err() == nil {
		call.Code = crictl.DeadlineExceeded // of the hello's own time
	}
	cancel()
	if !call.OK() {
		look.Problem, look.Denied = t.silent(ctx, call)
		return look
	}
	look.Runtime = t.Identity(env)
	look.Runtime.RuntimeName, look.Runtime.RuntimeVersion = shorten(version.RuntimeName), shorten(version.RuntimeVersion)
	if problem := t.list(ctx, &look.Node); problem != "" {
		look.Problem = problem
		return look
	}
	evidence := t.evidence(ctx, env, src, look.Node.Sandboxes)
	look.Node.Pods = gc.NewLiveness(&evidence)
	look.Missing = look.Node.Pods.Missing()
	look.Keep = t.unknownKeep()
	if k := t.Kubelet; k != nil {
		if k.Collection.DeadPerContainer != nil {
			look.Node.Kubelet.Keep = *k.Collection.DeadPerContainer
		}
		look.Node.Kubelet.MinAge = k.Collection.MinAge
	}
	return look
}

// silent says why the runtime did not answer its first call, and whether this user may not ask.
func (t *Target) silent(ctx context.Context, call crictl.Call) (problem string, denied bool) {
	c, _ := Probe(ctx, t.socket)
	if c.State == crictl.ConnectDenied {
		return t.Endpoint.URL + " may not be opened by this user: run kdiag as root (sudo kdiag ...)", true
	}
	if call.Code == crictl.Canceled {
		return unanswered(ctx, call), false
	}
	return judge.WhySilent(t.Runtime(), c, call), false
}

// unknownKeep says why it is not known how many exited containers the kubelet of this runtime keeps.
func (t *Target) unknownKeep() string {
	switch k := t.Kubelet; {
	case t.Simulated():
		return ""
	case k == nil:
		return "no kubelet runs here to say"
	case k.Unreadable != "" && k.Collection.DeadPerContainer == nil:
		return "the kubelet's settings could not be read: " + shorten(k.Unreadable)
	case k.Endpoint != "" && realSocket(k.Endpoint) != realSocket(t.Endpoint.URL):
		return "the kubelet that runs here uses another runtime, " + shorten(k.Endpoint)
	}
	return ""
}

// realSocket is the path of a socket with all links followed.
func realSocket(endpoint string) string {
	path := strings.TrimPrefix(endpoint, "unix://")
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

func (t *Target) list(ctx context.Context, node *gc.Node) (problem string) {
	// Sandboxes first: a container that comes in between has a sandbox that is not listed, and is left alone.
	sandboxes := t.Client.ListPodSandbox(ctx, crictl.Filter{}, "")
	if !sandboxes.Complete && len(sandboxes.Sandboxes) == 0 {
		return unanswered(ctx, sandboxes.Calls[len(sandboxes.Calls)-1])
	}
	containers := t.Client.ListContainers(ctx, crictl.Filter{}, "")
	if !containers.Complete && len(containers.Containers) == 0 {
		return unanswered(ctx, containers.Calls[len(containers.Calls)-1])
	}
	node.Sandboxes, node.Containers = sandboxes.Sandboxes, containers.Containers
	node.Partial = !sandboxes.Complete || !containers.Complete
	return ""
}

// Selected returns the UIDs of the pods that have the labels, by their sandboxes: lists carry none.
func (t *Target) Selected(ctx context.Context, labels map[string]string) (map[string]bool, error) {
	list := t.Client.ListPodSandbox(ctx, crictl.Filter{Labels: labels}, "")
	if !list.Complete {
		return nil, fmt.Errorf("listing the sandboxes with these labels: %s", unanswered(ctx, list.Calls[len(list.Calls)-1]))
	}
	uids := map[string]bool{}
	for i := range list.Sandboxes {
		uids[list.Sandboxes[i].Pod.UID] = true
	}
	return uids, nil
}

// unanswered says what became of a call that has no answer.
func unanswered(ctx context.Context, call crictl.Call) string {
	switch {
	case call.Code == crictl.Canceled && errors.Is(ctx.Err(), context.Canceled):
		return "interrupted before " + call.Method + " was answered"
	case call.Code == crictl.Canceled:
		return "the command's time was up before " + call.Method + " was answered"
	case call.Hung():
		return fmt.Sprintf("the runtime did not answer %s within %v", call.Method, call.Elapsed.Round(time.Millisecond))
	}
	return crictl.Shorten(fmt.Sprintf("%s: %s: %s", call.Method, call.Code, call.Err), maxReason)
}

// Identity says which node this is, by what stays the same until the next boot. The endpoint of a simulation is named by
// its scenario, since each has a socket of its own.
func (t *Target) Identity(env cli.Env) gc.Identity {
	id := gc.Identity{
		MachineID: firstLine(env, "/etc/machine-id"), BootID: firstLine(env, "/proc/sys/kernel/random/boot_id"), Endpoint: t.Endpoint.URL,
	}
	if t.Simulated() {
		id.Endpoint = "simulated: " + strings.TrimPrefix(t.Endpoint.Reason, "the embedded runtime in scenario ")
	}
	return id
}

// firstLine reads what identifies a node: one short line. It is empty where there is none.
func firstLine(env cli.Env, name string) string {
	f, err := os.Open(filepath.Join(env.Root, name))
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 128))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}

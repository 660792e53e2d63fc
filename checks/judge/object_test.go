package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
)

func TestInspectHangNamesTheCulprit(t *testing.T) {
	shim := host.Process{PID: 5000, Name: "containerd-shim", Role: host.RoleShim, ObjectID: "sandbox1", State: 'S'}
	runc := host.Process{
		PID: 5001, Name: "runc", Role: host.RoleOCI, ObjectID: "container1-0", State: 'S',
		Started: now().Add(-4 * time.Minute),
	}
	c := only(t, node(statusHangs("container1-0"), processesOf(shim, runc)), causes.InspectHang)
	want := &checks.Subject{
		Kind: facts.KindContainer, ID: "container1-0", Name: "app0", Namespace: "web", Pod: "checkout-1", PodUID: "uid-1",
		Processes: []checks.Process{
			{PID: 5001, Name: "runc", Role: "oci", State: "sleeping", Age: "4m"},
			{PID: 5000, Name: "containerd-shim", Role: "shim", State: "sleeping"},
		},
	}
	if diff := cmp.Diff(want, c.Subject); diff != "" {
		t.Error(diff)
	}
	var kills []string
	for _, s := range c.NextSteps {
		if strings.HasPrefix(s.Command, "kill -KILL") {
			kills = append(kills, s.Command+": "+s.Touches)
		}
	}
	if diff := cmp.Diff([]string{"kill -KILL 5001: one process", "kill -KILL 5000: one pod"}, kills); diff != "" {
		t.Error(diff)
	}
	if !mentions(c.Evidence.For, "web/checkout-1 (app0): ContainerStatus did not answer in 5s") ||
		!mentions(c.Evidence.For, "8 status calls answered") {
		t.Errorf("evidence %q", c.Evidence.For)
	}
	if !mentions(c.Evidence.For, "runc (pid 5001)", "4m") {
		t.Errorf("evidence %q", c.Evidence.For)
	}
}

func TestSandboxStandsForItsContainers(t *testing.T) {
	c := only(t, node(func(f *facts.Input) {
		in := f.Measurement.Sweep.Inspections // containers first, as a sweep of running containers may ask
		in[1], in[5] = in[5], in[1]
	}, statusHangs("sandbox1", "container1-0", "container1-1")), causes.InspectHang)
	if c.Subject.Kind != facts.KindSandbox || c.Subject.ID != "sandbox1" || len(c.Related) != 2 {
		t.Errorf("subject %+v, related %+v", c.Subject, c.Related)
	}
	if !mentions(c.Evidence.For, "3 of 9 status calls hung, in 1 pod") {
		t.Errorf("evidence %q", c.Evidence.For)
	}
}

func TestRelatedIsCapped(t *testing.T) {
	var ids []string
	for i := range 30 {
		ids = append(ids, fmt.Sprintf("container%d-0", i))
	}
	c := only(t, node(pods(100, 2), swept, statusHangs(ids...)), causes.InspectHang)
	if len(c.Related) != facts.MaxRelated || !mentions(c.Evidence.For, "so did 29 others") {
		t.Errorf("%d related, evidence %q", len(c.Related), c.Evidence.For)
	}
}

func TestListHangNamesTheHolder(t *testing.T) {
	runc := host.Process{
		PID: 5001, Name: "runc", Role: host.RoleOCI, ObjectID: "container1-0", State: 'S',
		Started: now().Add(-4 * time.Minute),
	}
	c := only(t, node(hangs(facts.RPCContainers), statusHangs("container1-0"), processesOf(runc)), causes.ListHang)
	if c.Subject.ID != "container1-0" || !strings.Contains(c.Summary, "lock of web/checkout-1 (app0)") {
		t.Errorf("subject %+v, summary %q", c.Subject, c.Summary)
	}
	alone := only(t, node(hangs(facts.RPCContainers), processesOf(runc)), causes.ListHang)
	if alone.Subject.Kind != "Process" || alone.Subject.ID != "5001" {
		t.Errorf("subject %+v", alone.Subject)
	}
	if alone.Confidence >= c.Confidence {
		t.Errorf("confidence %v without a holder, %v with", alone.Confidence, c.Confidence)
	}
}

func TestFailingAndSlowObjects(t *testing.T) {
	failing := only(t, node(func(f *facts.Input) {
		c := &f.Measurement.Sweep.Inspections[4].Call
		c.Code, c.Err = crictl.Internal, "getting container spec: bucket\x07 missing"
	}), causes.InspectHang)
	slow := only(t, node(func(f *facts.Input) { f.Measurement.Sweep.Inspections[4].Call.Elapsed = 3 * time.Second }),
		causes.InspectHang)
	for _, c := range []checks.Cause{failing, slow} {
		if c.Severity != checks.Warning || c.Subject.ID != "container0-1" {
			t.Errorf("%s %+v", c.Severity, c.Subject)
		}
	}
	notFound := node(func(f *facts.Input) { f.Measurement.Sweep.Inspections[4].Call.Code = crictl.NotFound })
	if named := Judge(notFound); named != nil {
		t.Errorf("NotFound is the race with a removal, got %v", codes(named))
	}
}

func TestExitedEvidence(t *testing.T) {
	c := only(t, node(exited(2000, 100, 1000)), causes.TooManyExited)
	for _, words := range [][]string{
		{"2,000 exited containers"},
		{"1,980 containers beyond the newest of their pod and name"},
		{"fill 12%"},
	} {
		if !mentions(c.Evidence.For, words...) {
			t.Errorf("no line with %q in %q", words, c.Evidence.For)
		}
	}
	want := []string{"kdiag gc-exited: " + checks.TouchesNothing, "kdiag gc-exited --yes --audit gc-exited.jsonl: " +
		checks.TouchesExited}
	if diff := cmp.Diff(want, commands(c.NextSteps, "gc-exited")); diff != "" {
		t.Error(diff)
	}
	if step := c.NextSteps[len(c.NextSteps)-1]; !strings.Contains(step.Why, "Removes 1,980 containers, oldest") {
		t.Errorf("step %+v", step)
	}
	kept := only(t, node(exited(2000, 1, 1000)), causes.TooManyExited)
	if !mentions(kept.Evidence.For,
		"each is the newest of its pod and name: of completed pods, or of deleted ones whose removal fails") {
		t.Errorf("for %q", kept.Evidence.For)
	}
	if !mentions(kept.Evidence.Missing, "whether their pods still exist") || len(kept.Evidence.Against) > 0 ||
		strings.Contains(kept.Summary, "still exist") {
		t.Errorf("%q, against %q, missing %q", kept.Summary, kept.Evidence.Against, kept.Evidence.Missing)
	}
	deletion := slices.IndexFunc(kept.NextSteps, func(s checks.NextStep) bool {
		return strings.HasPrefix(s.Command,
			"kubectl delete pods")
	})
	look := slices.IndexFunc(kept.NextSteps, func(s checks.NextStep) bool {
		return strings.HasPrefix(s.Command,
			"kubectl get pods")
	})
	if look < 0 || deletion < look || !strings.HasPrefix(kept.NextSteps[deletion].Why, "Only if") {
		t.Errorf("a deletion that no look comes before: %+v", kept.NextSteps)
	}
	for _, s := range append(c.NextSteps, kept.NextSteps...) {
		if strings.Contains(s.Command, "rm -a") {
			t.Errorf("command %q", s.Command)
		}
	}
}

func TestTooLargeSaysWhichSide(t *testing.T) {
	server := only(t, node(fails(crictl.ResourceExhausted,
		"grpc: trying to send message larger than max (26300000 vs. 16777216)", facts.RPCContainers)), causes.ListTooLarge)
	client := only(t, node(fails(crictl.ResourceExhausted,
		"grpc: received message larger than max (926300000 vs. 536870912)", facts.RPCContainers)), causes.ListTooLarge)
	if !mentions(server.Evidence.For, "trying to send") || !mentions(server.Evidence.For, "25.1 MiB, 157%") {
		t.Errorf("server: %q", server.Evidence.For)
	}
	if !mentions(client.Evidence.For, "received message larger") || !mentions(client.Evidence.For, "of 16 MiB") {
		t.Errorf("client: %q", client.Evidence.For)
	}
	heavy := only(t, node(exited(800, 1, 30000)), causes.ListTooLarge)
	if len(heavy.Related) != facts.MostNamed || !mentions(heavy.Evidence.For,
		"29.3 KiB for each entry of batch/report-0 (job)") {
		t.Errorf("related %+v, evidence %q", heavy.Related, heavy.Evidence.For)
	}
	pods := only(t, node(func(f *facts.Input) {
		m := f.Measurement
		for i := range m.Sandboxes.Sandboxes {
			m.Sandboxes.Sandboxes[i].Size = 5 << 20
		}
		measureLists(f)
	}), causes.ListTooLarge)
	if len(pods.Related) == 0 || pods.Related[0].Kind != facts.KindSandbox ||
		!mentions(pods.Evidence.For, "5 MiB for each entry of sandbox of web/checkout-1") ||
		mentions(pods.Evidence.For, "container's entry") {
		t.Errorf("related %+v, evidence %q", pods.Related, pods.Evidence.For)
	}
	if first := pods.NextSteps[0].Command; !strings.Contains(first, "pods --id sandbox0 -o json") {
		t.Errorf("first step %q", first)
	}
	streamed := only(t, node(exited(800, 1, 30000), func(f *facts.Input) {
		f.Kubelet.CRIListStreaming = true
		f.Measurement.Containers.Mode = crictl.ModeStream
	}), causes.ListTooLarge)
	if streamed.Severity != checks.Warning {
		t.Errorf("a kubelet that streams is not blind: %s", streamed.Severity)
	}
}

// TestStaticPod wants no kubectl delete for a pod that comes from a manifest.
func TestStaticPod(t *testing.T) {
	for _, source := range []string{"api", "file", "http", ""} {
		f := node(pods(3, 2))
		for i := range f.Measurement.Sandboxes.Sandboxes {
			f.Measurement.Sandboxes.Sandboxes[i].ConfigSource = source
		}
		statusHangs(f.Measurement.Containers.Containers[0].ID)(f)
		steps := only(t, f, causes.InspectHang).NextSteps
		deletes := slices.ContainsFunc(steps, func(s checks.NextStep) bool {
			return strings.HasPrefix(s.Command,
				"kubectl delete pod")
		})
		if static := source == "file" || source == "http"; deletes == static {
			t.Errorf("config source %q: kubectl delete pod among the steps: %v", source, deletes)
		}
	}
}

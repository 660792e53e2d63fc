package canary

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/internal/testkit"
)

const box = "docker.io/library/busybox:1"

// A want is the expected end of a run.
type want struct {
	step     string  // that fails; empty for none
	outcome  Outcome // of it
	attempts int
	spoiled  Spoiled
	left     int  // canaries in the runtime afterwards
	unsure   bool // not cleaned up, although none is there
}

func (w want) check(t *testing.T, cri *remote.Service, got *Result) {
	t.Helper()
	var bad Step // the first
	for _, s := range got.Steps {
		if bad.Name == "" && s.Outcome != OK && s.Outcome != Skipped {
			bad = s
		}
	}
	if bad.Name != w.step || bad.Outcome != w.outcome ||
		bad.Outcome == Hung && !strings.HasPrefix(bad.Err, "no reply in ") {
		t.Errorf("step %+v, want %q: %q", bad, w.step, w.outcome)
	}
	there := len(sandboxes(t, cri, true))
	if got.Attempts != w.attempts || got.Spoiled != w.spoiled || got.CleanedUp == (w.unsure || w.left > 0) ||
		len(got.Left) != w.left || there != w.left {
		t.Errorf("%+v, and %d canaries are there; want %+v", got, there, w)
	}
}

// TestOutcomes runs canaries on runtimes that misbehave, with the images that are there.
func TestOutcomes(t *testing.T) {
	type test struct {
		name    string
		faults  []fake.Fault
		want    want
		images  []string // on the node beside the pod's; nil for a busybox
		image   string   // that is asked for
		ran     string   // image; empty is not compared
		skipped string   // step
	}
	// Each call fails and hangs. The rest of the run is left out, the clean-up is not, and an object that may be there
	// does not count as removed.
	const notFound, pauseTag = ": executable file not found in $PATH", "registry.k8s.io/pause:3.10"
	done, both := want{attempts: 1}, []string{box, pauseTag}
	tests := []test{{name: "RuntimeConfig", faults: []fake.Fault{{RPC: "RuntimeConfig", Hang: true}}, want: done}}
	for _, rpc := range []string{
		"Version", "ListImages", "RunPodSandbox", "CreateContainer", "StartContainer", "ExecSync", "ListContainerStats",
		"StopContainer", "RemoveContainer", "StopPodSandbox", "RemovePodSandbox",
	} {
		fails, hangs := want{step: rpc, outcome: Failed, attempts: 1}, want{step: rpc, outcome: Hung, attempts: 1}
		switch rpc {
		case "Version", "ListImages":
			fails.attempts, hangs.attempts = 0, 0
		case "RunPodSandbox":
			hangs.unsure = true
		case "StopPodSandbox": // removing it stops it by force
			hangs.left = 1
		case "RemovePodSandbox":
			fails.left, hangs.left = 1, 1
		}
		tests = append(tests,
			test{name: rpc + " fails", faults: []fake.Fault{{RPC: rpc, Error: "Unknown: it is broken"}}, want: fails},
			test{name: rpc + " hangs", faults: []fake.Fault{{RPC: rpc, Hang: true}}, want: hangs})
	}
	// The runtime refuses to remove a sandbox whose StartContainer was given up, as containerd does.
	busy := fake.Fault{RPC: "RemovePodSandbox", Error: "Unknown: container is in starting state, can't be removed"}
	hungStart := fake.Fault{RPC: "StartContainer", Hang: true}
	// The stop fails, as beside a kubelet that stops the sandbox at the same time and has taken down half of the
	// network. A stop that works when it is repeated is no problem of the runtime.
	stop := fake.Fault{RPC: "StopPodSandbox", Error: "Unknown: failed to destroy network for sandbox", First: 1}
	tests = append(tests, []test{
		{
			name: "busy for good", faults: []fake.Fault{hungStart, busy},
			want: want{step: "StartContainer", outcome: Hung, attempts: 1, left: 1},
		},
		{name: "stop fails once", faults: []fake.Fault{stop}, want: want{attempts: 2}},
		{name: "pulled", images: []string{}, image: "nginx:1", ran: "nginx:1", want: done},
		{
			name: "no true", ran: box, want: done, skipped: "ExecSync",
			faults: []fake.Fault{{RPC: "ExecSync", Error: `Unknown: exec failed: "true"` + notFound}},
		},
		{
			name: "no sleep: the pause image", images: both, ran: pauseTag, want: done, skipped: "ExecSync",
			faults: []fake.Fault{{RPC: "StartContainer", First: 1, Error: `Unknown: exec: "sleep"` + notFound}},
		},
		{
			name: "no layers: the pause image", images: both, ran: pauseTag, want: done, skipped: "ExecSync",
			faults: []fake.Fault{{RPC: "CreateContainer", First: 1, Error: "NotFound: content digest sha256:1: not found"}},
		},
		{
			name: "named, and no other is taken", images: []string{box, "app:2"}, image: "app:2", ran: "app:2",
			want: want{"StartContainer", Failed, 1, ByImage, 0, false},
			faults: []fake.Fault{{
				RPC: "StartContainer", First: 1, Error: "Unknown: executable file `sleep` not found in $PATH", // crun's
			}},
		},
		{
			name: "no runc", ran: pauseTag, want: want{"StartContainer", Failed, 1, "", 0, false},
			faults: []fake.Fault{{RPC: "StartContainer", Error: `Unknown: exec: "runc"` + notFound}},
		},
		{
			name: "systemd", ran: box, want: done,
			faults: []fake.Fault{{RPC: "RuntimeConfig", Error: "Unimplemented: unknown method"}, {
				RPC: "RunPodSandbox", First: 1, Error: `Unknown: expected cgroupsPath to be of format "slice:prefix:name"`,
			}},
		},
	}...)
	for _, tt := range tests {
		testkit.Bubble(t, tt.name, func(t *testing.T) {
			if tt.images == nil {
				tt.images = []string{box}
			}
			cri := serve(t, tt.images, tt.faults...)
			opts, start := options(), time.Now()
			opts.Image, opts.Pull = tt.image, true
			got := Run(t.Context(), cri, opts)
			tt.want.check(t, cri, got)
			if d := time.Since(start); d > opts.Course+opts.Cleanup {
				t.Errorf("it took %v", d)
			}
			i := slices.IndexFunc(got.Steps, func(s Step) bool { return s.Outcome == Skipped })
			if (i >= 0) != (tt.skipped != "") || i >= 0 && got.Steps[i].Name != tt.skipped ||
				tt.ran != "" && got.Image != tt.ran {
				t.Errorf("ran %q, steps %+v; want %q, without %q", got.Image, got.Steps, tt.ran, tt.skipped)
			}
		})
	}
}

// TestLateSandbox gives up a RunPodSandbox that the runtime completes a moment later.
func TestLateSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cri := serve(t, []string{box})
		c := &canaryRun{
			cri: cri, opts: options(), res: &Result{}, making: Hung,
			pod: newPod(options(), choice{id: "x"}, time.Now(), false),
		}
		c.opts.Progress = func(string) {}
		go func() {
			time.Sleep(time.Second)
			_, _ = cri.RunPodSandbox(t.Context(), c.pod.sandbox, "") // seen below
		}()
		c.cleanUp(t.Context())
		if c.res.SandboxID == "" {
			t.Error("the sandbox was not found")
		}
		want{}.check(t, cri, c.res)
	})
}

// TestInterrupt ends the context when each of the steps begins. All that was made by then is removed.
func TestInterrupt(t *testing.T) {
	steps := []string{"hung RunPodSandbox"}
	synctest.Test(t, func(t *testing.T) {
		for _, s := range Run(t.Context(), serve(t, []string{box}), options()).Steps {
			steps = append(steps, s.Name)
		}
	})
	for _, step := range steps {
		testkit.Bubble(t, step, func(t *testing.T) {
			fault := fake.Fault{RPC: "RunPodSandbox", Delay: fake.Duration(time.Second)}
			opts := options()
			step, hangs := strings.CutPrefix(step, "hung ")
			if hangs { // it is given up soon, and may appear later
				fault, opts.RPCTimeout = fake.Fault{RPC: "RunPodSandbox", Hang: true}, time.Minute
			}
			cri := serve(t, []string{box}, fault)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			opts.Progress = func(at string) {
				if at == step {
					cancel()
				}
			}
			got := Run(ctx, cri, opts)
			if got.Spoiled != Interrupt || got.CleanedUp == hangs || len(sandboxes(t, cri, true)) != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestHousekeeping stops the sandbox under each canary as a kubelet does.
func TestHousekeeping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cri := serve(t, []string{box})
		opts := options()
		opts.Progress = func(step string) {
			if step != "ExecSync" {
				return
			}
			for _, id := range sandboxes(t, cri, true) {
				testkit.Must(t, cri.StopPodSandbox(t.Context(), id))
			}
		}
		want{"ExecSync", Failed, 3, ByOther, 0, false}.check(t, cri, Run(t.Context(), cri, opts))
	})
}

// TestRun runs where killed runs left something, beside sandboxes that look like it. Only the first may go.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cri := serve(t, []string{box})
		dir := t.TempDir()
		add := func(change func(*runtimeapi.PodSandboxConfig)) (id, run string) {
			p := newPod(options(), choice{id: "x"}, time.Now(), false)
			change(p.sandbox)
			id, err := cri.RunPodSandbox(t.Context(), p.sandbox, "")
			testkit.Must(t, err)
			return id, p.run
		}
		old, run := add(func(*runtimeapi.PodSandboxConfig) {})
		testkit.Must(t, os.MkdirAll(logFolder(dir, run), 0o700))
		add(func(s *runtimeapi.PodSandboxConfig) { s.Labels = map[string]string{"app": "x"} })
		add(func(s *runtimeapi.PodSandboxConfig) { s.Metadata.Namespace = "web" })
		time.Sleep(time.Hour)
		add(func(*runtimeapi.PodSandboxConfig) {}) // another one at the same time
		before := sandboxes(t, cri, false)
		opts := options()
		opts.LogDir = dir
		got := Run(t.Context(), cri, opts)
		var steps []string
		for _, s := range got.Steps {
			if s.Outcome == OK {
				steps = append(steps, s.Name)
			}
		}
		const want = "Version ListImages RunPodSandbox CreateContainer StartContainer ExecSync ListContainerStats " +
			"StopContainer RemoveContainer StopPodSandbox RemovePodSandbox"
		testkit.Equal(t, "steps", strings.Fields(want), steps)
		testkit.Equal(t, "clean, and image", []any{true, box}, []any{got.CleanedUp, got.Image})
		testkit.Equal(t, "earlier", Earlier{Removed: []string{old}}, got.Earlier)
		testkit.Equal(t, "sandboxes that are left", len(before)-1, len(sandboxes(t, cri, false)))
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("%v %v are left of the logs", entries, err)
		}
	})
}

// TestIsLeftover has the sandboxes that TestEarlier does not have.
func TestIsLeftover(t *testing.T) {
	now := time.Date(2026, 3, 14, 3, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name, id, expires string
		age               time.Duration
		want              bool
	}{
		{"may still run", "x", now.Add(time.Second).Format(time.RFC3339), time.Minute, false},
		{"expired", "x", now.Add(-time.Second).Format(time.RFC3339), time.Minute, true},
		{"without a time, for days", "x", "", 25 * time.Hour, true},
		{"with a time years ahead", "x", "2050-01-01T00:00:00Z", 25 * time.Hour, true},
		{"no id", "", now.Add(-time.Second).Format(time.RFC3339), time.Minute, false},
	} {
		s := &runtimeapi.PodSandbox{
			Id: tt.id, Metadata: &runtimeapi.PodSandboxMetadata{Namespace: Namespace},
			CreatedAt:   now.Add(-tt.age).UnixNano(),
			Labels:      map[string]string{Label: "true"},
			Annotations: map[string]string{annotationExpires: tt.expires},
		}
		testkit.Equal(t, tt.name, tt.want, isLeftover(s, now))
	}
}

// TestNewPod wants a pod without rights, which no kubelet takes for its own.
func TestNewPod(t *testing.T) {
	opts := options()
	opts.CNI = true
	p := newPod(opts, choice{id: "sha256:1", name: "busybox"}, time.Now(), true)
	if host := p.sandbox.Hostname; p.sandbox.Linux.CgroupParent != "system.slice" || host != "kdiag-canary-"+p.run {
		t.Errorf("%+v", p.sandbox)
	}
	for _, labels := range []map[string]string{p.sandbox.Labels, p.container.Labels} {
		for key := range labels {
			if strings.HasPrefix(key, "io.kubernetes.") {
				t.Errorf("label %s is the kubelet's", key)
			}
		}
	}
	c := p.container
	if s := c.Linux.SecurityContext; s.Privileged || !s.NoNewPrivs || len(c.Mounts)+len(c.Envs) > 0 {
		t.Errorf("%v", c)
	}
}

// FuzzHostile gives names, labels and times of a hostile runtime to the functions that decide by them.
func FuzzHostile(f *testing.F) {
	f.Add("docker.io/library/busybox:1", "0123456789abcdef", "2026-03-14T03:00:00Z", int64(0))
	for _, run := range []string{
		"../x", "", "..", "../../etc", "0123456789ABCDEF", "0123456789abcdef0",
		"0123456789abcde/",
	} {
		f.Add(":::", run, "\x00", int64(-1))
	}
	f.Fuzz(func(t *testing.T, name, run, expires string, created int64) {
		got := choose([]*runtimeapi.Image{nil, {Id: name, RepoTags: []string{name, ""}}, {RepoDigests: []string{name}}})
		for _, c := range got {
			if c.id != "" && c.id != name {
				t.Errorf("chose %+v of %q", c, name)
			}
		}
		if folder := logFolder("/tmp", run); folder != "" && filepath.Dir(folder) != "/tmp" {
			t.Errorf("%q is not below /tmp", folder)
		}
		isLeftover(&runtimeapi.PodSandbox{
			Id: name, Labels: map[string]string{Label: "true"}, CreatedAt: created,
			Metadata:    &runtimeapi.PodSandboxMetadata{Namespace: Namespace},
			Annotations: map[string]string{annotationExpires: expires},
		}, time.Unix(0, 0))
		lacks(fmt.Sprint(name, expires), run)
	})
}

// rpcTimeout is the deadline of the calls in these tests.
const rpcTimeout = 2 * time.Second

// serve serves an embedded runtime with a busybox and one pod, in which these faults are in force, until the test ends.
func serve(t *testing.T, images []string, faults ...fake.Fault) *remote.Service {
	t.Helper()
	dialer := faketest.Serve(t, fake.Scenario{
		Name: "canary", Images: images, Faults: faults,
		Pods: []fake.PodGroup{{
			Namespace: "web", Name: "shop",
			Containers: []fake.ContainerGroup{{Name: "app", Image: "app:1"}},
		}},
	})
	cri, err := remote.Dial("/run/cri.sock", remote.Options{Timeout: rpcTimeout, Dialer: dialer})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = cri.Close() })
	return cri
}

func options() Options {
	return Options{RPCTimeout: rpcTimeout, Course: 20 * time.Second, Cleanup: 10 * time.Second}
}

// sandboxes are the ids of all sandboxes, or of the canaries alone.
func sandboxes(t *testing.T, cri *remote.Service, canaries bool) []string {
	t.Helper()
	var filter *runtimeapi.PodSandboxFilter
	if canaries {
		filter = &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{Label: "true"}}
	}
	list, err := cri.ListPodSandbox(t.Context(), filter)
	testkit.Must(t, err)
	ids := []string{}
	for _, s := range list {
		ids = append(ids, s.GetId())
	}
	return ids
}

// TestExitError has the answer of docker 20.10 where a container lacks the program.
func TestExitError(t *testing.T) {
	const text = `unable to start container process: exec: "true": executable file not found in $PATH: unknown`
	err := exitError(&runtimeapi.ExecSyncResponse{ExitCode: 127, Stderr: []byte(text + "\r\n")})
	if err.Error() != "the program exited with code 127: "+text || !lacks(err.Error(), execProgram) {
		t.Error(err)
	}
}

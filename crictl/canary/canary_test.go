package canary

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/remote"
)

const box = "docker.io/library/busybox:1"

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cri := serve(t, []string{box})
		before := sandboxes(t, cri, false)
		opts := options()
		opts.LogDir = t.TempDir()
		made := 0
		opts.Progress = func(step string) {
			if step == "StartContainer" {
				entries, _ := os.ReadDir(opts.LogDir)
				made = len(entries)
			}
		}
		got := Run(t.Context(), cri, opts)
		want := []string{
			"Version", "ListImages", "RunPodSandbox", "CreateContainer", "StartContainer", "ExecSync", "ListContainerStats",
			"StopContainer", "RemoveContainer", "StopPodSandbox", "RemovePodSandbox",
		}
		if diff := cmp.Diff(want, names(got.Steps)); diff != "" {
			t.Errorf("steps (-want +got):\n%s", diff)
		}
		if name, outcome := failed(got.Steps); outcome != OK {
			t.Errorf("%s: %s", name, outcome)
		}
		if !got.CleanedUp || got.Attempts != 1 || got.Spoiled != "" || got.Image != box ||
			got.Version.RuntimeName != "containerd" {
			t.Errorf("%+v", got)
		}
		if diff := cmp.Diff(before, sandboxes(t, cri, false)); diff != "" {
			t.Errorf("sandboxes (-before +after):\n%s", diff)
		}
		entries, err := os.ReadDir(opts.LogDir)
		if made != 1 || err != nil || len(entries) != 0 {
			t.Errorf("%d folders of logs during the run, %d after it (%v); want 1 and 0", made, len(entries), err)
		}
	})
}

// TestFaults breaks each call in both ways. Whatever fails, the rest of the run is left out, the clean-up is not, and
// what is not known to be gone is not called so.
func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		rpc         string
		hangs       bool
		step        string // that fails; the RPC's own if empty
		cleaned     bool
		left        int // sandboxes in the result
		still, made int // canaries in the runtime after it; attempts
	}{
		{rpc: "Version", hangs: true, cleaned: true},
		{rpc: "Version", cleaned: true},
		{rpc: "ListImages", hangs: true, cleaned: true},
		{rpc: "ListImages", cleaned: true},
		{rpc: "RunPodSandbox", hangs: true, made: 1},
		{rpc: "RunPodSandbox", cleaned: true, made: 1},
		{rpc: "CreateContainer", hangs: true, cleaned: true, made: 1},
		{rpc: "CreateContainer", cleaned: true, made: 1},
		{rpc: "StartContainer", hangs: true, cleaned: true, made: 1},
		{rpc: "StartContainer", cleaned: true, made: 1},
		{rpc: "ExecSync", hangs: true, cleaned: true, made: 1},
		{rpc: "ExecSync", cleaned: true, made: 1},
		{rpc: "ListContainerStats", hangs: true, cleaned: true, made: 1},
		{rpc: "ListContainerStats", cleaned: true, made: 1},
		{rpc: "StopContainer", hangs: true, cleaned: true, made: 1},
		{rpc: "StopContainer", cleaned: true, made: 1},
		{rpc: "RemoveContainer", hangs: true, cleaned: true, made: 1},
		{rpc: "RemoveContainer", cleaned: true, made: 1},
		{rpc: "StopPodSandbox", hangs: true, left: 1, still: 1, made: 1},
		{rpc: "StopPodSandbox", cleaned: true, made: 1}, // removing it stops it by force
		{rpc: "RemovePodSandbox", hangs: true, left: 1, still: 1, made: 1},
		{rpc: "RemovePodSandbox", left: 1, still: 1, made: 1},
		{rpc: "RuntimeConfig", step: "none", cleaned: true, made: 1},
	} {
		fault, want := fake.Fault{RPC: tt.rpc, Error: "Unknown: it is broken"}, Failed
		if tt.hangs {
			fault, want = fake.Fault{RPC: tt.rpc, Hang: true}, Hung
		}
		t.Run(tt.rpc+" "+string(want), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cri := serve(t, []string{box}, fault)
				opts, start := options(), time.Now()
				got := Run(t.Context(), cri, opts)
				if d := time.Since(start); d > opts.Course+opts.Cleanup {
					t.Errorf("it took %v", d)
				}
				name, outcome := failed(got.Steps)
				if tt.step == "none" {
					tt.rpc, want = "", OK
				}
				if name != tt.rpc || outcome != want {
					t.Errorf("step %s: %s; want %s: %s", name, outcome, tt.rpc, want)
				}
				if got.CleanedUp != tt.cleaned || len(got.Left) != tt.left || got.Attempts != tt.made ||
					got.Spoiled != "" {
					t.Errorf("%+v", got)
				}
				if still := sandboxes(t, cri, true); len(still) != tt.still {
					t.Errorf("%d canaries are there still, want %d", len(still), tt.still)
				}
			})
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
		if !c.res.CleanedUp || c.res.SandboxID == "" || len(sandboxes(t, cri, true)) != 0 {
			t.Errorf("%+v", c.res)
		}
	})
}

// TestBusySandbox removes a sandbox whose StartContainer was given up: the runtime refuses at first, as containerd
// does.
func TestBusySandbox(t *testing.T) {
	const refusal = "Unknown: container is in starting state, can't be removed"
	for _, tt := range []struct {
		name    string
		refused int
		cleaned bool
	}{
		{"soon done", 5, true},
		{"never done", 1000, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cri := serve(t, []string{box},
					fake.Fault{RPC: "StartContainer", Hang: true}, fake.Fault{
						RPC: "RemovePodSandbox", Error: refusal,
						First: tt.refused,
					})
				got := Run(t.Context(), cri, options())
				if name, outcome := failed(got.Steps); name != "StartContainer" || outcome != Hung ||
					got.CleanedUp != tt.cleaned {
					t.Errorf("%s %s %+v", name, outcome, got)
				}
				if left := sandboxes(t, cri, true); (len(left) == 0) != tt.cleaned {
					t.Errorf("%v are left", left)
				}
			})
		})
	}
}

// TestInterrupt ends the context when each of the steps begins. What was made by then is removed.
func TestInterrupt(t *testing.T) {
	for _, step := range []string{
		"Version", "ListImages", "RunPodSandbox", "CreateContainer", "StartContainer", "ExecSync", "StopContainer", "RemoveContainer",
		"StopPodSandbox", "RemovePodSandbox",
	} {
		t.Run(step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cri := serve(t, []string{box}, fake.Fault{RPC: "RunPodSandbox", Delay: fake.Duration(time.Second)})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				opts := options()
				opts.Progress = func(at string) {
					if at == step {
						cancel()
					}
				}
				got := Run(ctx, cri, opts)
				if got.Spoiled != Interrupt || !got.CleanedUp || len(sandboxes(t, cri, true)) != 0 {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// TestInterruptHung interrupts a RunPodSandbox that hangs: it is given up soon, and not called cleaned up.
func TestInterruptHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cri := serve(t, []string{box}, fake.Fault{RPC: "RunPodSandbox", Hang: true})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		opts := options()
		opts.RPCTimeout = time.Minute
		opts.Progress = func(at string) {
			if at == "RunPodSandbox" {
				cancel()
			}
		}
		got := Run(ctx, cri, opts)
		if name, outcome := failed(got.Steps); name != "RunPodSandbox" || outcome != Cut || got.CleanedUp ||
			got.Spoiled != Interrupt {
			t.Errorf("%s %s %+v", name, outcome, got)
		}
	})
}

// TestHousekeeping stops the sandbox under the canary as a kubelet does, in the first rounds or in all. It begins
// with the containers.
func TestHousekeeping(t *testing.T) {
	for _, tt := range []struct {
		name     string
		rounds   int
		at       string
		only     bool // the containers, for longer than the canary waits
		attempts int
		spoiled  Spoiled
	}{
		{"once, before the container", 1, "CreateContainer", false, 2, ""},
		{"twice, before the start", 2, "StartContainer", false, 3, ""},
		{"always", 99, "ExecSync", false, 3, ByOther},
		{"once, the container is killed", 1, "ExecSync", true, 2, ""},
		{"always, the container is killed", 99, "ListContainerStats", true, 3, ByOther},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cri := serve(t, []string{box})
				opts, rounds := options(), 0
				opts.Progress = func(step string) {
					if step != tt.at || rounds == tt.rounds {
						return
					}
					rounds++
					if tt.only {
						killContainers(t, cri)
						return
					}
					for _, id := range sandboxes(t, cri, true) {
						if err := cri.StopPodSandbox(t.Context(), id); err != nil {
							t.Error(err)
						}
					}
				}
				got := Run(t.Context(), cri, opts)
				if got.Attempts != tt.attempts || got.Spoiled != tt.spoiled || !got.CleanedUp {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// killContainers kills the canaries' containers, whose sandboxes stay ready.
func killContainers(t *testing.T, cri *remote.Service) {
	t.Helper()
	list, err := cri.ListContainers(
		t.Context(),
		&runtimeapi.ContainerFilter{LabelSelector: map[string]string{Label: "true"}},
	)
	if err != nil || len(list) == 0 {
		t.Fatalf("%d containers, %v", len(list), err)
	}
	for _, c := range list {
		if err := cri.StopContainer(t.Context(), c.GetId(), 0); err != nil {
			t.Error(err)
		}
	}
}

// TestStopTwice has the stop of the clean-up fail, as it does beside a kubelet that stops the sandbox at the same
// time: the network is half taken down. What works when it is made again is no word about the runtime.
func TestStopTwice(t *testing.T) {
	for _, tt := range []struct {
		name            string
		first, attempts int
		step            string
	}{
		{"once", 1, 2, ""},
		{"with the stop after it", 2, 1, "StopPodSandbox"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fault := fake.Fault{
					RPC:   "StopPodSandbox",
					Error: "Unknown: failed to destroy network for sandbox",
					First: tt.first,
				}
				got := Run(t.Context(), serve(t, []string{box}, fault), options())
				if name, _ := failed(got.Steps); name != tt.step || got.Attempts != tt.attempts || got.Spoiled != "" ||
					!got.CleanedUp {
					t.Errorf("%s fails; %+v", name, got)
				}
			})
		})
	}
}

// TestEarlier leaves what killed runs leave, beside what looks like it, and wants only the first to go.
func TestEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cri := serve(t, []string{box})
		dir := t.TempDir()
		add := func(change func(*runtimeapi.PodSandboxConfig)) (id, run string) {
			p := newPod(options(), choice{id: "x"}, time.Now(), false)
			change(p.sandbox)
			id, err := cri.RunPodSandbox(t.Context(), p.sandbox, "")
			if err != nil {
				t.Fatal(err)
			}
			return id, p.run
		}
		old, run := add(func(*runtimeapi.PodSandboxConfig) {})
		if err := os.MkdirAll(logFolder(dir, run), 0o700); err != nil {
			t.Fatal(err)
		}
		add(func(s *runtimeapi.PodSandboxConfig) { s.Labels = map[string]string{"app": "x"} })
		add(func(s *runtimeapi.PodSandboxConfig) { s.Metadata.Namespace = "web" })
		time.Sleep(time.Hour)
		add(func(*runtimeapi.PodSandboxConfig) {}) // another one at the same time
		before := sandboxes(t, cri, false)
		opts := options()
		opts.LogDir = dir
		got := Run(t.Context(), cri, opts)
		if diff := cmp.Diff(Earlier{Removed: []string{old}}, got.Earlier); diff != "" {
			t.Errorf("earlier (-want +got):\n%s", diff)
		}
		if after := sandboxes(t, cri, false); len(after) != len(before)-1 {
			t.Errorf("%d sandboxes before, %d after", len(before), len(after))
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("%v %v are left of the logs", entries, err)
		}
	})
}

func TestImages(t *testing.T) {
	for _, tt := range []struct {
		name    string
		images  []string // on the node, beside that of the pod
		image   string
		pull    bool
		faults  []fake.Fault
		want    string // that was run
		spoiled Spoiled
		skipped string // step
	}{
		{name: "named", images: []string{"app:2", box}, image: "app:2", want: "app:2"},
		{name: "not there", images: []string{box}, image: "nginx:1", spoiled: NoImage, want: "nginx:1"},
		{name: "pulled", image: "nginx:1", pull: true, want: "nginx:1"},
		{
			name: "pause", images: []string{"registry.k8s.io/pause:3.10"}, image: "registry.k8s.io/pause:3.10",
			want: "registry.k8s.io/pause:3.10", skipped: "ExecSync",
		},
		{
			name: "no true", images: []string{box}, want: box, skipped: "ExecSync",
			faults: []fake.Fault{{RPC: "ExecSync", Error: `Unknown: exec failed: "true": executable file not found in $PATH`}},
		},
		{
			name: "no sleep", images: []string{box}, want: box, spoiled: ByImage,
			faults: []fake.Fault{{RPC: "StartContainer", Error: `Unknown: runc create failed: exec: "sleep": executable file not found in $PATH`}},
		},
		{
			name: "no runc", images: []string{box}, want: box,
			faults: []fake.Fault{{RPC: "StartContainer", Error: `Unknown: exec: "runc": executable file not found in $PATH`}},
		},
		{
			name: "systemd", images: []string{box}, want: box,
			faults: []fake.Fault{
				{RPC: "RuntimeConfig", Error: "Unimplemented: unknown method"},
				{RPC: "RunPodSandbox", First: 1, Error: `Unknown: expected cgroupsPath to be of format "slice:prefix:name" for systemd cgroups`},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cri := serve(t, append([]string{"app:1"}, tt.images...), tt.faults...)
				opts := options()
				opts.Image, opts.Pull = tt.image, tt.pull
				got := Run(t.Context(), cri, opts)
				if got.Image != tt.want || got.Spoiled != tt.spoiled || !got.CleanedUp {
					t.Errorf("%+v", got)
				}
				skipped := ""
				for _, s := range got.Steps {
					if s.Outcome == Skipped {
						skipped = s.Name
					}
				}
				name, outcome := failed(got.Steps)
				if whole := tt.spoiled == "" && tt.name != "no runc"; skipped != tt.skipped ||
					whole != (outcome == OK) &&
						tt.spoiled != NoImage {
					t.Errorf("skipped %q, want %q; %s: %s", skipped, tt.skipped, name, outcome)
				}
			})
		})
	}
}

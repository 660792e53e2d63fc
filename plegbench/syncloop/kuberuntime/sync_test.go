package kuberuntime

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// failsWith expects an error's text.
func failsWith(t *testing.T, want string, r Result) {
	t.Helper()
	if r.Err == nil || r.Err.Error() != want {
		t.Errorf("error %v\nwant  %s", r.Err, want)
	}
}

func TestSyncNewPod(t *testing.T) {
	r := newRig(t)
	var readyCalls int
	r.SandboxReady = func(*v1.Pod) { readyCalls++ }
	p := withInit(testPod("main", "side"), "init")
	res := r.SyncPod(t.Context(), p, r.now(t, p))
	if res.Err != nil || !res.Changed() {
		t.Fatalf("result %+v", res)
	}
	same(t, "calls", []string{
		"RunPodSandbox 0", "PodSandboxStatus sb1", "CreateContainer init", "StartContainer init",
	}, r.cri.took())
	same(t, "actions", []ActionResult{
		{Action: ActionKillSandbox, Target: "uid-1"},
		{Action: ActionCreateSandbox, Target: "web_shop(uid-1)"},
		{Action: ActionStartContainer, Target: "init"},
	}, res.Actions)
	same(t, "events", []string{"Normal Created Container created", "Normal Started Container started"}, r.happened())
	if readyCalls != 1 {
		t.Errorf("SandboxReady was called %d times", readyCalls)
	}
	st := r.now(t, p)
	same(t, "addresses", []string{"10.0.0.1"}, st.IPs)
	if res := r.SyncPod(t.Context(), p, st); res.Changed() || res.Err != nil {
		t.Errorf("while the init container works: %+v", res)
	}
	if err := r.cri.exit(st.Find("init").ID.ID, 0); err != nil {
		t.Fatal(err)
	}
	r.cri.took()
	res = r.SyncPod(t.Context(), p, r.now(t, p))
	same(t, "calls after the init container", []string{
		"CreateContainer main", "StartContainer main", "CreateContainer side", "StartContainer side",
	}, r.cri.took())
	if res.Err != nil {
		t.Error(res.Err)
	}
}

func TestSyncConfigs(t *testing.T) {
	r := newRig(t)
	p := testPod("main")
	c := &p.Spec.Containers[0]
	c.Env = []v1.EnvVar{{Name: "WHO", Value: "you"}}
	c.Command, c.Args = []string{"echo"}, []string{"$(WHO)", "$$(WHO)", "$(NOBODY)"}
	c.TerminationMessagePath = "/dev/termination-log"
	if res := r.SyncPod(t.Context(), p, r.now(t, p)); res.Err != nil {
		t.Fatal(res.Err)
	}
	config := r.cri.configs["main"]
	same(t, "labels", map[string]string{
		"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": "uid-1",
		"io.kubernetes.container.name": "main", container.OwnerLabel: node,
	}, config.GetLabels())
	same(t, "annotations", map[string]string{
		"io.kubernetes.container.hash": "1442d99e", "io.kubernetes.container.restartCount": "0",
		"io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
		"io.kubernetes.pod.terminationGracePeriod":       "30",
	}, config.GetAnnotations())
	same(t, "arguments", []string{"you", "$(WHO)", "$(NOBODY)"}, config.GetArgs())
	same(t, "log path", "main/0.log", config.GetLogPath())
	want := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "uid-1", Attempt: 3}, Hostname: "web",
		Labels: map[string]string{
			"app": "web", "io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": "uid-1",
			container.OwnerLabel: node,
		},
		Annotations: map[string]string{"note": "x"}, LogDirectory: filepath.Join(r.LogDir, "pods", "shop_web_uid-1"),
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			Seccomp:          &runtimeapi.SecurityProfile{},
		}},
	}
	if diff := cmp.Diff(want, r.sandboxConfig(p, 3), protocmp.Transform()); diff != "" {
		t.Errorf("sandbox (-want +got):\n%s", diff)
	}
	p.Name = strings.Repeat("n", 62) + "-x"
	if got := r.sandboxConfig(p, 0).GetHostname(); got != strings.Repeat("n", 62) {
		t.Errorf("host name %s of a long name", got)
	}
}

func TestDNS(t *testing.T) {
	cluster := &runtimeapi.DNSConfig{
		Servers: []string{"10.0.0.10"}, Searches: []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"},
		Options: []string{"ndots:5"},
	}
	for _, tt := range []struct {
		name   string
		policy v1.DNSPolicy
		host   bool
		server []string
		want   *runtimeapi.DNSConfig
	}{
		{"default", v1.DNSDefault, false, cluster.Servers, nil},
		{"cluster", v1.DNSClusterFirst, false, cluster.Servers, cluster},
		{"cluster, on the node's network", v1.DNSClusterFirst, true, cluster.Servers, nil},
		{"cluster, though on the node's network", v1.DNSClusterFirstWithHostNet, true, cluster.Servers, cluster},
		{"a cluster without name server", v1.DNSClusterFirst, false, nil, nil},
	} {
		r := newRig(t)
		r.ClusterDNS, r.ClusterDomain = tt.server, "cluster.local"
		p := testPod("main")
		p.Spec.DNSPolicy, p.Spec.HostNetwork = tt.policy, tt.host
		if diff := cmp.Diff(tt.want, r.dns(p), protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestSyncFailures(t *testing.T) {
	full := status.Error(codes.Unknown, "disk full")
	const sandbox = `failed to "CreatePodSandbox" for "web_shop(uid-1)" with CreatePodSandboxError: ` +
		`"Failed to create sandbox for pod \"web_shop(uid-1)\": rpc error: code = Unknown desc = disk full"`
	both := func(text string) string {
		return `[failed to "StartContainer" for "main" with ` + text + `, failed to "StartContainer" for "side" with ` + text + `]`
	}
	for _, tt := range []struct {
		name, call     string // that fails
		image, objects error
		want, event    string
		calls          string
	}{
		{
			"sandbox", "RunPodSandbox", nil, nil, sandbox, "Warning FailedCreatePodSandBox Failed to create pod sandbox: " + full.Error(),
			"RunPodSandbox 0",
		},
		{
			"sandbox status", "PodSandboxStatus", nil, nil, sandbox,
			"Warning FailedCreatePodSandBox Failed to create pod sandbox: " + full.Error(), "RunPodSandbox 0, PodSandboxStatus sb1",
		},
		{
			"create one of two", "CreateContainer main", nil, nil,
			`failed to "StartContainer" for "main" with CreateContainerError: "disk full"`, "Warning Failed Error: disk full",
			"RunPodSandbox 0, PodSandboxStatus sb1, CreateContainer main, CreateContainer side, StartContainer side",
		},
		{
			"start both", "StartContainer", nil, nil, both(`RunContainerError: "disk full"`), "Normal Created Container created",
			"RunPodSandbox 0, PodSandboxStatus sb1, CreateContainer main, StartContainer main, CreateContainer side, StartContainer side",
		},
		{
			"image", "", errors.New("ErrImagePull"), nil, both(`ErrImagePull: "no such image"`), "Warning Failed Error: ErrImagePull",
			"RunPodSandbox 0, PodSandboxStatus sb1",
		},
		{
			"objects", "", nil, errors.New("no x"), both(`CreateContainerConfigError: "no x"`), "Warning Failed Error: no x",
			"RunPodSandbox 0, PodSandboxStatus sb1",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, p := newRig(t), testPod("main", "side")
			r.cri.fail[tt.call], r.world.err = full, tt.objects
			r.images.reason, r.images.message = tt.image, "no such image"
			if tt.objects != nil {
				from := []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: named("x")}}}
				p.Spec.Containers[0].EnvFrom, p.Spec.Containers[1].EnvFrom = from, from
			}
			failsWith(t, tt.want, r.SyncPod(t.Context(), p, r.now(t, p)))
			same(t, "calls", tt.calls, strings.Join(r.cri.took(), ", "))
			if events := r.happened(); len(events) == 0 || events[0] != tt.event {
				t.Errorf("events %q", events)
			}
		})
	}
}

func TestSyncInitFailureStopsTheRest(t *testing.T) {
	r := newRig(t)
	p := withInit(testPod("main"), "s", "init")
	if res := r.SyncPod(t.Context(), p, r.now(t, p)); res.Err != nil {
		t.Fatal(res.Err)
	}
	r.cri.took()
	r.cri.fail["CreateContainer init"] = status.Error(codes.Unknown, "no")
	res := r.SyncPod(t.Context(), p, r.now(t, p))
	failsWith(t, `failed to "StartContainer" for "init" with CreateContainerError: "no"`, res)
	same(t, "calls", []string{"CreateContainer init"}, r.cri.took())
}

func TestSyncReplacesSandbox(t *testing.T) {
	r := newRig(t)
	p := withInit(testPod("main"), "init")
	r.SyncPod(t.Context(), p, r.now(t, p))
	r.cri.sandboxes[0].State = notReady
	r.happened()
	if res := r.SyncPod(t.Context(), p, r.now(t, p)); res.Err != nil {
		t.Fatal(res.Err)
	}
	same(t, "calls", []string{
		"StopContainer init", "StopPodSandbox sb1", "ContainerStatus init", "RemoveContainer init",
		"RunPodSandbox 1", "PodSandboxStatus sb3", "CreateContainer init", "StartContainer init",
	}, r.cri.took())
	same(t, "event", "Normal SandboxChanged Pod sandbox changed, it will be killed and re-created.", r.happened()[0])
	if n := r.cri.configs["init"].GetMetadata().GetAttempt(); n != 1 {
		t.Errorf("restart count %d, want 1", n)
	}
	// A pod that cannot be killed is not started.
	r.cri.sandboxes[1].State = notReady
	r.cri.fail["StopContainer"] = errors.New("stuck")
	st := r.now(t, p)
	failsWith(t, `failed to "KillContainer" for "init" with KillContainerError: "stuck"`, r.SyncPod(t.Context(), p, st))
	same(t, "calls", []string{"StopContainer init", "StopPodSandbox sb3", "StopPodSandbox sb1"}, r.cri.took())
}

func TestSyncKillsUnwanted(t *testing.T) {
	r := newRig(t)
	p := testPod("main", "side")
	r.SyncPod(t.Context(), p, r.now(t, p))
	p.Spec.Containers[0].Image = "image:2"
	r.happened()
	if res := r.SyncPod(t.Context(), p, r.now(t, p)); res.Err != nil {
		t.Fatal(res.Err)
	}
	same(t, "calls", []string{"StopContainer main", "CreateContainer main", "StartContainer main"}, r.cri.took())
	same(t, "event", "Normal Killing Container main definition changed, will be restarted", r.happened()[0])
	p.Spec.Containers[0].Image = "image:3"
	r.cri.fail["StopContainer"] = errors.New("stuck")
	st := r.now(t, p)
	failsWith(t, `failed to "KillContainer" for "main" with KillContainerError: "stuck"`, r.SyncPod(t.Context(), p, st))
	same(t, "calls", []string{"StopContainer main"}, r.cri.took())
}

func TestSyncCrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := testPod("main")
		sync := func() Result { return r.SyncPod(t.Context(), p, r.now(t, p)) }
		crash := func() {
			time.Sleep(time.Second)
			if err := r.cri.exit(r.now(t, p).Find("main").ID.ID, 1); err != nil {
				t.Fatal(err)
			}
		}
		sync()
		for _, wait := range []time.Duration{0, 10, 20, 40, 80, 160, 300, 300} {
			wait *= time.Second
			crash()
			if wait > 0 {
				res := sync()
				if time.Until(res.Until) != wait || !errors.Is(res.Err, ErrCrashLoopBackOff) ||
					len(res.Actions) != 1 || res.Actions[0].Err.Error() != "CrashLoopBackOff" {
					t.Fatalf("wait %v: %v", wait, res.Err)
				}
				failsWith(t, `failed to "StartContainer" for "main" with CrashLoopBackOff: "back-off `+wait.String()+
					` restarting failed container=main pod=web_shop(uid-1)"`, res)
			}
			time.Sleep(wait)
			if res := sync(); res.Err != nil {
				t.Fatalf("after %v: %v", wait, res.Err)
			}
		}
		if events := r.happened(); !slices.Contains(events, "Warning BackOff Back-off restarting failed container main in pod web_shop(uid-1)") {
			t.Errorf("events %q", events)
		}
		if got := r.cri.configs["main"].GetLogPath(); got != "main/8.log" {
			t.Errorf("log path %s after 8 restarts", got)
		}
		// One that ran long enough begins anew.
		time.Sleep(11 * time.Minute)
		crash()
		if res := sync(); res.Err != nil {
			t.Errorf("after a long run: %v", res.Err)
		}
		time.Sleep(11 * time.Minute)
		r.BackOff.GC()
		if left := r.BackOff.Get(backOffKey(p, &p.Spec.Containers[0])); left != 0 {
			t.Errorf("a back-off of %v is left", left)
		}
	})
}

func TestPostStart(t *testing.T) {
	r := newRig(t)
	p := testPod("main")
	p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
	r.cri.exitCode = 3
	res := r.SyncPod(t.Context(), p, r.now(t, p))
	failsWith(t, `failed to "StartContainer" for "main" with PostStartHookError: "lifecycle hook for Container \"main\" in Pod `+
		`\"web_shop(uid-1)\" failed - error: command 'true' exited with 3: err, message: \"outerr\""`, res)
	same(t, "calls", []string{
		"RunPodSandbox 0", "PodSandboxStatus sb1", "CreateContainer main", "StartContainer main", "ExecSync main [true] 0s", "StopContainer main",
	}, r.cri.took())
	same(t, "events", []string{
		"Normal Created Container created", "Normal Started Container started", "Warning FailedPostStartHook PostStartHook failed",
		"Normal Killing FailedPostStartHook",
	}, r.happened())
}

package signature

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const (
	id64    = "9c1c1f2d4a9d277a41a97593c330f41e00ca12f3ad858c19f61fd155d18d795e"
	other64 = "85ae90d06912432f6422f07a54d90c6b5a9c3c598c364db59cf32be4f58110cb"
	podUID  = "7d3b94f3-afa7-11e7-aaec-06936c368d26"
)

func TestFacts(t *testing.T) {
	const deadline = "context deadline exceeded"
	for _, tt := range []struct {
		record string
		want   Match
	}{
		{
			`E1008 16:37:11.985620    1636 kubelet.go:1846] skipping pod synchronization - PLEG is not healthy: pleg was last seen active 4m38.209858468s ago; threshold is 3m0s`,
			Match{Age: 278209858468, HasAge: true, Threshold: 3 * time.Minute},
		},
		{
			`"Skipping pod synchronization" err="[container runtime is down, PLEG is not healthy: pleg was last seen active 16h14m34.4s ago; threshold is 10m0s]"`,
			Match{Age: 16*time.Hour + 14*time.Minute + 34400*time.Millisecond, HasAge: true, Threshold: 10 * time.Minute, Reasons: []string{"container runtime is down"}},
		},
		{
			`skipping pod synchronization - [container runtime is down PLEG is not healthy: pleg was last seen active 2562047h47m16.854775807s ago; threshold is 3m0s]`,
			Match{Never: true, Threshold: 3 * time.Minute, Reasons: []string{"container runtime is down"}},
		},
		{
			`skipping pod synchronization - [container runtime status check may not have completed yet., PLEG is not healthy: pleg has yet to be successful.]`,
			Match{Never: true, Reasons: []string{"container runtime status check may not have completed yet"}},
		},
		{
			`192.168.231.8: {"ts":1757010283211.4668,"msg":"Skipping pod synchronization","err":"[PLEG is not healthy: pleg was last seen active 3m5s ago; threshold is 3m0s, container runtime not ready: RuntimeReady=false reason:A message:b c]","errCauses":[{"error":"x"}]}`,
			Match{Age: 185 * time.Second, HasAge: true, Threshold: 3 * time.Minute, Reasons: []string{"container runtime not ready: RuntimeReady=false reason:A message:b c"}},
		},
		{
			`KubeletNotReady              container runtime is down,PLEG is not healthy: pleg was last seen active 1h56m24.276794343s ago; threshold is 3m0s`,
			Match{Age: time.Hour + 56*time.Minute + 24276794343, HasAge: true, Threshold: 3 * time.Minute, Condition: true, Reasons: []string{"container runtime is down"}},
		},
		{
			`Node became not ready: {Type:Ready Status:False Reason:KubeletNotReady Message:[PLEG is not healthy: pleg was last seen active 3m7.6s ago; threshold is 3m0s, CSINode is not yet initialized, something new]}`,
			Match{Age: 187600 * time.Millisecond, HasAge: true, Threshold: 3 * time.Minute, Condition: true, Reasons: []string{"CSINode is not yet initialized", "something new"}},
		},
		{
			`"Node became not ready" node="n1" condition={"type":"Ready","status":"False","reason":"KubeletNotReady","message":"[container runtime is down, PLEG is not healthy: pleg was last seen active 3m8.7s ago; threshold is 3m0s]"}`,
			Match{Age: 188700 * time.Millisecond, HasAge: true, Threshold: 3 * time.Minute, Condition: true, Reasons: []string{"container runtime is down"}},
		},
		{`PLEG is not healthy: pleg was last seen active 3m5.301>`, Match{Age: 185301 * time.Millisecond, HasAge: true}},
		{`PLEG is not healthy: pleg was last seen active 3m5`, Match{}},
		{`PLEG is not healthy: pleg was last seen active 3m`, Match{}},
		{`PLEG is not healthy: pleg was last seen active 3m5s ago; threshold is 3m`, Match{Age: 185 * time.Second, HasAge: true}},
		{
			`PodSandboxStatus of sandbox "` + id64 + `" for pod "pickup-566929041-bn8t9_staging(` + podUID + `)" error: rpc error: code = 4 desc = context deadline exceeded`,
			Match{RPC: "PodSandboxStatus", GRPCCode: "DeadlineExceeded", ErrorText: deadline, SandboxID: id64, Pod: "pickup-566929041-bn8t9", Namespace: "staging", PodUID: podUID},
		},
		{
			`PLEG: Ignoring events for pod pickup-566929041-bn8t9/staging: rpc error: code = 4 desc = context deadline exceeded`,
			Match{GRPCCode: "DeadlineExceeded", ErrorText: deadline, Pod: "pickup-566929041-bn8t9", Namespace: "staging"},
		},
		{
			`Error syncing pod ` + podUID + ` ("pickup-1_staging(` + podUID + `)"), skipping: rpc error: code = 4 desc = context deadline exceeded`,
			Match{GRPCCode: "DeadlineExceeded", ErrorText: deadline, Pod: "pickup-1", Namespace: "staging", PodUID: podUID},
		},
		{ // a static pod's uid looks like an id
			`"Error syncing pod, skipping" err="failed to \"KillPodSandbox\" for \"1e49474743edbb563ce86e86324e06d9\" with KillPodSandboxError: \"rpc error: code = DeadlineExceeded desc = context deadline exceeded\"" pod="shop/crash-nodee" podUID="1e49474743edbb563ce86e86324e06d9"`,
			Match{GRPCCode: "DeadlineExceeded", ErrorText: deadline, Pod: "crash-nodee", Namespace: "shop", PodUID: "1e49474743edbb563ce86e86324e06d9"},
		},
		{
			`Error syncing pod 1e49474743edbb563ce86e86324e06d9, skipping: failed to "KillPodSandbox" for "0123456789abcdef" with KillPodSandboxError: "rpc error: code = 4 desc = context deadline exceeded"`,
			Match{GRPCCode: "DeadlineExceeded", ErrorText: deadline, SandboxID: "0123456789abcdef"},
		},
		{
			`ContainerStatus "` + id64 + `" from runtime service failed: rpc error: code = DeadlineExceeded desc = context deadline exceeded`,
			Match{RPC: "ContainerStatus", GRPCCode: "DeadlineExceeded", ErrorText: deadline, ContainerID: id64},
		},
		{
			`"StopPodSandbox from runtime service failed" err="rpc error: code = DeadlineExceeded desc = context deadline exceeded" podSandboxID="` + id64 + `"`,
			Match{RPC: "StopPodSandbox", GRPCCode: "DeadlineExceeded", ErrorText: deadline, SandboxID: id64},
		},
		{
			`"ContainerStatus from runtime service failed" err="rpc error: code = Unknown desc = get \"` + id64 + `\": timeout" pod="api-0_web(` + podUID + `)" containerID={"Type":"containerd","ID":"` + id64 + `"}`,
			Match{RPC: "ContainerStatus", GRPCCode: "Unknown", ErrorText: `get "` + id64 + `": timeout`, ContainerID: id64, Pod: "api-0", Namespace: "web", PodUID: podUID},
		},
		{
			`{"ts":1753121294157.6,"msg":"Container termination failed with gracePeriod","pod":{"name":"api-0","namespace":"web"},"podUID":"` + podUID + `","containerName":"api","containerID":"containerd://` + id64 + `","err":"rpc error: code = DeadlineExceeded desc = context deadline exceeded"}`,
			Match{GRPCCode: "DeadlineExceeded", ErrorText: deadline, ContainerID: id64, Pod: "api-0", Namespace: "web", PodUID: podUID, Container: "api"},
		},
		{
			`time="2026-03-05T10:11:12.1Z" level=error msg="StopContainer for \"` + id64 + `\" failed" error="rpc error: code = DeadlineExceeded desc = an error occurs during waiting for container \"` + id64 + `\" to be killed: wait container \"` + id64 + `\": context deadline exceeded"`,
			Match{
				RPC: "StopContainer", GRPCCode: "DeadlineExceeded", ContainerID: id64,
				ErrorText: (`an error occurs during waiting for container "` + id64 + `" to be killed: wait container "` + id64 + `": context deadline exceeded`)[:maxError],
			},
		},
		{
			`time="2026-03-05T10:11:12.1Z" level=error msg="RunPodSandbox for &PodSandboxMetadata{Name:api-0,Uid:` + podUID + `,Namespace:web,Attempt:0,} failed, error" error="deadline"`,
			Match{RPC: "RunPodSandbox", ErrorText: "deadline", Pod: "api-0", Namespace: "web", PodUID: podUID},
		},
		{
			`level=error msg="RunPodSandbox for name:\"api-0\" uid:\"u-1\" namespace:\"web\" failed, error" error="deadline"`,
			Match{RPC: "RunPodSandbox", ErrorText: "deadline", Pod: "api-0", Namespace: "web", PodUID: "u-1"},
		},
		{
			`failed to reserve container name "api_api-0_web_` + podUID + `_3": name "api_api-0_web_` + podUID + `_3" is reserved for "` + other64 + `"`,
			Match{Pod: "api-0", Namespace: "web", PodUID: podUID, Container: "api", ContainerID: other64},
		},
		{
			`error reserving pod name k8s_api-0_web_` + podUID + `_0 for id ` + id64 + `: name is reserved`,
			Match{Pod: "api-0", Namespace: "web", PodUID: podUID, SandboxID: id64},
		},
		{
			`"GenericPLEG: Unable to retrieve pods" err="rpc error: code = ResourceExhausted desc = grpc: trying to send message larger than max (16791221 vs. 16777216)"`,
			Match{GRPCCode: "ResourceExhausted", ErrorText: "grpc: trying to send message larger than max (16791221 vs. 16777216)", Size: 16791221, Limit: 16777216, Sending: true},
		},
		{
			`ListContainers failed: rpc error: code = 8 desc = grpc: received message larger than max (20000000 vs. 16777216)`,
			Match{RPC: "ListContainers", GRPCCode: "ResourceExhausted", ErrorText: "grpc: received message larger than max (20000000 vs. 16777216)", Size: 20000000, Limit: 16777216},
		},
		{`"Housekeeping took longer than expected" err="housekeeping took too long" expected="1s" actual="2m0.001s"`, Match{Seconds: 120.001}},
		{`"Housekeeping took longer than 15s" seconds=18.25`, Match{Seconds: 18.25}},
		{`du and find on following dirs took 850.5ms: [/a]`, Match{Seconds: 0.8505}},
		{`INFO: task runc:[2:INIT]:4711 blocked for more than 122 seconds.`, Match{Process: "runc:[2:INIT]", PID: 4711, Seconds: 122}},
		{`watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [containerd-shim:1234]`, Match{Process: "containerd-shim", PID: 1234, Seconds: 22}},
		{`Detected process (4711) blocked in uninterruptible sleep for more than 60 seconds for container ` + id64, Match{PID: 4711, Seconds: 60, ContainerID: id64}},
		{`Memory cgroup out of memory: Killed process 4711 ((sd-pam)) total-vm:1kB`, Match{Process: "(sd-pam", PID: 4711, Constraint: "memcg"}},
		{`Out of memory: Kill process 12 (java) score 900 or sacrifice child`, Match{Process: "java", PID: 12, Constraint: "global"}},
		{
			`oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/a,task_memcg=/a/b,task=java,pid=99,uid=0`,
			Match{Process: "java", PID: 99, Constraint: "memcg", Path: "/a/b"},
		},
		{`[123.4] nginx invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=1`, Match{Process: "nginx"}},
		{`nfs: server 10.36.3.5 not responding, still trying`, Match{Path: "10.36.3.5"}},
		{`CIFS: VFS: \\files.example has not responded in 180 seconds. Reconnecting...`, Match{Path: "files.example"}},
		{`XFS (dm-0): Corruption of in-memory data detected.  Shutting down filesystem`, Match{Device: "dm-0"}},
		{`EXT4-fs error (device sda1): ext4_find_entry:1455`, Match{Device: "sda1"}},
		{`blk_update_request: I/O error, dev sdb, sector 1234`, Match{Device: "sdb"}},
		{`nvme nvme0: I/O 12 QID 3 timeout, aborting`, Match{Device: "nvme0"}},
		{`unregister_netdevice: waiting for eth0 to become free. Usage count = 1`, Match{Device: "eth0"}},
		{`cgroup: fork rejected by pids controller in /kubepods/burstable/pod1/0a`, Match{Path: "/kubepods/burstable/pod1/0a"}},
		{`write /var/lib/containerd/x/meta.db: no space left on device`, Match{Path: "/var/lib/containerd/x/meta.db"}},
		{`kubelet.service: Scheduled restart job, restart counter is at 17.`, Match{Unit: "kubelet.service", Role: Kubelet}},
		{`kubelet.service: Main process exited, code=killed, status=6/ABRT`, Match{Unit: "kubelet.service", Role: Kubelet, ErrorText: "code=killed, status=6/ABRT"}},
		{`snap.microk8s.daemon-containerd.service: Failed with result 'exit-code'.`, Match{Unit: "snap.microk8s.daemon-containerd.service", Role: Runtime, ErrorText: "exit-code"}},
		{`init.scope[1]: Started kubelet: The Kubernetes Node Agent.`, Match{Unit: "Kubernetes Node Agent", Role: Kubelet}},
		{`Stopping cri-docker.service - CRI Interface for Docker Application Container Engine...`, Match{Unit: "cri-docker.service", Role: Runtime}},
		{`kubelet.service: Watchdog timeout (limit 1min 30s)!`, Match{Unit: "kubelet.service", Role: Kubelet, Seconds: 90}},
		{`foo.service: A process of this unit has been killed by the OOM killer.`, Match{Unit: "foo.service"}},
		{`Suppressed 1234 messages from /system.slice/docker.service`, Match{Unit: "docker.service", Role: Runtime}},
		{`2016-02-29 18:36:57,354 INFO exited: kubelet (exit status 2; expected)`, Match{Unit: "kubelet", Role: Kubelet}},
	} {
		hits := NewMatcher().Match([]byte(tt.record), nil)
		if len(hits) == 0 {
			t.Errorf("%q bears nothing", tt.record)
			continue
		}
		if diff := cmp.Diff(tt.want, hits[0], cmpopts.IgnoreFields(Match{}, "Signature"), cmpopts.EquateApprox(1e-9, 0)); diff != "" {
			t.Errorf("%q (-want +got)\n%s", tt.record, diff)
		}
	}
}

func TestDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"3m0s": 3 * time.Minute, "3m0s.": 3 * time.Minute, "0s": 0, "27h14m51.413818128s ago": 27*time.Hour + 14*time.Minute + 51413818128,
		"850ms": 850 * time.Millisecond, "91.598µs": 91598, "91.598us": 91598, "12ns": 12, "3m21.3659944s": 201365994400,
		"2562047h47m16.854775807s": math.MaxInt64, "3m5.5": 185500 * time.Millisecond,
	} {
		if got, ok := duration(s); !ok || got != want {
			t.Errorf("duration(%q) = %v, %v, want %v", s, got, ok, want)
		}
	}
	for _, s := range []string{"", "x", "3", "3m", "3m5", "3m5.", "3 m5s", "-3s", "9999999h0m0s", "3h5m"} {
		if got, ok := duration(s); ok {
			t.Errorf("duration(%q) = %v", s, got)
		}
	}
}

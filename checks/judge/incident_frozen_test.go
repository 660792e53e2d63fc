package judge

import (
	"testing"
)

// What happens on a node beside a runtime that hangs: is it taken for the root, and how sure?
func TestBesideFrozen(t *testing.T) {
	const pods = "task_memcg=/kubepods.slice/kubepods-pod1.slice/cri-containerd-aa.scope,"
	const ok = "nfs: server 10.36.3.5 OK"
	tests := []struct {
		name     string
		beside   []string
		code     string
		min, max float64 // of its confidence
	}{
		{"the clock is set", []string{"900 Time has been changed"}, "ClockJumped", 0.05, 0.2},
		{
			"suspended long before",
			[]string{"500 PM: suspend entry (deep)", "600 PM: suspend exit"},
			"ClockJumped", 0,
			0,
		},
		{
			"suspended while it became unhealthy",
			[]string{"900 PM: suspend entry (deep)", "1050 PM: suspend exit"},
			"ClockJumped", 0.6, 0.6,
		},
		{
			"a container's entry point is killed",
			[]string{"970 Memory cgroup out of memory: Killed process 4567 (docker-entrypoi) total-vm:1kB"},
			"OOMKilled", 0.05, 0.35,
		},
		{"docker in docker is killed", []string{
			"970 oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/kubepods.slice," + pods +
				"task=dockerd,pid=4567,uid=0",
			"970 Memory cgroup out of memory: Killed process 4567 (dockerd) total-vm:1kB",
		}, "OOMKilled", 0.05, 0.35},
		{"docker dies by the limit of its own unit", []string{
			"970 oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task_memcg=/system.slice/docker.service,task=dockerd,pid=4567,uid=0",
			"970 Memory cgroup out of memory: Killed process 4567 (dockerd) total-vm:1kB",
		}, "OOMKilled", 0.8, 0.8},
		{
			"the runtime is killed",
			[]string{"1001 Out of memory: Killed process 4567 (containerd) total-vm:1kB"},
			"OOMKilled", 0.8, 0.8,
		},
		{
			"a shim is killed long after",
			[]string{"1300 Out of memory: Killed process 4567 (containerd-shim) total-vm:1kB"},
			"OOMKilled", 0.05, 0.35,
		},
		{
			"a task hangs since before",
			[]string{"1240 INFO: task postgres:987 blocked for more than 120 seconds."},
			"KernelHung", 0.75, 0.75,
		},
		{
			"a task hangs only later",
			[]string{"1280 INFO: task containerd:987 blocked for more than 120 seconds."},
			"KernelHung", 0.05, 0.35,
		},
		{
			"a file server does not answer",
			[]string{"1020 nfs: server 10.36.3.5 not responding, still trying"},
			"FilesystemHung", 0.8, 0.8,
		},
		{"a file server was back before", []string{"900 nfs: server 10.36.3.5 not responding, still trying", "930 " +
			ok}, "FilesystemHung", 0.05, 0.35},
		{"a file server was back in the middle", []string{
			"1020 nfs: server 10.36.3.5 not responding, still trying",
			"1100 " + ok,
		}, "FilesystemHung", 0.05, 0.45},
		{"PLEG is back with the file server", []string{
			"1020 nfs: server 10.36.3.5 not responding, still trying", "1480 " + ok,
			`1485 "SyncLoop UPDATE" source="api" pods=["ns/p"]`,
		}, "FilesystemHung", 0.8, 0.8},
		{"an app's disk is full", []string{"1020@app write /data/x: no space left on device"}, "DiskFull", 0.05, 0.35},
		{
			"the runtime's disk is full",
			[]string{"1020@containerd write /data/x: no space left on device"},
			"DiskFull",
			0.75, 0.75,
		},
		{
			"the kubelet says once that a disk is full",
			[]string{`1020@kubelet "Failed" err="fork/exec /usr/bin/x: no space left on device"`},
			"DiskFull", 0.05, 0.35,
		},
		{"the kubelet goes on saying that a disk is full", []string{
			`1020@kubelet "Failed" err="mkdir x: no space left on device"`,
			`1040@kubelet "Failed" err="mkdir x: no space left on device"`,
		}, "DiskFull", 0.75, 0.75},
		{
			"the node has no file left",
			[]string{`970@app open x: too many open files in system`},
			"FilesExhausted",
			0.7, 0.7,
		},
		{"a runtime's accept fails", []string{"970@dockerd accept4: too many open files"}, "FilesExhausted", 0.7, 0.7},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := readLog(t, append(frozen(), tt.beside...)...)
			c, _ := causeIn(r, tt.code)
			if c.Confidence < tt.min || c.Confidence > tt.max {
				t.Errorf("%s has confidence %.2f, want %.2f to %.2f%s", tt.code, c.Confidence, tt.min, tt.max,
					causesOf(r))
			}
			want := "RuntimeHung"
			if tt.min >= likelyRoot {
				want = tt.code
			}
			if got := r.Episodes[0].Causes[0].Code; got != want {
				t.Errorf("first is %s, want %s%s", got, want, causesOf(r))
			}
		})
	}
}

package journal

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/journal/signature"
)

// frozen is a runtime that hangs as a whole from an anchor at 1000 s.
func frozen() []string {
	return append([]string{
		`1120 "GenericPLEG: Unable to retrieve pods" ` + late,
		`1121 "Container runtime sanity check failed" ` + late,
		`1241 "GenericPLEG: Unable to retrieve pods" ` + late,
	}, skips(1000, 60, "container runtime is down")...)
}

// cause returns the cause of the first incident with a code.
func cause(r *Report, code string) (Cause, bool) {
	for _, e := range r.Episodes {
		for _, c := range e.Causes {
			if c.Code == code {
				return c, true
			}
		}
	}
	return Cause{}, false
}

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
		{"suspended long before", []string{"500 PM: suspend entry (deep)", "600 PM: suspend exit"}, "ClockJumped", 0, 0},
		{"suspended while it became unhealthy", []string{"900 PM: suspend entry (deep)", "1050 PM: suspend exit"}, "ClockJumped", 0.6, 0.6},
		{"a container's entry point is killed", []string{"970 Memory cgroup out of memory: Killed process 4567 (docker-entrypoi) total-vm:1kB"}, "OOMKilled", 0.05, 0.35},
		{"a container's own start is killed", []string{"970 Memory cgroup out of memory: Killed process 4567 (runc:[2:INIT]) total-vm:1kB"}, "OOMKilled", 0.05, 0.35},
		{"systemd in a container is killed", []string{"970 Memory cgroup out of memory: Killed process 4567 (systemd) total-vm:1kB"}, "OOMKilled", 0.05, 0.35},
		{"docker in docker is killed", []string{
			"970 oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/kubepods.slice," + pods + "task=dockerd,pid=4567,uid=0",
			"970 Memory cgroup out of memory: Killed process 4567 (dockerd) total-vm:1kB",
		}, "OOMKilled", 0.05, 0.35},
		{"docker dies by the limit of its own unit", []string{
			"970 oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task_memcg=/system.slice/docker.service,task=dockerd,pid=4567,uid=0",
			"970 Memory cgroup out of memory: Killed process 4567 (dockerd) total-vm:1kB",
		}, "OOMKilled", 0.8, 0.8},
		{"docker dies by a limit that is not told", []string{"970 Memory cgroup out of memory: Killed process 4567 (dockerd) total-vm:1kB"}, "OOMKilled", 0.5, 0.6},
		{"the runtime is killed", []string{"1001 Out of memory: Killed process 4567 (containerd) total-vm:1kB"}, "OOMKilled", 0.8, 0.8},
		{"a shim is killed long after", []string{"1300 Out of memory: Killed process 4567 (containerd-shim) total-vm:1kB"}, "OOMKilled", 0.05, 0.35},
		{"a task hangs since before", []string{"1240 INFO: task postgres:987 blocked for more than 120 seconds."}, "KernelHung", 0.75, 0.75},
		{"a task hangs only later", []string{"1280 INFO: task containerd:987 blocked for more than 120 seconds."}, "KernelHung", 0.05, 0.35},
		{"a CPU stood when it began", []string{"1020 watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [kworker/3:1:99]"}, "KernelHung", 0.75, 0.75},
		{"a CPU stands only later", []string{"1120 watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [kworker/3:1:99]"}, "KernelHung", 0.05, 0.35},
		{"a file server does not answer", []string{"1020 nfs: server 10.36.3.5 not responding, still trying"}, "FilesystemHung", 0.8, 0.8},
		{"a file server was back before", []string{"900 nfs: server 10.36.3.5 not responding, still trying", "930 " + ok}, "FilesystemHung", 0.05, 0.2},
		{"a file server was back in the middle", []string{"1020 nfs: server 10.36.3.5 not responding, still trying", "1100 " + ok}, "FilesystemHung", 0.05, 0.45},
		{"PLEG is back with the file server", []string{
			"1020 nfs: server 10.36.3.5 not responding, still trying", "1480 " + ok, `1485 "SyncLoop UPDATE" source="api" pods=["ns/p"]`,
		}, "FilesystemHung", 0.8, 0.8},
		{"an app's disk is full", []string{"1020@app write /data/x: no space left on device"}, "DiskFull", 0.05, 0.35},
		{"the runtime's disk is full", []string{"1020@containerd write /data/x: no space left on device"}, "DiskFull", 0.75, 0.75},
		{"an app writes where the runtime does", []string{"1020@app write /var/log/pods/x/0.log: no space left on device"}, "DiskFull", 0.75, 0.75},
		{"the kubelet says once that a disk is full", []string{`1020@kubelet "Failed" err="fork/exec /usr/bin/x: no space left on device"`}, "DiskFull", 0.05, 0.35},
		{"the kubelet goes on saying that a disk is full", []string{
			`1020@kubelet "Failed" err="mkdir x: no space left on device"`, `1040@kubelet "Failed" err="mkdir x: no space left on device"`,
		}, "DiskFull", 0.75, 0.75},
		{"the kubelet cannot open one file", []string{`970@kubelet "Unable to read config path" err="open x: too many open files"`}, "FilesExhausted", 0.05, 0.35},
		{"the node has no file left", []string{`970@app open x: too many open files in system`}, "FilesExhausted", 0.7, 0.7},
		{"a runtime's accept fails", []string{"970@dockerd accept4: too many open files"}, "FilesExhausted", 0.7, 0.7},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := report(t, append(frozen(), tt.beside...)...)
			c, _ := cause(r, tt.code)
			if c.Confidence < tt.min || c.Confidence > tt.max {
				t.Errorf("%s has confidence %.2f, want %.2f to %.2f%s", tt.code, c.Confidence, tt.min, tt.max, brief(r))
			}
			want := "RuntimeHung"
			if tt.min >= rootFrom {
				want = tt.code
			}
			if got := r.Episodes[0].Causes[0].Code; got != want {
				t.Errorf("first is %s, want %s%s", got, want, brief(r))
			}
		})
	}
}

func TestRoles(t *testing.T) {
	want := map[string]Role{
		"containerd": RoleRuntime, "dockerd": RoleRuntime, "docker": RoleRuntime, "crio": RoleRuntime, "cri-dockerd": RoleRuntime,
		"containerd-shim": RoleShim, "docker-containe": RoleShim, "conmon": RoleShim, "conmon: /usr": RoleShim,
		"runc": RoleOCI, "runc:[2:INIT]": RoleOCI, "kubelet": RoleKubelet, "k3s-server": RoleKubelet, "systemd": RoleInit,
		"docker-entrypoi": RoleOther, "docker-proxy": RoleOther, "systemd-journal": RoleOther, "java": RoleOther, "": RoleOther,
	}
	for name, r := range want {
		if got := TaskRole(name); got != r {
			t.Errorf("TaskRole(%q) = %d, want %d", name, got, r)
		}
	}
}

func TestCertificates(t *testing.T) {
	const (
		own    = `"Failed to watch" err="Get \"https://10.0.0.1:6443/api/v1/nodes\": remote error: tls: expired certificate"`
		start  = `"part of the existing bootstrap client certificate in /etc/kubernetes/kubelet.conf is expired: 2026-11-19 00:00:00 +0000 UTC"`
		server = `"Error updating node status, will retry" err="Get \"https://10.0.0.1:6443/api/v1/nodes/n1\": tls: failed to verify certificate: x509: certificate has expired or is not yet valid"`
		images = `"Failed to pull image" err="Get \"https://registry.example.org/v2/\": x509: certificate has expired or is not yet valid"`
	)
	for _, tt := range []struct{ record, want string }{
		{own, "The kubelet's own certificate has expired"},
		{start, "The kubelet's own certificate has expired"},
		{server, "The API server's certificate has expired"},
		{images, "A certificate has expired"},
	} {
		r := report(t, append(frozen(), "1000 "+tt.record)...)
		c, ok := cause(r, "CertificateExpired")
		if !ok || !strings.HasPrefix(c.Summary, tt.want) {
			t.Errorf("%s\ngot  %q\nwant %q", tt.record, c.Summary, tt.want)
		}
	}
}

// Evidence stands in the zone of the log.
func TestEvidenceZone(t *testing.T) {
	zone := time.FixedZone("", 8*3600)
	c := &caseFile{f: &facts{zone: zone}}
	us := time.Date(2026, 11, 21, 12, 3, 25, 0, time.UTC).UnixMicro()
	got := []string{c.stretch(us, us), c.stretch(us, us+61*second), c.stretch(0, 0)}
	c.f.zone = time.UTC
	got = append(got, c.stretch(us, us))
	want := []string{", 20:03:25 +08:00", ", 20:03:25 to 20:04:26 +08:00", "", ", 12:03:25 UTC"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	lines := `Nov 21 20:06:28 n1 kubelet[1]: E1121 20:06:28.500000       1 kubelet.go:1] "Skipping pod synchronization" err="[container runtime is down, PLEG is not healthy: pleg was last seen active 3m3.5s ago; threshold is 3m0s]"` + "\n"
	name := put(t, "zone.log", lines)
	r, err := Read(t.Context(), Options{Now: now, Local: zone, Inputs: []Input{{Path: name}}})
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(r.Episodes[0].Causes); !strings.Contains(text, "20:06:28 +08:00") || strings.Contains(text, "UTC") {
		t.Errorf("evidence is not in the zone of the log: %s", text)
	}
}

func TestLag(t *testing.T) {
	if got := lag(signature.HungTask, &burst{seconds: 245}); got != 490*second {
		t.Errorf("a task that has hung for 245 s began up to %d s before, want 490", got/second)
	}
	if got := lag(signature.OOMKill, &burst{}); got != 0 {
		t.Errorf("a kill happened %d s before its record, want 0", got/second)
	}
}

// A code that anyone writes splits by who wrote it; others do not.
func TestAnyonesWords(t *testing.T) {
	codes := []string{}
	for _, s := range signature.Catalogue() {
		if anyonesWords(s.Code) {
			codes = append(codes, s.Code)
		}
	}
	for _, r := range limitRules() {
		if !slices.Contains(codes, r.code) {
			t.Errorf("who writes %s is not kept", r.code)
		}
	}
}

package kuberuntime

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func limits(cpuRequest, memoryRequest, cpu, memory string) v1.ResourceRequirements {
	list := func(cpu, memory string) v1.ResourceList {
		l := v1.ResourceList{}
		if cpu != "" {
			l[v1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			l[v1.ResourceMemory] = resource.MustParse(memory)
		}
		return l
	}
	return v1.ResourceRequirements{Requests: list(cpuRequest, memoryRequest), Limits: list(cpu, memory)}
}

func TestResources(t *testing.T) {
	type result struct{ Shares, Quota, Memory, OOM int64 }
	r := newRig(t)
	r.CgroupV2 = true
	for name, tt := range map[string]struct {
		in   v1.ResourceRequirements
		want result
	}{
		"nothing":                  {v1.ResourceRequirements{}, result{2, 0, 0, 1000}},
		"request":                  {limits("500m", "512Mi", "", ""), result{512, 0, 0, 500}},
		"limit stands for request": {limits("", "", "2", "1Gi"), result{2048, 200000, 1 << 30, 999}},
		"least":                    {limits("0", "1Gi", "1m", ""), result{2, 1000, 0, 3}},
		"guaranteed":               {limits("2", "1Gi", "2", "1Gi"), result{2048, 200000, 1 << 30, -997}},
		"most":                     {limits("1000", "", "", ""), result{262144, 0, 0, 999}},
	} {
		t.Run(name, func(t *testing.T) {
			p := testPod("main")
			p.Spec.Containers[0].Resources = tt.in
			got := r.linuxResources(p, &p.Spec.Containers[0])
			same(t, "resources", tt.want, result{got.GetCpuShares(), got.GetCpuQuota(), got.GetMemoryLimitInBytes(), got.GetOomScoreAdj()})
			if got.GetCpuPeriod() != 100000 || got.GetUnified()["memory.oom.group"] != "1" {
				t.Errorf("period %d, unified %v", got.GetCpuPeriod(), got.GetUnified())
			}
		})
	}
}

func TestContainerSecurity(t *testing.T) {
	p := testPod("main")
	p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: new(int64(1)), RunAsGroup: new(int64(2))}
	p.Spec.HostPID, p.Spec.HostIPC, p.Spec.HostNetwork = true, true, true
	p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{
		RunAsUser: new(int64(3)), Privileged: new(true), ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
	}
	n := runtimeapi.NamespaceMode_NODE
	want := &runtimeapi.LinuxContainerSecurityContext{
		Privileged: true, ReadonlyRootfs: true, NoNewPrivs: true, RunAsUser: &runtimeapi.Int64Value{Value: 3},
		RunAsGroup: &runtimeapi.Int64Value{Value: 2}, NamespaceOptions: &runtimeapi.NamespaceOption{Network: n, Pid: n, Ipc: n},
	}
	got := containerSecurity(p, &p.Spec.Containers[0])
	if len(got.GetMaskedPaths()) == 0 || len(got.GetReadonlyPaths()) == 0 {
		t.Error("nothing of /proc is hidden")
	}
	got.MaskedPaths, got.ReadonlyPaths = nil, nil
	if diff := cmp.Diff(want, got, protocmp.Transform(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !newRig(t).sandboxConfig(p, 0).GetLinux().GetSecurityContext().GetPrivileged() {
		t.Error("a privileged container is in a sandbox that is not")
	}
	if got := containerSecurity(testPod("main"), &v1.Container{}); got.GetNoNewPrivs() || got.GetPrivileged() || got.GetRunAsUser() != nil {
		t.Errorf("by default: %v", got)
	}
}

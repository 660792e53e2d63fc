package kuberuntime

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
	r := newRig(t)
	for _, tt := range []struct {
		name string
		in   v1.ResourceRequirements
		want *runtimeapi.LinuxContainerResources
	}{
		{"nothing", v1.ResourceRequirements{}, &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, OomScoreAdj: 1000}},
		{"request", limits("500m", "512Mi", "", ""), &runtimeapi.LinuxContainerResources{CpuShares: 512, CpuPeriod: 100000, OomScoreAdj: 500}},
		{"limit stands for request", limits("", "", "2", "1Gi"), &runtimeapi.LinuxContainerResources{
			CpuShares: 2048, CpuPeriod: 100000, CpuQuota: 200000, MemoryLimitInBytes: 1 << 30, OomScoreAdj: 999,
		}},
		{
			"least", limits("0", "1Gi", "1m", ""),
			&runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, CpuQuota: 1000, OomScoreAdj: 3},
		},
		{"guaranteed", limits("2", "1Gi", "2", "1Gi"), &runtimeapi.LinuxContainerResources{
			CpuShares: 2048, CpuPeriod: 100000, CpuQuota: 200000, MemoryLimitInBytes: 1 << 30, OomScoreAdj: -997,
		}},
		{"most", limits("1000", "", "", ""), &runtimeapi.LinuxContainerResources{CpuShares: 262144, CpuPeriod: 100000, OomScoreAdj: 999}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := testPod("main")
			p.Spec.Containers[0].Resources = tt.in
			if diff := cmp.Diff(tt.want, r.linuxResources(p, &p.Spec.Containers[0]), protocmp.Transform()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	r.CgroupV2 = true
	p := testPod("main")
	if got := r.linuxResources(p, &p.Spec.Containers[0]); got.GetUnified()["memory.oom.group"] != "1" {
		t.Errorf("with cgroup v2: %v", got)
	}
}

func TestContainerSecurity(t *testing.T) {
	image := func(user string) *runtimeapi.Image { return &runtimeapi.Image{Username: user} }
	base := func(change func(*runtimeapi.LinuxContainerSecurityContext)) *runtimeapi.LinuxContainerSecurityContext {
		s := &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			RunAsUser:        &runtimeapi.Int64Value{}, MaskedPaths: maskedPaths(), ReadonlyPaths: readonlyPaths(),
			Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
		}
		change(s)
		return s
	}
	for _, tt := range []struct {
		name  string
		image *runtimeapi.Image
		pod   func(p *v1.PodSpec)
		own   v1.SecurityContext
		want  func(*runtimeapi.LinuxContainerSecurityContext)
	}{
		{"nothing", nil, func(*v1.PodSpec) {}, v1.SecurityContext{}, func(*runtimeapi.LinuxContainerSecurityContext) {}},
		{"image's user", image("nobody"), func(*v1.PodSpec) {}, v1.SecurityContext{}, func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.RunAsUser, s.RunAsUsername = nil, "nobody"
		}},
		{"the container's settings override the pod's", nil, func(p *v1.PodSpec) {
			p.SecurityContext = &v1.PodSecurityContext{
				RunAsUser: new(int64(1)), RunAsGroup: new(int64(2)), FSGroup: new(int64(7)), SupplementalGroups: []int64{8},
				SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
			}
		}, v1.SecurityContext{RunAsUser: new(int64(3))}, func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.RunAsUser, s.RunAsGroup, s.SupplementalGroups = int64Value(new(int64(3))), int64Value(new(int64(2))), []int64{7, 8}
			s.Seccomp.ProfileType = runtimeapi.SecurityProfile_RuntimeDefault
		}},
		{"privileges", nil, func(p *v1.PodSpec) { p.HostPID, p.HostIPC, p.HostNetwork = true, true, true }, v1.SecurityContext{
			Privileged: new(true), ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
			Capabilities: &v1.Capabilities{Add: []v1.Capability{"NET_ADMIN"}, Drop: []v1.Capability{"ALL"}},
		}, func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.Privileged, s.ReadonlyRootfs, s.NoNewPrivs = true, true, true
			s.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"NET_ADMIN"}, DropCapabilities: []string{"ALL"}}
			n := runtimeapi.NamespaceMode_NODE
			s.NamespaceOptions = &runtimeapi.NamespaceOption{Network: n, Pid: n, Ipc: n}
		}},
		{"shared processes", nil, func(p *v1.PodSpec) { p.ShareProcessNamespace = new(true) }, v1.SecurityContext{}, func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, p := newRig(t), testPod("main")
			tt.pod(&p.Spec)
			p.Spec.Containers[0].SecurityContext = &tt.own
			got, err := r.containerSecurity(p, &p.Spec.Containers[0], tt.image)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(base(tt.want), got, protocmp.Transform()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if r.sandboxConfig(p, 0).GetLinux().GetSecurityContext().GetPrivileged() != got.GetPrivileged() {
				t.Error("the sandbox has other privileges")
			}
		})
	}
	r := newRig(t)
	r.SeccompDefault = true
	if s, err := r.containerSecurity(testPod("main"), &v1.Container{}, nil); err != nil || s.GetSeccomp().GetProfileType() != runtimeapi.SecurityProfile_RuntimeDefault {
		t.Errorf("seccompDefault: %v, %v", s, err)
	}
}

func TestSecurityErrors(t *testing.T) {
	nonRoot := &v1.SecurityContext{RunAsNonRoot: new(true)}
	of := ` (pod: "web_shop(uid-1)", container: main)`
	for _, tt := range []struct {
		name  string
		image *runtimeapi.Image
		own   *v1.SecurityContext
		want  string
	}{
		{"root user", nil, &v1.SecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64)}, "container's runAsUser breaks non-root policy" + of},
		{"root image", &runtimeapi.Image{Uid: &runtimeapi.Int64Value{}}, nonRoot, "container has runAsNonRoot and image will run as root" + of},
		{"image without a user", nil, nonRoot, "container has runAsNonRoot and image will run as root" + of},
		{
			"named image user", &runtimeapi.Image{Username: "app"}, nonRoot,
			"container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root" + of,
		},
		{"another user", nil, &v1.SecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(5))}, ""},
		{"image's number", &runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 5}}, nonRoot, ""},
		{
			"profile", nil, &v1.SecurityContext{SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost}},
			"seccomp profiles of the node are not supported",
		},
	} {
		p := testPod("main")
		p.Spec.Containers[0].SecurityContext = tt.own
		_, err := newRig(t).containerSecurity(p, &p.Spec.Containers[0], tt.image)
		if err == nil && tt.want != "" || err != nil && err.Error() != tt.want {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}

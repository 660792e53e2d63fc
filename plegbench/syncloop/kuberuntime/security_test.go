package kuberuntime

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func yes() *bool { b := true; return &b }
func no() *bool  { b := false; return &b }

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

func TestOOMScore(t *testing.T) {
	p := withInit(testPod("main"), "s")
	p.Spec.Containers[0].Resources = limits("", "256Mi", "", "")
	critical := testPod("main")
	prio := int32(2000001000)
	critical.Spec.Priority, critical.Spec.PriorityClassName = &prio, "system-node-critical"
	const gi = 1 << 30
	for _, tt := range []struct {
		name     string
		pod      *v1.Pod
		c        *v1.Container
		class    v1.PodQOSClass
		capacity int64
		want     int64
	}{
		{"guaranteed", p, &p.Spec.Containers[0], v1.PodQOSGuaranteed, gi, -997},
		{"best effort", p, &p.Spec.Containers[0], v1.PodQOSBestEffort, gi, 1000},
		{"burstable", p, &p.Spec.Containers[0], v1.PodQOSBurstable, gi, 750},
		{"a sidecar is like those it serves", p, &p.Spec.InitContainers[0], v1.PodQOSBurstable, gi, 750},
		{"critical", critical, &critical.Spec.Containers[0], v1.PodQOSBestEffort, gi, -997},
		{"unknown capacity", p, &p.Spec.Containers[0], v1.PodQOSBurstable, 0, 1000},
	} {
		if got := oomScore(tt.pod, tt.c, tt.class, tt.capacity); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestContainerSecurity(t *testing.T) {
	r := newRig(t)
	profile, group, policy := "p.json", int64(7), v1.SupplementalGroupsPolicyStrict
	unmasked := v1.UnmaskedProcMount
	root := imageUser{uid: new(int64)}
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
		name string
		user imageUser
		pod  func(p *v1.PodSpec)
		own  v1.SecurityContext
		want func(*runtimeapi.LinuxContainerSecurityContext)
	}{
		{"nothing", root, func(*v1.PodSpec) {}, v1.SecurityContext{}, func(*runtimeapi.LinuxContainerSecurityContext) {}},
		{"image's user", imageUser{name: "nobody"}, func(*v1.PodSpec) {}, v1.SecurityContext{}, func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.RunAsUser, s.RunAsUsername = nil, "nobody"
		}},
		{"the container's goes before the pod's", root, func(p *v1.PodSpec) {
			p.SecurityContext = &v1.PodSecurityContext{
				RunAsUser: seconds(1), RunAsGroup: seconds(2), FSGroup: &group, SupplementalGroups: []int64{8}, SupplementalGroupsPolicy: &policy,
				SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
			}
		}, v1.SecurityContext{RunAsUser: seconds(3)}, func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.RunAsUser, s.RunAsGroup = value(seconds(3)), value(seconds(2))
			s.SupplementalGroups, s.SupplementalGroupsPolicy = []int64{7, 8}, runtimeapi.SupplementalGroupsPolicy_Strict
			s.Seccomp.ProfileType = runtimeapi.SecurityProfile_RuntimeDefault
		}},
		{"privileges", root, func(p *v1.PodSpec) { p.HostPID, p.HostIPC, p.HostNetwork = true, true, true }, v1.SecurityContext{
			Privileged: yes(), ReadOnlyRootFilesystem: yes(), AllowPrivilegeEscalation: no(), ProcMount: &unmasked,
			Capabilities:    &v1.Capabilities{Add: []v1.Capability{"NET_ADMIN"}, Drop: []v1.Capability{"ALL"}},
			SELinuxOptions:  &v1.SELinuxOptions{Level: "s0"},
			SeccompProfile:  &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: &profile},
			AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &profile},
		}, func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.Privileged, s.ReadonlyRootfs, s.NoNewPrivs, s.MaskedPaths, s.ReadonlyPaths = true, true, true, nil, nil
			s.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"NET_ADMIN"}, DropCapabilities: []string{"ALL"}}
			s.SelinuxOptions = &runtimeapi.SELinuxOption{Level: "s0"}
			s.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: r.RootDir + "/seccomp/p.json"}
			s.Apparmor = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "p.json"}
			n := runtimeapi.NamespaceMode_NODE
			s.NamespaceOptions = &runtimeapi.NamespaceOption{Network: n, Pid: n, Ipc: n}
		}},
		{"shared processes, default apparmor", root, func(p *v1.PodSpec) { p.ShareProcessNamespace = yes() }, v1.SecurityContext{
			AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault},
		}, func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
			s.Apparmor = &runtimeapi.SecurityProfile{}
		}},
		{"no apparmor", root, func(*v1.PodSpec) {}, v1.SecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}}, func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.Apparmor = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := testPod("main")
			tt.pod(&p.Spec)
			p.Spec.Containers[0].SecurityContext = &tt.own
			got, err := r.containerSecurity(p, &p.Spec.Containers[0], tt.user)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(base(tt.want), got, protocmp.Transform()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if sb, err := sandboxSecurity(p); err != nil || sb.GetPrivileged() != got.GetPrivileged() {
				t.Errorf("sandbox %v, %v", sb, err)
			}
		})
	}
	r.SeccompDefault = true
	if s, err := r.seccomp(nil); err != nil || s.GetProfileType() != runtimeapi.SecurityProfile_RuntimeDefault {
		t.Errorf("seccompDefault: %v, %v", s, err)
	}
}

func TestSecurityErrors(t *testing.T) {
	r := newRig(t)
	bad := v1.SupplementalGroupsPolicy("Odd")
	for _, tt := range []struct {
		name string
		user imageUser
		pod  *v1.PodSecurityContext
		own  v1.SecurityContext
		want string
	}{
		{
			"root user",
			imageUser{},
			nil,
			v1.SecurityContext{RunAsNonRoot: yes(), RunAsUser: new(int64)},
			`container's runAsUser breaks non-root policy (pod: "web_shop(uid-1)", container: main)`,
		},
		{
			"root image",
			imageUser{uid: new(int64)},
			&v1.PodSecurityContext{RunAsNonRoot: yes()},
			v1.SecurityContext{},
			`container has runAsNonRoot and image will run as root (pod: "web_shop(uid-1)", container: main)`,
		},
		{
			"named image user",
			imageUser{name: "app"},
			nil,
			v1.SecurityContext{RunAsNonRoot: yes()},
			`container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root (pod: "web_shop(uid-1)", container: main)`,
		},
		{"another user", imageUser{uid: new(int64)}, nil, v1.SecurityContext{RunAsNonRoot: yes(), RunAsUser: seconds(5)}, ""},
		{"image's number", imageUser{uid: seconds(5)}, nil, v1.SecurityContext{RunAsNonRoot: yes()}, ""},
		{
			"groups",
			imageUser{},
			&v1.PodSecurityContext{SupplementalGroupsPolicy: &bad},
			v1.SecurityContext{},
			"unsupported supplementalGroupsPolicy: Odd",
		},
		{
			"seccomp",
			imageUser{},
			nil,
			v1.SecurityContext{SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost}},
			"localhostProfile must be set if seccompProfile type is Localhost",
		},
		{
			"apparmor",
			imageUser{},
			nil,
			v1.SecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost}},
			"missing localhost apparmor profile name",
		},
		{
			"odd apparmor",
			imageUser{},
			nil,
			v1.SecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: "Odd"}},
			`unknown apparmor profile type: "Odd"`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := testPod("main")
			p.Spec.SecurityContext, p.Spec.Containers[0].SecurityContext = tt.pod, &tt.own
			err := checkNonRoot(p, &p.Spec.Containers[0], tt.user)
			if err == nil {
				_, err = r.containerSecurity(p, &p.Spec.Containers[0], tt.user)
			}
			if err == nil && tt.want != "" || err != nil && err.Error() != tt.want {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestImageUser(t *testing.T) {
	named := userOf(&runtimeapi.Image{Username: "app"})
	numbered := userOf(&runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 5}})
	none := userOf(nil)
	if named.name != "app" || named.uid != nil || *numbered.uid != 5 || *none.uid != 0 {
		t.Errorf("%+v %+v %+v", named, numbered, none)
	}
}

func TestSysctls(t *testing.T) {
	p := testPod("main")
	p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{
		{
			Name: "net.ipv4.ip_forward", Value: "1",
		}, {
			Name:  "kernel/shm_rmid_forced",
			Value: "0",
		}, {
			Name: "net/ipv4/conf/eth0.100/forwarding", Value: "1",
		},
	}}
	same(t, "sysctls", map[string]string{
		"net.ipv4.ip_forward": "1", "kernel.shm_rmid_forced": "0", "net.ipv4.conf.eth0/100.forwarding": "1",
	}, sysctls(p))
}

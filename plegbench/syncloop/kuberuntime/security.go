package kuberuntime

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maskedPaths and readonlyPaths are what a container does not see, or may not write, of /proc and /sys
// (pkg/securitycontext/util.go upstream).
func maskedPaths() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
}

func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

func securityOf(c *v1.Container) *v1.SecurityContext {
	return cmp.Or(c.SecurityContext, &v1.SecurityContext{})
}

func podSecurityOf(pod *v1.Pod) *v1.PodSecurityContext {
	return cmp.Or(pod.Spec.SecurityContext, &v1.PodSecurityContext{})
}

// effective is what a container asks for, and where it asks for nothing, its pod.
func effective(pod *v1.Pod, c *v1.Container) *v1.SecurityContext {
	e, p := securityOf(c).DeepCopy(), podSecurityOf(pod)
	e.SELinuxOptions = cmp.Or(e.SELinuxOptions, p.SELinuxOptions)
	e.RunAsUser = cmp.Or(e.RunAsUser, p.RunAsUser)
	e.RunAsGroup = cmp.Or(e.RunAsGroup, p.RunAsGroup)
	e.RunAsNonRoot = cmp.Or(e.RunAsNonRoot, p.RunAsNonRoot)
	e.SeccompProfile = cmp.Or(e.SeccompProfile, p.SeccompProfile)
	e.AppArmorProfile = cmp.Or(e.AppArmorProfile, p.AppArmorProfile)
	return e
}

func isTrue(b *bool) bool { return b != nil && *b }

func value(n *int64) *runtimeapi.Int64Value {
	if n == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *n}
}

// sandboxSecurity is the security context of the sandbox's own process.
func sandboxSecurity(pod *v1.Pod) (*runtimeapi.LinuxSandboxSecurityContext, error) {
	p := podSecurityOf(pod)
	groups, groupPolicy, err := supplementalGroups(p)
	return &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(pod), Privileged: anyPrivileged(pod),
		Seccomp:   &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
		RunAsUser: value(p.RunAsUser), RunAsGroup: value(p.RunAsGroup),
		SupplementalGroups: groups, SupplementalGroupsPolicy: groupPolicy, SelinuxOptions: selinux(p.SELinuxOptions),
	}, err
}

func anyPrivileged(pod *v1.Pod) bool {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if isTrue(securityOf(&list[i]).Privileged) {
				return true
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if sc := pod.Spec.EphemeralContainers[i].SecurityContext; sc != nil && isTrue(sc.Privileged) {
			return true
		}
	}
	return false
}

func supplementalGroups(p *v1.PodSecurityContext) ([]int64, runtimeapi.SupplementalGroupsPolicy, error) {
	var groups []int64
	if p.FSGroup != nil {
		groups = append(groups, *p.FSGroup)
	}
	groups = append(groups, p.SupplementalGroups...)
	if p.SupplementalGroupsPolicy == nil {
		return groups, 0, nil
	}
	n, ok := runtimeapi.SupplementalGroupsPolicy_value[string(*p.SupplementalGroupsPolicy)]
	if !ok {
		return nil, 0, fmt.Errorf("unsupported supplementalGroupsPolicy: %s", *p.SupplementalGroupsPolicy)
	}
	return groups, runtimeapi.SupplementalGroupsPolicy(n), nil
}

func selinux(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

// An imageUser is who an image's processes run as: a number, or else a name.
type imageUser struct {
	uid  *int64
	name string
}

func userOf(image *runtimeapi.Image) imageUser {
	switch {
	case image.GetUid() != nil:
		uid := image.GetUid().GetValue()
		return imageUser{uid: &uid}
	case image.GetUsername() != "":
		return imageUser{name: image.GetUsername()}
	}
	return imageUser{uid: new(int64)} // root
}

// checkNonRoot enforces runAsNonRoot. Only numbers can be checked.
func checkNonRoot(pod *v1.Pod, c *v1.Container, u imageUser) error {
	e := effective(pod, c)
	if !isTrue(e.RunAsNonRoot) {
		return nil
	}
	where := fmt.Sprintf("(pod: %q, container: %s)", describe(pod), c.Name)
	switch {
	case e.RunAsUser != nil && *e.RunAsUser == 0:
		return fmt.Errorf("container's runAsUser breaks non-root policy %s", where)
	case e.RunAsUser != nil:
		return nil
	case u.uid == nil:
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s", u.name, where)
	case *u.uid == 0:
		return fmt.Errorf("container has runAsNonRoot and image will run as root %s", where)
	}
	return nil
}

// containerSecurity is the security context of a container.
func (m *Manager) containerSecurity(pod *v1.Pod, c *v1.Container, u imageUser) (*runtimeapi.LinuxContainerSecurityContext, error) {
	e := effective(pod, c)
	groups, groupPolicy, err := supplementalGroups(podSecurityOf(pod))
	if err != nil {
		return nil, err
	}
	s := &runtimeapi.LinuxContainerSecurityContext{
		Privileged: isTrue(e.Privileged), ReadonlyRootfs: isTrue(e.ReadOnlyRootFilesystem),
		NamespaceOptions: namespaces(pod), SelinuxOptions: selinux(e.SELinuxOptions),
		RunAsUser: value(e.RunAsUser), RunAsGroup: value(e.RunAsGroup),
		SupplementalGroups: groups, SupplementalGroupsPolicy: groupPolicy,
		NoNewPrivs: e.AllowPrivilegeEscalation != nil && !*e.AllowPrivilegeEscalation,
	}
	if s.RunAsUser == nil {
		s.RunAsUser, s.RunAsUsername = value(u.uid), u.name
	}
	if e.Capabilities != nil {
		s.Capabilities = &runtimeapi.Capability{}
		for _, name := range e.Capabilities.Add {
			s.Capabilities.AddCapabilities = append(s.Capabilities.AddCapabilities, string(name))
		}
		for _, name := range e.Capabilities.Drop {
			s.Capabilities.DropCapabilities = append(s.Capabilities.DropCapabilities, string(name))
		}
	}
	if e.ProcMount == nil || *e.ProcMount != v1.UnmaskedProcMount {
		s.MaskedPaths, s.ReadonlyPaths = maskedPaths(), readonlyPaths()
	}
	if s.Seccomp, err = m.seccomp(e.SeccompProfile); err != nil {
		return nil, err
	}
	s.Apparmor, err = apparmor(e.AppArmorProfile)
	return s, err
}

func (m *Manager) seccomp(p *v1.SeccompProfile) (*runtimeapi.SecurityProfile, error) {
	switch {
	case p == nil && m.SeccompDefault, p != nil && p.Type == v1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case p == nil || p.Type != v1.SeccompProfileTypeLocalhost:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case p.LocalhostProfile == nil || *p.LocalhostProfile == "":
		return nil, errors.New("localhostProfile must be set if seccompProfile type is Localhost")
	}
	return &runtimeapi.SecurityProfile{
		ProfileType:  runtimeapi.SecurityProfile_Localhost,
		LocalhostRef: filepath.Join(m.RootDir, "seccomp", *p.LocalhostProfile),
	}, nil
}

func apparmor(p *v1.AppArmorProfile) (*runtimeapi.SecurityProfile, error) {
	switch {
	case p == nil:
		return nil, nil
	case p.Type == v1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case p.Type == v1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case p.Type != v1.AppArmorProfileTypeLocalhost:
		return nil, fmt.Errorf("unknown apparmor profile type: %q", p.Type)
	case p.LocalhostProfile == nil:
		return nil, errors.New("missing localhost apparmor profile name")
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *p.LocalhostProfile}, nil
}

package facts

import (
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// IsStaticPod reports whether the kubelet has a pod from a file or a URL, not from the API server.
func IsStaticPod(f *Facts, uid string) bool {
	return slices.ContainsFunc(sandboxesOf(f),
		func(s crictl.PodSandbox) bool { return isStatic(s) && s.Pod != nil && s.Pod.UID == uid })
}

func isStatic(s crictl.PodSandbox) bool { return s.ConfigSource != "" && s.ConfigSource != "api" }

// IsOurs reports whether a process belongs to what the node needs: the runtime, the kubelet, a shim, a container.
func IsOurs(o host.Owner) bool { return o.Role != "" || o.ObjectID != "" || o.PodUID != "" }

// serves reports whether a process belongs to the object of a status call, or to its pod.
func serves(o host.Owner, i plegbench.Inspection) bool {
	return o.ObjectID != "" && (o.ObjectID == i.ID || o.ObjectID == i.SandboxID) || o.PodUID != "" &&
		o.PodUID == i.Pod.UID
}

// HungObjectOf returns the hung status call about the object or pod that a process belongs to.
func HungObjectOf(f *Facts, o host.Owner) (plegbench.Inspection, bool) {
	i := slices.IndexFunc(f.Sweep.Hung, func(i plegbench.Inspection) bool { return serves(o, i) })
	if i < 0 {
		return plegbench.Inspection{}, false
	}
	return f.Sweep.Hung[i], true
}

// OwnedBy is the object of the runtime's lists that owns a process.
func OwnedBy(f *Facts, o host.Owner) checks.Subject {
	s := checks.Subject{PodUID: Clean(o.PodUID)}
	named := func(p *crictl.Pod) {
		if p != nil {
			s.Namespace, s.Pod, s.PodUID = Clean(p.Namespace), Clean(p.Name), Clean(p.UID)
		}
	}
	for _, b := range sandboxesOf(f) {
		if o.ObjectID != "" && b.ID == o.ObjectID || o.PodUID != "" && b.Pod != nil && b.Pod.UID == o.PodUID {
			named(b.Pod)
		}
	}
	for _, c := range containersOf(f) {
		if o.ObjectID != "" && c.ID == o.ObjectID {
			named(c.Pod)
			s.Name = Clean(c.Name)
		}
	}
	return s
}

// OwnerLabel names what a process belongs to: web/checkout-1 (app), containerd.service, the runtime; empty for any
// other process of the host.
func OwnerLabel(f *Facts, o host.Owner) string {
	switch s := OwnedBy(f, o); {
	case s.Pod != "" && s.Name != "":
		return LabelOf(KindContainer, o.ObjectID, s.Namespace, s.Pod, s.Name)
	case s.Pod != "":
		return s.Namespace + "/" + s.Pod
	case o.ObjectID != "":
		return "container " + ShortID(o.ObjectID)
	case o.PodUID != "":
		return "pod " + Clean(o.PodUID)
	case o.Unit != "":
		return Clean(o.Unit)
	case o.Role == host.RoleKubelet:
		return "the kubelet"
	case o.Role != "":
		return "the runtime"
	}
	return ""
}

// OwnerSuffix writes an owner behind what it owns; nothing where the owner is not known.
func OwnerSuffix(f *Facts, o host.Owner) string {
	if l := OwnerLabel(f, o); l != "" {
		return " of " + l
	}
	return ""
}

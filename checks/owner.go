package checks

import (
	"slices"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// isOurs reports whether a process belongs to what the node needs: the runtime, the kubelet, a shim, a container.
func isOurs(o host.Owner) bool { return o.Role != "" || o.ObjectID != "" || o.PodUID != "" }

// serves reports whether a process belongs to the object of a status call, or to its pod.
func serves(o host.Owner, i plegbench.Inspection) bool {
	return o.ObjectID != "" && (o.ObjectID == i.ID || o.ObjectID == i.SandboxID) || o.PodUID != "" && o.PodUID == i.Pod.UID
}

// hungObjectOf returns the hung status call about the object or pod that a process belongs to.
func (f *Facts) hungObjectOf(o host.Owner) (plegbench.Inspection, bool) {
	hungs := f.inspectionsThat(func(i plegbench.Inspection) bool { return isHung(i) && serves(o, i) })
	if len(hungs) == 0 {
		return plegbench.Inspection{}, false
	}
	return hungs[0], true
}

// owned is what the lists of the runtime say of the owner of a process.
func (f *Facts) owned(o host.Owner) Subject {
	s := Subject{PodUID: clean(o.PodUID)}
	named := func(p *crictl.Pod) {
		if p != nil {
			s.Namespace, s.Pod, s.PodUID = clean(p.Namespace), clean(p.Name), clean(p.UID)
		}
	}
	if f.Measurement == nil {
		return s
	}
	if l := f.Measurement.Sandboxes; l != nil {
		for _, b := range l.Sandboxes {
			if o.ObjectID != "" && b.ID == o.ObjectID || o.PodUID != "" && b.Pod != nil && b.Pod.UID == o.PodUID {
				named(b.Pod)
			}
		}
	}
	if l := f.Measurement.Containers; l != nil {
		for _, c := range l.Containers {
			if o.ObjectID != "" && c.ID == o.ObjectID {
				named(c.Pod)
				s.Name = clean(c.Name)
			}
		}
	}
	return s
}

// ownerLabel names whom a process belongs to: web/checkout-1 (app), containerd.service, the runtime; empty for any other
// process of the host.
func (f *Facts) ownerLabel(o host.Owner) string {
	switch s := f.owned(o); {
	case s.Pod != "" && s.Name != "":
		return labelOf(kindContainer, o.ObjectID, s.Namespace, s.Pod, s.Name)
	case s.Pod != "":
		return s.Namespace + "/" + s.Pod
	case o.ObjectID != "":
		return "container " + shortID(o.ObjectID)
	case o.PodUID != "":
		return "pod " + clean(o.PodUID)
	case o.Unit != "":
		return clean(o.Unit)
	case o.Role == host.RoleKubelet:
		return "the kubelet"
	case o.Role != "":
		return "the runtime"
	}
	return ""
}

// of writes an owner behind what it owns; nothing where nobody is known.
func (f *Facts) of(o host.Owner) string {
	if l := f.ownerLabel(o); l != "" {
		return " of " + l
	}
	return ""
}

// silentMount reports whether any look at the file systems of this run did not come back.
func (n *Node) silentMount() bool {
	return slices.ContainsFunc(n.Mounts.Value.Probed, func(m host.Mount) bool { return m.Hung }) ||
		slices.ContainsFunc(n.Spaces.Value, func(s host.Space) bool { return s.Hung }) || n.silentDisk()
}

// silentDisk reports whether a write did not end in time.
func (n *Node) silentDisk() bool {
	return slices.ContainsFunc(n.Writes.Value, func(w host.Writes) bool { return w.Hung })
}

package collect

import (
	"maps"
	"slices"

	"github.com/kdiag/kdiag/checks/facts"
)

// Names returns the names of the node, its namespaces, pods and containers, which strict redaction replaces.
func Names(in *facts.Input) []string {
	all := map[string]bool{}
	add := func(names ...string) {
		for _, name := range names {
			all[name] = name != ""
		}
	}
	if m := in.Measurement; m != nil {
		if m.Sandboxes != nil {
			for i := range m.Sandboxes.Sandboxes {
				s := &m.Sandboxes.Sandboxes[i]
				add(s.Pod.Namespace, s.Pod.Name, s.Owner.Name)
			}
		}
		if m.Containers != nil {
			for i := range m.Containers.Containers {
				c := &m.Containers.Containers[i]
				add(c.Pod.Namespace, c.Pod.Name, c.Name)
			}
		}
		for i := range m.Sweep.Inspections {
			s := &m.Sweep.Inspections[i]
			add(s.Pod.Namespace, s.Pod.Name, s.Name)
		}
	}
	for i := range in.Processes {
		o := in.Processes[i].Serves
		add(o.Namespace, o.Pod, o.Name)
	}
	if in.Node != nil {
		add(in.Node.Settings.Value.NodeName, in.Node.SandboxImage.Value.Name)
		for _, p := range in.Node.Pods.Value {
			add(p.Namespace, p.Name, p.Hooked)
		}
	}
	delete(all, "")
	return slices.Sorted(maps.Keys(all))
}

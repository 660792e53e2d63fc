package checks

import (
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostZombies() Check {
	return Check{
		ID:    "host.zombies",
		Title: "no process collects dead children",
		Text: "Counts zombies by their parent. Each takes a process id until its parent waits for it; a container whose first process does not wait fills the limit of its pod, and a shim or kubelet that does not wait fills the node's. " +
			"A thousand is a warning.",
		read: readHostZombies,
	}
}

func readHostZombies(f *Facts) Result {
	return readLook(f, func(n *Node) Look[host.Tasks] { return n.Tasks }, func(t host.Tasks) Result {
		if limit := f.nodeLimits().Zombies; limit > 0 && len(t.ZombiesByParent) > 0 && t.ZombiesByParent[0].Count >= limit {
			p := t.ZombiesByParent[0]
			return result(StatusWarning, "%s (pid %d)%s does not wait for its children: %s", clean(p.Name), p.PID, f.of(p.Owner), units.Count(p.Count, "zombie"))
		}
		if len(t.ZombiesByParent) == 0 || t.Zombies == 0 {
			return result(StatusOK, "no zombies")
		}
		p := t.ZombiesByParent[0]
		return result(StatusOK, "%s, most under %s (pid %d)", units.Count(t.Zombies, "zombie"), clean(p.Name), p.PID)
	})
}

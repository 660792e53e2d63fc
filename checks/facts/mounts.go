package facts

import (
	"cmp"
	"slices"

	"github.com/kdiag/kdiag/checks/host"
)

// isDead reports whether a mount's answer was that nobody is behind it.
func isDead(m host.Mount) bool {
	return m.Hung || Says(m.Err, "stale file handle", "stale nfs file handle", "transport endpoint is not connected", "host is down", "input/output error")
}

// deadMounts returns the mounts that the node depends on others for, and that do not answer or say that nobody is there: those of pods
// first, silent ones before broken ones.
func deadMounts(f *Facts) []host.Mount {
	var out []host.Mount
	for _, m := range f.Seen.Mounts.Value.Probed {
		if isDead(m) {
			out = append(out, m)
		}
	}
	slices.SortStableFunc(out, func(a, b host.Mount) int { return cmp.Compare(rankOfMount(b), rankOfMount(a)) })
	return out
}

func rankOfMount(m host.Mount) int {
	rank := 0
	if m.Hung {
		rank += 2
	}
	if m.PodUID != "" {
		rank++
	}
	return rank
}

// silentMounts returns the dead mounts and the folders of the node's own whose file system did not answer.
func silentMounts(f *Facts) []host.Mount {
	out := slices.Clone(f.Disk.DeadMounts)
	for _, s := range f.Seen.Spaces.Value {
		if s.Hung && !slices.ContainsFunc(out, func(m host.Mount) bool { return m.Point == s.Mount }) {
			point := s.Mount
			if point == "" && len(s.Folders) > 0 {
				point = byRole(s.Folders)[0].Path
			}
			out = append(out, host.Mount{Point: point, Type: s.Type, Source: s.Source, Asked: true, Hung: true, Waiting: s.Waiting})
		}
	}
	return out
}

package journal

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/journal/signature"
)

// maxCulprits bounds the objects named in an episode.
const maxCulprits = 10

// names reports whether failing records of a signature accuse the object that they name.
func names(code string) bool {
	switch code {
	case signature.InspectFailed, signature.StopFailed, signature.RemoveFailed, signature.CreateFailed, signature.UpdateFailed, signature.ExecFailed,
		signature.PodSyncFailed, signature.RuntimeCallFailed, signature.NameReserved, signature.ShimUnresponsive,
		signature.ExitEventFailed, signature.KillFailed, signature.RuntimeStalled, signature.ProcessBlocked, signature.HungTask,
		signature.SoftLockup, signature.OOMKill, signature.NFSNotResponding, signature.FilesystemError, signature.BlockIOError,
		signature.NetdeviceLeak, signature.MountFailed:
		return true
	}
	return false
}

// innocent reports whether a call failed before it came to the object that it names: on a socket where nothing listens, or something else.
func innocent(d detail) bool {
	text := strings.ToLower(d.Text)
	has := func(s string) bool { return strings.Contains(text, s) }
	return d.Code == unavailable && slices.ContainsFunc(refusedTexts(), has) || d.Code == unimplemented && has("unknown service")
}

// culprits lists the objects that failing calls around an episode name: those that inspections name first, because these
// hold up PLEG itself, then by how often.
func (f *facts) culprits(around []*burst) []Culprit {
	type entry struct {
		Culprit
		inspected bool
		at        int64
	}
	bySubject := map[uint32]*entry{}
	for _, b := range around {
		code := f.code(b)
		if b.subject == 0 || !names(code) || innocent(f.pool.detailOf(b.detail)) {
			continue
		}
		e := bySubject[b.subject]
		at, _ := b.first.at()
		if e == nil {
			s := f.pool.subjectOf(b.subject)
			e = &entry{at: at, Culprit: Culprit{
				Kind: s.Kind, ID: clean(s.ID, 200), Name: clean(s.Name, 200), Namespace: clean(s.Namespace, 100),
				Pod: clean(s.Pod, 260), PodUID: clean(s.PodUID, 64), Example: code,
			}}
			bySubject[b.subject] = e
		}
		e.Records += int(b.count)
		if code == signature.InspectFailed && !e.inspected {
			e.inspected, e.Example = true, code
		}
	}
	var all []entry
	for _, e := range bySubject {
		all = append(all, *e)
	}
	slices.SortFunc(all, func(a, b entry) int {
		if a.inspected != b.inspected {
			if a.inspected {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.Records, a.Records), cmp.Compare(a.at, b.at), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Pod, b.Pod))
	})
	var out []Culprit
	for _, e := range all[:min(len(all), maxCulprits)] {
		out = append(out, e.Culprit)
	}
	return out
}

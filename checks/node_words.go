package checks

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

// nodeLimits are the thresholds for the host: the defaults where none were given.
func (f *Facts) nodeLimits() NodeLimits {
	if f.Limits.Node == (NodeLimits{}) {
		return DefaultNodeLimits()
	}
	return f.Limits.Node
}

// safePath matches the absolute paths that may stand in a command without quotes.
var safePath = regexp.MustCompile(`^/[A-Za-z0-9._/@:~+=-]*$`)

// share is a part of a whole; 0 of nothing.
func share(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// used is the share of a limit that is used; 0 without a limit.
func used(u host.Usage) float64 { return share(u.Current, u.Max) }

// usage writes how much of a limit is used: 29,491 of 32,768 (90 %).
func usage(u host.Usage) string {
	return fmt.Sprintf("%s of %s (%s)", units.Number(u.Current), units.Number(u.Max), units.Percent(used(u)))
}

// pressure writes one resource's stall: 43 % in the last 10 s, 40 % in the last minute.
func pressure(a host.Averages) string {
	return fmt.Sprintf("%.0f%% of the last 10 s, %.0f%% of the last minute", a.Avg10, a.Avg60)
}

// rank is the severity for a share of a limit; false below both thresholds.
func (l NodeLimits) rank(share float64) (Severity, bool) {
	switch {
	case share >= l.LimitCritical:
		return Critical, true
	case share >= l.LimitWarning:
		return Warning, true
	}
	return "", false
}

// statusOf is the status of a check for the share of a limit.
func (l NodeLimits) statusOf(share float64) Status {
	switch severity, _ := l.rank(share); severity {
	case Critical:
		return StatusCritical
	case Warning:
		return StatusWarning
	}
	return StatusOK
}

// worse returns the more severe of two.
func worse(a, b Severity) Severity {
	if a == Critical || b == Critical {
		return Critical
	}
	return Warning
}

// podLabel names a pod by its UID: web/checkout-1, or pod 6f1c... where the lists do not hold it.
func (f *Facts) podLabel(uid string) string { return f.ownerLabel(host.Owner{PodUID: uid}) }

// inPod adds what is known of a pod to a subject.
func (f *Facts) inPod(s Subject, uid string) Subject {
	pod := f.owned(host.Owner{PodUID: uid})
	s.PodUID, s.Namespace, s.Pod = pod.PodUID, pod.Namespace, pod.Pod
	return s
}

// addDeletePodByUID adds the deletion of a pod that the lists name.
func (f *Facts) addDeletePodByUID(s *steps, uid, why string) {
	if pod := f.owned(host.Owner{PodUID: uid}); uid != "" && safe(pod.Namespace, pod.Pod) {
		s.add(TouchesPod, fmt.Sprintf("kubectl delete pod -n %s %s --wait=false", pod.Namespace, pod.Pod), why)
	}
}

// foldersLine names the folders on a file system, those of the runtime first: /var/lib/containerd (runtime) and /var/log (logs).
func foldersLine(folders []host.Folder) string {
	var words []string
	for _, f := range byRole(folders) {
		words = append(words, fmt.Sprintf("%s (%s)", clean(f.Path), clean(f.Role)))
	}
	return units.List(head(words, maxRelated))
}

// byRole orders folders by how much the node needs them.
func byRole(folders []host.Folder) []host.Folder {
	order := []string{host.FolderRuntime, host.FolderState, host.FolderKubelet, host.FolderLogs}
	place := func(f host.Folder) int {
		if i := slices.Index(order, f.Role); i >= 0 {
			return i
		}
		return len(order)
	}
	sorted := slices.Clone(folders)
	slices.SortStableFunc(sorted, func(a, b host.Folder) int { return cmp.Compare(place(a), place(b)) })
	return sorted
}

// needed reports whether the runtime, the kubelet or the pods' logs lie on a file system or disk.
func needed(folders []host.Folder) bool {
	return hold(folders, host.FolderRuntime, host.FolderState, host.FolderKubelet, host.FolderLogs)
}

// hold reports whether one of the folders has one of the roles.
func hold(folders []host.Folder, roles ...string) bool {
	return slices.ContainsFunc(folders, func(f host.Folder) bool { return slices.Contains(roles, f.Role) })
}

// says reports whether an error's text holds one of the kernel's words for it.
func says(text string, words ...string) bool { return containsAny(strings.ToLower(text), words) }

// heard adds the first record of a signature to the evidence.
func (f *Facts) heard(e *Evidence, code string) bool {
	c := f.logged(code)
	if c == nil || f.simulated() {
		return false
	}
	addf(&e.For, "the log says so %s in the last %s: %s", units.Times(int(min(c.Count, 1<<31))), units.Duration(f.journalWindow()), f.quote(c.Example))
	return true
}

package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/internal/lazyregexp"
)

const (
	// MuchHeld is the share of all memory, or of all processes, from which who has it is a culprit. Memory is short
	// when less than a tenth is available, and processes are when a fifth or a tenth of the limit is left: giving
	// back as much could end it alone.
	MuchHeld = 0.1
	// SomeHeld is the share from which a pod is named beside others. On a full node of a hundred like pods each has
	// as much.
	SomeHeld = 0.01
)

// SafePath matches the absolute paths that may stand in a command without quotes.
var SafePath = lazyregexp.New(`^/[A-Za-z0-9._/@:~+=-]*$`)

// Share is a part of a whole; 0 of nothing.
func Share(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// Used is the share of a limit that is used; 0 without a limit.
func Used(u host.Usage) float64 { return Share(u.Current, u.Max) }

// UsageText writes how much of a limit is used: 29,491 of 32,768 (90 %).
func UsageText(u host.Usage) string {
	return fmt.Sprintf("%s of %s (%s)", units.Number(u.Current), units.Number(u.Max), units.Percent(Used(u)))
}

// Rank is the severity for a share of a limit; false below both thresholds.
func Rank(l checks.NodeLimits, share float64) (checks.Severity, bool) {
	switch {
	case share >= l.LimitCritical:
		return checks.Critical, true
	case share >= l.LimitWarning:
		return checks.Warning, true
	}
	return "", false
}

// Worse returns the more severe of two.
func Worse(a, b checks.Severity) checks.Severity {
	if a == checks.Critical || b == checks.Critical {
		return checks.Critical
	}
	return checks.Warning
}

// InPod adds the pod to a subject.
func InPod(f *Facts, s checks.Subject, uid string) checks.Subject {
	pod := OwnedBy(f, host.Owner{PodUID: uid})
	s.PodUID, s.Namespace, s.Pod = pod.PodUID, pod.Namespace, pod.Pod
	return s
}

// FoldersLine names the folders on a file system, those of the runtime first: /var/lib/containerd (runtime) and
// /var/log (logs).
func FoldersLine(folders []host.Folder) string {
	var words []string
	for _, f := range byRole(folders) {
		words = append(words, fmt.Sprintf("%s (%s)", Clean(f.Path), Clean(f.Role)))
	}
	return units.List(Head(words, MaxRelated))
}

// byRole orders folders by their importance for the node.
func byRole(folders []host.Folder) []host.Folder {
	order := []string{host.FolderLogs, host.FolderKubelet, host.FolderState, host.FolderRuntime}
	sorted := slices.Clone(folders)
	slices.SortStableFunc(sorted, func(a, b host.Folder) int {
		return cmp.Compare(slices.Index(order, b.Role), slices.Index(order, a.Role))
	})
	return sorted
}

// Needed reports whether the runtime, the kubelet or the pods' logs lie on a file system or disk.
func Needed(folders []host.Folder) bool {
	return hold(folders, host.FolderRuntime, host.FolderState, host.FolderKubelet, host.FolderLogs)
}

// hold reports whether one of the folders has one of the roles.
func hold(folders []host.Folder, roles ...string) bool {
	return slices.ContainsFunc(folders, func(f host.Folder) bool { return slices.Contains(roles, f.Role) })
}

// safeWord matches what may stand in a command that a person pastes: no space, quote, option or shell character.
var safeWord = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// SafeEndpoint matches the endpoints that may stand in a command.
var SafeEndpoint = lazyregexp.New(`^unix:///[A-Za-z0-9._/@+-]+$`)

// Safe reports whether all words may stand in a command.
func Safe(words ...string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !safeWord.MatchString(w) })
}

// maxText is the most runes of one text from a runtime that a report repeats.
const maxText = 300

// Clean makes a text that came from a runtime safe to print: control characters and whatever else does not print
// become escapes such as \u001b, and of long texts the middle is left out.
func Clean(s string) string {
	var b strings.Builder
	for _, r := range crictl.Shorten(s, maxText) {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

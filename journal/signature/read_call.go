package signature

import (
	"slices"
	"strings"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// isRPC reports whether a word is a call of the CRI that the kubelet makes.
func isRPC(word string) bool {
	switch word {
	case "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "PodSandboxStatus", "ListPodSandbox", "CreateContainer",
		"StartContainer", "StopContainer", "RemoveContainer", "ListContainers", "ContainerStatus", "ExecSync",
		"UpdateContainerResources", "UpdatePodSandboxResources", "ReopenContainerLog", "PortForward", "ContainerStats",
		"ListContainerStats", "PodSandboxStats", "ListPodSandboxStats", "ListPodSandboxMetrics", "UpdateRuntimeConfig",
		"CheckpointContainer", "GetContainerEvents", "RuntimeConfig", "ListImages", "ImageStatus", "PullImage",
		"RemoveImage", "ImageFsInfo", "StreamPodSandboxes", "StreamContainers", "StreamContainerStats",
		"StreamPodSandboxStats", "StreamPodSandboxMetrics", "StreamImages":
		return true
	}
	return false
}

// isPlainRPC reports whether a word is a call whose name is a common word: it counts only in phrases of the kubelet.
func isPlainRPC(word, rest string) bool {
	const near = 200 // bytes to "from runtime service failed", over an id and a command
	switch word {
	case "Status", "Version":
		return strings.HasPrefix(rest, " from ")
	case "Exec", "Attach":
		return strings.HasPrefix(rest, " ") &&
			strings.Contains(rest[:min(len(rest), near)], "from runtime service failed")
	}
	return false
}

// rpcName returns the first CRI call that a record names.
func rpcName(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] < 'A' || s[i] > 'Z' || i > 0 && (isWord(s[i-1]) || s[i-1] == '.' || s[i-1] == '-') {
			continue
		}
		j := i + 1
		for j < len(s) && isWord(s[j]) {
			j++
		}
		if word := s[i:j]; j-i >= 4 && (isRPC(word) || isPlainRPC(word, s[j:])) {
			return strings.Clone(word)
		}
		i = j
	}
	return ""
}

// codeName returns gRPC's name of a code, which a record gives by name or, old kubelets, by number; empty if there is
// none such.
func codeName(word string) string {
	names := [...]string{
		"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
		"PermissionDenied", "ResourceExhausted", "FailedPrecondition",
		"Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated",
	}
	if word != "" && isDigit(word[0]) {
		if n := leadingInt(word); n < int64(len(names)) {
			return names[n]
		}
		return ""
	}
	if i := slices.Index(names[:], word); i >= 0 {
		return names[i]
	}
	return ""
}

// grpcError returns the code and the text of the first gRPC error in a record. A record without one may have an
// error= or err=.
func grpcError(s string) (code, text string) {
	rest, ok := after(s, "code = ")
	if !ok {
		for _, key := range []string{"err", "error", "output"} {
			if v := field(s, key); v != "" {
				return "", errorText(v)
			}
		}
		if v := field(s, "message"); v != "" && field(s, "reason") != "" { // of a pod that the kubelet rejects
			return "", errorText(field(s, "reason") + ": " + v)
		}
		if v, ok := after(s, "). Error: "); ok { // of an operation on a volume (goroutinemap/exponentialbackoff)
			return "", errorText(volumeIDs.ReplaceAllString(upTo(v, "\n"), ""))
		}
		return "", ""
	}
	word := upTo(rest, " \n\t,;\"\\")
	code = codeName(word)
	desc, ok := strings.CutPrefix(strings.TrimLeft(rest[len(word):], " \n\t"), "desc = ")
	if !ok {
		return code, ""
	}
	return code, errorText(enclosed(desc))
}

// volumeIDs finds the ids that the kubelet adds to the names of a volume and its pod.
var volumeIDs = lazyregexp.New(` \(UniqueName: "[^"]*"\)(?: pod "[^"]*" \(UID: "[^"]*"\) ?)?`)

// enclosed returns the text before the quote that ends the string which s is the rest of. Quotes inside come in
// pairs, at any level of escaping; one that opens follows a blank or an opening sign.
func enclosed(s string) string {
	depth := 0
	for i := 0; i < len(s) && i < 8*maxError; i++ {
		if s[i] == '\n' {
			return s[:i]
		}
		if s[i] != '"' {
			continue
		}
		before := strings.TrimRight(s[:i], `\`)
		switch {
		case before == "" || strings.IndexByte(" =([{:,", before[len(before)-1]) >= 0:
			depth++
		case depth > 0:
			depth--
		default:
			return before
		}
	}
	return s
}

var longIDs = lazyregexp.New(`\b([0-9a-f]{12})[0-9a-f]{52}\b`)

// ShortIDs cuts the ids of containers, sandboxes and images in a text to the 12 digits that crictl prints.
func ShortIDs(s string) string { return longIDs.ReplaceAllString(s, "$1") }

// loaderWords finds what ld.so(8) said, where containerd took it for the address of a shim.
var loaderWords = lazyregexp.New(`(?:start failed: )?dial unix \S*ERROR: (ld\.so: object .{1,200}?\)): ignored(?s:.*?)` +
	`connect: invalid argument`)

// Loader replaces an address of a shim that is an error of the dynamic loader by that error.
func Loader(s string) string {
	if !strings.Contains(s, "ERROR: ld.so") {
		return s
	}
	return loaderWords.ReplaceAllString(s, "$1")
}

// errorText cleans an error for display. Of a long one the middle is left out: Go's errors have what failed at their
// beginning and why at their end.
func errorText(s string) string {
	const first = maxError / 3
	s = Loader(s[:min(len(s), 8*maxError)])
	if strings.Contains(s, `\`) {
		s = strings.NewReplacer(`\\\"`, `"`, `\"`, `"`, `\n`, " ").Replace(s)
	}
	if s = strings.TrimSpace(s); len(s) > maxError {
		s = ShortIDs(s)
	}
	if len(s) > maxError {
		const gap = " ... "
		s = s[:first] + gap + s[len(s)-(maxError-first-len(gap)):]
	}
	return strings.ToValidUTF8(strings.Clone(s), "")
}

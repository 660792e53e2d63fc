package canary

import (
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// outcomeOf classifies the end of a call. A DeadlineExceeded long before our deadline comes from the runtime, so it
// is an answer.
func outcomeOf(ended, err error, elapsed, timeout time.Duration) (Outcome, string) {
	if err == nil {
		return OK, ""
	}
	text := err.Error()
	if s, ok := status.FromError(err); ok {
		text = s.Code().String() + ": " + s.Message()
	}
	switch {
	case ended != nil:
		return Cut, "interrupted, or --timeout was reached"
	case status.Code(err) == codes.DeadlineExceeded && elapsed >= timeout-timeout/10:
		return Hung, "no reply in " + elapsed.Round(10*time.Millisecond).String()
	}
	return Failed, text
}

// wantsSlice reports whether a runtime refuses a cgroup parent because its cgroup driver is systemd: runc by containerd
// (libcontainer/specconv), or CRI-O (internal/config/cgmgr).
func wantsSlice(text string) bool {
	return strings.Contains(text, "slice:prefix:name") || strings.Contains(text, "did not receive slice as parent")
}

// lacks reports whether an error means that the image does not contain a program. The error must name the program:
// that of a missing runc is nearly the same.
func lacks(text, program string) bool {
	return program != "" && strings.Contains(text, program) &&
		(strings.Contains(text, "executable file not found") || strings.Contains(text, "no such file or directory") ||
			strings.Contains(text, "executable file `"+program+"` not found"))
}

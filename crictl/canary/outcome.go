package canary

import (
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// outcomeOf tells how a call ended. A deadline that the runtime reports long before ours has passed is one of its own, so
// an answer.
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
		return Cut, "the time of the whole command was over, or it was interrupted"
	case status.Code(err) == codes.DeadlineExceeded && elapsed >= timeout-timeout/10:
		return Hung, "no answer within " + elapsed.Round(10*time.Millisecond).String()
	}
	return Failed, text
}

// wantsSlice reports whether a runtime refuses a cgroup parent because its cgroup driver is systemd: runc by containerd
// (libcontainer/specconv), or CRI-O (internal/config/cgmgr).
func wantsSlice(text string) bool {
	return strings.Contains(text, "slice:prefix:name") || strings.Contains(text, "did not receive slice as parent")
}

// lacks reports whether a runtime says that an image does not hold a program. It must name the program: a runtime whose own
// runc is missing says nearly the same.
func lacks(text, program string) bool {
	if program == "" || !strings.Contains(text, program) {
		return false
	}
	for _, words := range []string{"executable file not found", "no such file or directory", "executable file `" + program + "` not found"} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

package canary

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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

// exitError returns the exit code of a program as an error, and its output: docker prints why it could not start
// the program, and exits with 126 or 127 in its place.
func exitError(resp *runtimeapi.ExecSyncResponse) error {
	if resp.GetExitCode() == 0 {
		return nil
	}
	text := fmt.Sprintf("the program exited with code %d", resp.GetExitCode())
	printed := append(resp.GetStderr(), resp.GetStdout()...)
	if printed = bytes.TrimSpace(printed[:min(len(printed), maxPrinted)]); len(printed) > 0 {
		text += ": " + strings.ToValidUTF8(string(printed), "?")
	}
	return errors.New(text)
}

// maxPrinted is how many bytes of the output of a failed program are kept.
const maxPrinted = 500

// wantsSlice reports whether a runtime refuses a cgroup parent because its cgroup driver is systemd: runc by containerd
// (libcontainer/specconv), or CRI-O (internal/config/cgmgr).
func wantsSlice(text string) bool {
	return strings.Contains(text, "slice:prefix:name") || strings.Contains(text, "did not receive slice as parent")
}

// lacks reports whether an error means that the image does not contain a program. The error must name the program:
// the error of a missing runc is nearly the same.
func lacks(text, program string) bool {
	return program != "" && strings.Contains(text, program) &&
		(strings.Contains(text, "executable file not found") || strings.Contains(text, "no such file or directory") ||
			strings.Contains(text, "executable file `"+program+"` not found"))
}

package crictl

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// asNobody reports whether this process is without root's right to open everything. As root it runs the calling test
// once more in a process without, takes over the result, and the caller has nothing left to do.
func asNobody(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	const nobody = 65534
	// The link to the program is followed where the folder that it was built into may not be entered.
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.Dir = "/"
	cmd.Env = []string{"TMPDIR=/tmp"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as another user: %v\n%s", err, out)
	}
	return false
}

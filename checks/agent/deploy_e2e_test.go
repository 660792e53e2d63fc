//go:build e2e

package agent

import (
	"os/exec"
	"testing"
)

// TestEndToEndKustomize builds the manifests as kubectl does. It has components since 1.21, and Debian 12 has 1.20:
// those are left out.
func TestEndToEndKustomize(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "kubectl", "kustomize", manifests).Output()
	must(t, err)
	if n, agent := decode(t, string(out)); n != 8 || agent == nil {
		t.Errorf("%d objects", n)
	}
}

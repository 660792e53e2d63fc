package signature

import (
	"slices"
	"testing"
)

// TestBaseline has each entry state all that a reader needs to check it, and texts that leave other records alone.
func TestBaseline(t *testing.T) {
	entries := slices.Concat(baseline()[Kubelet], baseline()[Runtime])
	if len(baseline()) != 2 || len(entries) < 50 {
		t.Errorf("%d lanes, %d entries", len(baseline()), len(entries))
	}
	for _, o := range entries {
		all := 0
		for _, s := range o.Texts {
			all += len(s)
		}
		if all < window || o.Why == "" || o.Source == "" {
			t.Errorf("%+v lacks something", o)
		}
	}
	for _, message := range []string{
		`"StartContainer from runtime service failed" err="rpc error: code = NotFound desc = content digest: not found"`,
		`"Error syncing pod, skipping" err="failed to \"CreatePodSandbox\" for \"a_b(1)\" with CreatePodSandboxError: no"`,
	} {
		if Ordinary(Kubelet, []byte(message)) {
			t.Errorf("ordinary: %s", message)
		}
	}
}

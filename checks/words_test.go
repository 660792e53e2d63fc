package checks

import (
	"strings"
	"testing"
)

// TestWordsOfDefinitions holds what a person could come to harm by, or be misled, to what is so.
func TestWordsOfDefinitions(t *testing.T) {
	for _, tt := range []struct{ code, want, never string }{
		{codeListTooLarge, "crictl ps (running only) works where it is the dead", "(running only) works."},
		{codeListTooLarge, "crictl rmp -f SANDBOX, a few at a time", ""},
		{codeSystemdWedged, "systemctl reboot -ff: it syncs, but ends no process and unmounts nothing, so that what applications have not written may be lost", ""},
		{codeAPIServerUnreachable, "a new kubelet.conf, which keeps its pods, and restart the kubelet (see CertificateExpired)", "a worker joins anew"},
		{codeRuntimeSlow, "5,000 exited containers are listed in 38 ms (docs/bench)", "own measurements"},
		{codeRuntimeSlow, "docs/bench", "50,000"},
	} {
		d, _ := Lookup(tt.code)
		text := strings.Join(append(append(append([]string{d.Means, d.Mistaken}, d.Confirm...), d.Fix...), d.Sources...), "\n")
		if !strings.Contains(text, tt.want) || tt.never != "" && strings.Contains(text, tt.never) {
			t.Errorf("%s: want %q and not %q:\n%s", tt.code, tt.want, tt.never, text)
		}
	}
	for _, c := range Checks() {
		if strings.Contains(c.Text, "40 s") && !strings.Contains(c.Text, "40 s (50 s since Kubernetes 1.32)") {
			t.Errorf("%s does not tell of the 50 s since Kubernetes 1.32: %s", c.ID, c.Text)
		}
		// 15 that are asked for, and five more that journal.Recent reads for what led to them.
		if strings.HasPrefix(c.ID, "journal.") && strings.Contains(c.Text, " minutes") && !strings.Contains(c.Text, "the last 20 minutes") {
			t.Errorf("%s tells of another window: %s", c.ID, c.Text)
		}
	}
}

package cli

import "testing"

// TestImage names an image only for a version that has one.
func TestImage(t *testing.T) {
	defer func(v string) { version = v }(version)
	for v, want := range map[string]string{
		"v1.2.3":                               "ghcr.io/kdiag/kdiag:v1.2.3",
		"v1.2.3-rc.1":                          "ghcr.io/kdiag/kdiag:v1.2.3-rc.1",
		"v1.2.3-0.20261128175309-1c18a5961234": "",
		"v1.2.3+dirty":                         "",
		"v1.2.4-SNAPSHOT-1c18a596":             "",
		"devel":                                "",
	} {
		version = v
		if got := Image(); got != want {
			t.Errorf("%s: %q, want %q", v, got, want)
		}
	}
}

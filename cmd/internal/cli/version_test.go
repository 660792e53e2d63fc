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

// TestNamed has a plugin of kubectl print what can be typed.
func TestNamed(t *testing.T) {
	for text, want := range map[string]string{
		"kdiag node a looks at it without one":           "kubectl kdiag node a looks at it without one",
		"look around; or kdiag fleet report a --details": "look around; or kubectl kdiag fleet report a --details",
		"leave it out, or run kdiag node on that node":   "leave it out, or run kdiag node on that node",
		"kubectl kdiag fleet --help":                     "kubectl kdiag fleet --help",
		"scp $(command -v kdiag) a:/tmp/":                "scp $(command -v kubectl-kdiag) a:/tmp/",
		"ssh a sudo /tmp/kdiag":                          "ssh a sudo /tmp/kubectl-kdiag",
	} {
		if got := (Env{Plugin: true}).Named(text); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := (Env{}).Named(text); got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
}

package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kdiag/kdiag/internal/testkit"
)

// TestDestination replaces a file with its permissions, makes a new one for its owner only, and leaves nothing beside
// it, nor of one that cannot be written.
func TestDestination(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before fs.FileMode // of the file that is there; 0 for none
		full   bool        // it cannot be written
		want   string
	}{
		{"new", 0, false, "-rw------- new"},
		{"for everybody", 0o644, false, "-rw-r--r-- new"},
		{"cut short", 0, true, ""},
	} {
		name := filepath.Join(t.TempDir(), "page.html")
		if tt.before != 0 {
			must(t, os.WriteFile(name, []byte("old"), tt.before))
			must(t, os.Chmod(name, tt.before)) // whatever the umask is
		}
		d, err := OpenDestination("--html", name)
		must(t, err)
		if tt.full {
			_ = d.tmp.Close()
		}
		if err := d.Write([]byte("new")); (err != nil) != tt.full {
			t.Errorf("%s: %v", tt.name, err)
		}
		d.Close()
		got := ""
		files, err := os.ReadDir(filepath.Dir(name))
		must(t, err)
		for _, file := range files {
			info, _ := file.Info()
			text, _ := os.ReadFile(filepath.Join(filepath.Dir(name), file.Name()))
			got += fmt.Sprint(info.Mode(), " ", string(text))
		}
		testkit.Equal(t, tt.name, tt.want, got)
	}
}

var must = testkit.Must

// TestImage names an image only for a version that has one.
func TestImage(t *testing.T) {
	defer func(v string) { version = v }(version)
	for v, want := range map[string]string{
		"v1.2.3":                               "ghcr.io/kdiag/kdiag:v1.2.3",
		"v1.2.3-0.20261128175309-1c18a5961234": "",
		"v1.2.3+dirty":                         "",
		"v1.2.4-SNAPSHOT-1c18a596":             "",
	} {
		version = v
		testkit.Equal(t, v, want, Image())
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
		testkit.Equal(t, "as a plugin", want, Env{Plugin: true}.Named(text))
		testkit.Equal(t, "as kdiag", text, Env{}.Named(text))
	}
}

// threeAtNight is a time at which kdiag is run, eight hours east of UTC.
func threeAtNight() time.Time {
	return time.Date(2026, 11, 21, 3, 12, 9, 0, time.FixedZone("", 8*3600))
}

func TestParseWhen(t *testing.T) {
	for text, want := range map[string]string{
		"2026-11-20T19:12:09Z":          "2026-11-20T19:12:09Z",
		"2026-11-20T19:12:09.250+01:00": "2026-11-20T19:12:09.25+01:00",
		"2026-11-20 19:12:09":           "2026-11-20T19:12:09+08:00",
		"2026-11-20":                    "2026-11-20T00:00:00+08:00",
		"03:12":                         "2026-11-21T03:12:00+08:00",
		"03:13":                         "2026-11-20T03:13:00+08:00", // it has not been that late today
		"-15m":                          "2026-11-21T02:57:09+08:00",
	} {
		got, err := parseWhen(text, threeAtNight())
		must(t, err)
		testkit.Equal(t, text, want, got.Format(time.RFC3339Nano))
	}
	for _, text := range []string{
		"", "soon", "-1d", "03:12:09", "--5m", "25:00", "-99999999h", "2026-11-20 19:12:09 CET",
	} {
		if got, err := parseWhen(text, threeAtNight()); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}

// FuzzParseWhen checks that no text is taken for a time far off, and that what is printed is read again.
func FuzzParseWhen(f *testing.F) {
	for _, s := range []string{"-15m", "03:12", "2026-11-21 03:12:09", "2026-11-21T03:12:09Z", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		at, err := parseWhen(s, threeAtNight())
		if err != nil {
			return
		}
		if at.Year() < 0 || at.Year() > 9999 {
			t.Errorf("%q is %v", s, at)
		}
		again, err := parseWhen(at.Format(time.RFC3339Nano), threeAtNight())
		if err != nil || !again.Equal(at) {
			t.Errorf("%q is %v, and then %v, %v", s, at, again, err)
		}
	})
}

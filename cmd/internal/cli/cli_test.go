package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestDestination replaces a file as it was, makes a new one for its owner only, and leaves nothing beside it, nor of
// one that cannot be written.
func TestDestination(t *testing.T) {
	for _, tt := range []struct {
		name string
		mode fs.FileMode // of the file that is there; 0 for none
		want fs.FileMode // 0 for none
	}{
		{"new", 0, 0o600},
		{"for everybody", 0o644, 0o644},
		{"for its owner", 0o600, 0o600},
		{"cut short", 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "page.html")
			if tt.mode != 0 {
				if err := os.WriteFile(name, []byte("old"), tt.mode); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(name, tt.mode); err != nil { // whatever the umask is
					t.Fatal(err)
				}
			}
			d, err := OpenDestination("--html", name)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if tt.want == 0 {
				_ = d.tmp.Close()
			}
			if err := d.Write([]byte("new")); (err != nil) != (tt.want == 0) {
				t.Error(err)
			}
			left := ""
			files, _ := filepath.Glob(filepath.Dir(name) + "/*") // hidden ones too
			for _, file := range files {
				info, _ := os.Stat(file)
				text, _ := os.ReadFile(file)
				left += fmt.Sprintln(info.Mode(), info.Name(), string(text))
			}
			want := ""
			if tt.want != 0 {
				want = fmt.Sprintln(tt.want, "page.html new")
			}
			if left != want {
				t.Errorf("left %q, want %q", left, want)
			}
		})
	}
}

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

// threeAtNight is a time at which kdiag is run, eight hours east of UTC.
func threeAtNight() time.Time {
	return time.Date(2026, 11, 21, 3, 12, 9, 0, time.FixedZone("", 8*3600))
}

func TestParseWhen(t *testing.T) {
	for text, want := range map[string]string{
		"2026-11-20T19:12:09Z":          "2026-11-20T19:12:09Z",
		"2026-11-20T19:12:09.250+01:00": "2026-11-20T19:12:09.25+01:00",
		"2026-11-20 19:12:09":           "2026-11-20T19:12:09+08:00",
		"2026-11-20 19:12":              "2026-11-20T19:12:00+08:00",
		"2026-11-20":                    "2026-11-20T00:00:00+08:00",
		"03:12":                         "2026-11-21T03:12:00+08:00",
		"03:13":                         "2026-11-20T03:13:00+08:00", // it has not been that late today
		"23:50":                         "2026-11-20T23:50:00+08:00",
		"-15m":                          "2026-11-21T02:57:09+08:00",
		"90s":                           "2026-11-21T03:10:39+08:00",
	} {
		got, err := parseWhen(text, threeAtNight())
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if s := got.Format(time.RFC3339Nano); s != want {
			t.Errorf("%q is %s, want %s", text, s, want)
		}
	}
	for _, text := range []string{
		"", "soon", "today", "-", "-1d", "03:12:09", "--5m", "-5", "-5x", "25:00", "2026-13-01", "-99999999h",
		"2026-11-20 19:12:09 CET",
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

package textlog

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/journal/klog"
)

// prefixes returns the lines of testdata/prefixes.txt, each followed by its facts.
func prefixes(t testing.TB) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/prefixes.txt")
	must(t, err)
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")[1:]
}

// facts words the facts that a record states about itself.
func facts(r *Record) string {
	var out []string
	for _, f := range [][2]string{
		{"format", r.Format},
		{"outer", stampText(r.Outer)},
		{"inner", stampText(r.Inner)},
		{"host", r.Host},
		{"identifier", r.Identifier},
		{"pid", strings.TrimPrefix(fmt.Sprint(r.PID), "0")},
		{"kernel", strings.TrimPrefix(fmt.Sprint(r.Kernel), "false")},
		{"message", string(r.Message)},
	} {
		if f[1] != "" {
			out = append(out, f[0]+"="+f[1])
		}
	}
	return strings.Join(out, " ")
}

// stampText words a stamp, with year and zone if it has them.
func stampText(s klog.Stamp) string {
	at := time.UnixMicro(s.Micros).UTC()
	switch {
	case !s.Known:
		return ""
	case s.Monotonic:
		return fmt.Sprintf("%dus", s.Micros)
	case s.Zone:
		zone := time.FixedZone("", int(s.Offset))
		return at.Add(-time.Duration(s.Offset) * time.Second).In(zone).Format("2006-01-02T15:04:05.999999Z07:00")
	case s.Year:
		return at.Format("2006-01-02T15:04:05.999999")
	}
	return at.Format("01-02T15:04:05.999999")
}

func TestPrefixes(t *testing.T) {
	lines := prefixes(t)
	for i := 0; i+1 < len(lines); i += 2 {
		var got []string
		scan(t, lines[i]+"\n", Options{All: true}, func(r *Record) { got = append(got, "\t"+facts(r)) })
		if diff := cmp.Diff(lines[i+1:i+2], got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", lines[i], diff)
		}
	}
}

package textlog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/journal/klog"
)

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

// TestPrefixes checks testdata/prefixes.txt: lines, each followed by its facts.
func TestPrefixes(t *testing.T) {
	lines := strings.Split(strings.TrimSuffix(testkit.Read(t, "testdata/prefixes.txt"), "\n"), "\n")[1:]
	for i := 0; i+1 < len(lines); i += 2 {
		var got []string
		all, _ := scan(t, strings.NewReader(lines[i]+"\n"), Options{All: true})
		for _, r := range all {
			got = append(got, "\t"+facts(&r))
		}
		testkit.Equal(t, lines[i], lines[i+1:i+2], got)
	}
}

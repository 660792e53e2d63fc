package klog

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// headers returns lines with a header, in forms that klog writes or that text takes on its way.
func headers() []string {
	return []string{
		"I0313 16:02:43.934473    1450 kubelet.go:1778] skipping pod synchronization",
		"E1008 23:59:59.000001 1234567 kubelet.go:1] x",
		"E1008 23:59:59.000001 123456789012345678901234567890 kubelet.go:1] a pid too large",
		"E0708 16:45:53.999538 2103 pod_workers.go:190] padding collapsed",
		`E1109 21:31:26.170721  112447 kubelet/kubelet.go:1991] "Skipping pod synchronization"`,
		"W0229 00:00:00.000000       1 ???:1] unknown caller",
		"W0512 09:01:02.345678   77 asm_amd64.s:1337] one frame too many",
		`??? I1121 00:48:42.699365   30256 flags.go:64] FLAG: --address="0.0.0.0"`,
		"\t  F0101 01:02:03.000000\t 5\tserver.go:9]  two blanks",
		"W0229 23:59:60,5\t1 ???:1]",
		"I0313 16:02:43.934473    1450 kubelet.go:1778] skipping - [a:1] b]",
	}
}

// notHeaders returns lines that only resemble those.
func notHeaders() []string {
	return []string{
		"",
		"D0313 16:02:43.934473    1450 kubelet.go:1778] severity",
		"I1313 16:02:43.934473    1450 kubelet.go:1778] month",
		"I0230 16:02:43.934473    1450 kubelet.go:1778] day",
		"I0313 24:02:43.934473    1450 kubelet.go:1778] hour",
		"I0313 16:02:43.934473 kubelet.go:1778] no pid",
		"I0313 16:02:43.934473    1450 kubelet.go:] no line",
		"I0313 16:02:43.934473    1450 :12] no file",
		"I0313 16:02:4",
		"I0313 16:02:43.934473    1450 kubelet.go:17",
		"I0313 16:02:43.934473    1450 kubel I0313 16:02:43.934473 1450 a.go:1] a bracket of another",
		"kubelet[1]: I0313 16:02:43.934473    1450 kubelet.go:1778] a prefix",
		"I0313 16:02:43.934473    1450 " + strings.Repeat("a", 1000) + ".go:1] x",
		"kubelet.go:1821] skipping",
	}
}

func TestParseHeader(t *testing.T) {
	for i, line := range append(headers(), notHeaders()...) {
		if want := i < len(headers()); sameHeader(t, []byte(line)) != want {
			t.Errorf("ParseHeader(%q) is not %v", line, want)
		}
		b := []byte(line)
		if n := testing.AllocsPerRun(100, func() { ParseHeader(b) }); n != 0 {
			t.Errorf("ParseHeader(%q) allocates %v times", line, n)
		}
	}
}

// slowHeader defines what a header is; ParseHeader must agree with it.
var slowHeader = regexp.MustCompile(`^[ \t]*(?:\?\?\? )?[ \t]*([IWEF])(\d\d)(\d\d)[ \t]+` +
	`(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?[ \t]+(\d+)[ \t]+([^ \t\r\n"=,()\[\]]+):(\d+)\] ?((?s:.*))$`)

func parseHeaderSlowly(b []byte) (h Header, msg []byte, ok bool) {
	m := slowHeader.FindSubmatch(b)
	if m == nil || len(m[9])+len(m[10])+2 > maxCaller {
		return Header{}, nil, false
	}
	n := func(i int) int {
		v, err := strconv.ParseUint(string(m[i]), 10, 64)
		if err != nil || v >= math.MaxInt/10*10 {
			return math.MaxInt
		}
		return int(v)
	}
	date := time.Date(BaseYear, time.Month(n(2)), n(3), n(4), n(5), 0, 0, time.UTC)
	if int(date.Month()) != n(2) || date.Day() != n(3) || date.Hour() != n(4) || date.Minute() != n(5) || n(6) > 60 {
		return Header{}, nil, false
	}
	decimals, _ := strconv.Atoi((string(m[7]) + "000000")[:6]) // digits
	return Header{
		Severity: m[1][0],
		Stamp:    Stamp{Micros: date.UnixMicro() + int64(n(6))*1e6 + int64(decimals), Known: true},
		PID:      n(8),
	}, m[11], true
}

// sameHeader compares ParseHeader with its naive twin, and returns whether there is a header.
func sameHeader(t *testing.T, line []byte) bool {
	t.Helper()
	want, wantMsg, wantOK := parseHeaderSlowly(line)
	got, msg, ok := ParseHeader(line)
	if ok != wantOK || got != want || !bytes.Equal(msg, wantMsg) {
		t.Errorf("ParseHeader(%q)\n= %+v, %q, %v\nwant %+v, %q, %v", line, got, msg, ok, want, wantMsg, wantOK)
	}
	return ok
}

// TestParseHeaderOfCorpus compares both parsers at every place of the corpus where a header may begin.
func TestParseHeaderOfCorpus(t *testing.T) {
	files, err := filepath.Glob("../testdata/corpus/*.log")
	if err != nil || len(files) < 50 {
		t.Fatalf("corpus: %d files, %v", len(files), err)
	}
	start := regexp.MustCompile(`[IWEF]\d{4} [^\n]*`)
	places, headers := 0, 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for at := start.FindIndex(data); at != nil; at = start.FindIndex(data) {
			places++
			if sameHeader(t, data[at[0]:at[1]]) {
				headers++
			}
			data = data[at[0]+1:]
		}
	}
	// A place without a header is one where the text is cut.
	if headers < 160 || places-headers > places/20 {
		t.Errorf("%d headers at %d places", headers, places)
	}
}

func FuzzParseHeader(f *testing.F) {
	for _, seed := range append(headers(), notHeaders()...) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if msg, _ := CutBareCaller(line); !sameHeader(t, line) && !bytes.HasSuffix(line, msg) {
			t.Errorf("CutBareCaller(%q) = %q", line, msg)
		}
	})
}

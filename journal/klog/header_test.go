package klog

import (
	"fmt"
	"testing"
	"time"
)

// TestParseHeader checks stamp, pid and message of lines with a header, in forms that klog writes or that text takes on
// its way, and that lines which only resemble those give nothing. TestParseISO has the bounds of a time.
func TestParseHeader(t *testing.T) {
	for line, want := range map[string]string{
		"I0313 16:02:43.934473    1450 k.go:1778] skip - [a:1] b]":     "03-13 16:02:43.934473 1450 skip - [a:1] b]",
		"E0708 16:45:53.999538 2103 a.go:190] no padding":              "07-08 16:45:53.999538 2103 no padding",
		`E1109 21:31:26.170721  112447 kubelet/kubelet.go:1] "m"`:      `11-09 21:31:26.170721 112447 "m"`,
		"W0229 00:00:00.000000       1 ???:1]  unknown caller":         "02-29 00:00:00 1  unknown caller",
		"W0512 09:01:02.345678   77 asm_amd64.s:1337] one frame off":   "05-12 09:01:02.345678 77 one frame off",
		`??? I1121 00:48:42.699365   30256 flags.go:64] FLAG: --v="2"`: `11-21 00:48:42.699365 30256 FLAG: --v="2"`,
		"\t  F0101 01:02:03.000000\t 5\tserver.go:9] blanks":           "01-01 01:02:03 5 blanks",
		"E1008 23:59:59.000001 12345678901234567890 a.go:1] x":         "10-08 23:59:59.000001 9223372036854775807 x",
		"D0313 16:02:43.934473    1450 kubelet.go:1778] severity":      "",
		"I0230 16:02:43.934473    1450 kubelet.go:1778] day":           "",
		"I0313 16:02:43.934473 kubelet.go:1778] no pid":                "",
		"I0313 16:02:43.934473    1450 kubelet.go:] no line":           "",
		"I0313 16:02:43.934473    1450 :12] no file":                   "",
		"I0313 16:02:43.934473    1450 kubelet.go:17":                  "",
		"I0313 16:02:43.934473    1450 kub I0313 16:02:43.9 1 a.go:1]": "",
		"kubelet[1]: I0313 16:02:43.934473    1450 kubelet.go:1778] x": "",
		"I0313 16:02:4": "",
		"":              "",
	} {
		got := ""
		if s, pid, msg, ok := ParseHeader([]byte(line)); ok && s.Known && !s.Year && !s.Zone {
			got = fmt.Sprintf("%s %d %s", time.UnixMicro(s.Micros).UTC().Format("01-02 15:04:05.999999"), pid, msg)
		}
		if got != want {
			t.Errorf("ParseHeader(%q): %q, want %q", line, got, want)
		}
	}
}

package textlog

import (
	"io"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/internal/testkit"
)

// A script is a stream that is being written: each Read returns the next text; an empty one means that nothing was
// written.
type script []string

func (s *script) Read(b []byte) (int, error) {
	if len(*s) == 0 {
		return 0, io.EOF
	}
	n := copy(b, (*s)[0])
	if (*s)[0] = (*s)[0][n:]; (*s)[0] == "" {
		*s = (*s)[1:]
	}
	return n, nil
}

func TestLive(t *testing.T) {
	const (
		a     = "E0703 19:59:01.292918 1 k.go:1] err=<\n"
		more  = "\tPLEG is not healthy: x\n >\n"
		b     = "I0703 19:59:02.000000 1 k.go:1] b\n"
		entry = "__REALTIME_TIMESTAMP=1688385541000000\nMESSAGE=E0703 19:59:01.292918 1 k.go:1] b\n\n"
	)
	joined := "err=<\n\tPLEG is not healthy: x\n >"
	for _, tt := range []struct {
		name string
		in   script
		want []string
	}{
		{"the next record ends one", script{a + more + b}, []string{joined, "b"}},
		{"a pause ends one", script{b, "", a, more, "", "", b}, []string{"b", joined, "b"}},
		{
			"a pause within a line ends nothing",
			script{a, "\tPLEG is", "", "", " not healthy: x\n >\n", "", b},
			[]string{joined, "b"},
		},
		{"read byte by byte", append(strings.Split(a+more, ""), "", b), []string{joined, "b"}},
		{"export format", script{"", entry[:5], "", entry[5:30], entry[30:], "", entry}, []string{"b", "b"}},
		{"a line without end, then the stream's", script{b, "", b[:len(b)-1]}, []string{"b", "b"}},
		{"compressed text stays", script{"\x1f\x8b" + "not for long\n", b}, []string{"\x1f\x8bnot for long", "b"}},
	} {
		var got []string
		opts := search()
		opts.Live, opts.All = true, true
		all, _ := scan(t, &tt.in, opts)
		for _, r := range all {
			got = append(got, string(r.Message))
		}
		testkit.Equal(t, tt.name, tt.want, got)
	}
}

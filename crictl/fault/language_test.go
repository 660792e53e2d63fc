package fault_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fault"
)

// parsed are texts with the faults that they describe.
func parsed() map[string]fake.Fault {
	const s = fake.Duration(time.Second)
	return map[string]fake.Fault{
		" ContainerStatus , hang": {RPC: "ContainerStatus", Hang: true},
		"Version,drop,delay=1s":   {RPC: "Version", Drop: true, Delay: s},
		"Status,oversize=17MiB":   {RPC: "Status", Oversize: 17 << 20},
		"*,hang,sandbox,id=ab*":   {RPC: "*", Hang: true, Object: fake.Object{Sandbox: true, ID: "ab*"}},
		`Version,error="Internal: a, \"b\"",first=2,after=1`: {
			RPC: "Version", Error: `Internal: a, "b"`, First: 2, After: 1,
		},
		"*Status,hang,thaw,pod=web-*,namespace=a,from=10s,until=1m,every=20s,for=5s": {
			RPC: "*Status", Hang: true, Thaw: true, Object: fake.Object{Pod: "web-*", Namespace: "a"},
			From: 10 * s, Until: 60 * s, Every: 20 * s, For: 5 * s,
		},
		`*,hang,container="[a,b]"`: {RPC: "*", Hang: true, Object: fake.Object{Container: "[a,b]"}},
	}
}

func TestParse(t *testing.T) {
	for text, want := range parsed() {
		got, err := fault.Parse(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, diff)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"pod=web,hang":              `it begins with "pod=web"`,
		"ContainerStats,sleep=5s":   `there is no "sleep"`,
		"Version,delay=":            "delay: the value is missing",
		"Version,delay=5":           `delay: "5" is not a value such as 250ms`,
		"Version,first=x,hang":      `first: "x" is not a value such as 3`,
		`Version,error="Internal"x`: `error: "Internal"x is not a quoted string`,
	} {
		if _, err := fault.Parse(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, which does not begin with %q", text, err, want)
		}
	}
}

// FuzzParse reads any text: what is accepted is valid, and reads the same after it was written.
func FuzzParse(f *testing.F) {
	for text := range parsed() {
		f.Add(text)
	}
	f.Add("a,,=,\"")
	f.Fuzz(func(t *testing.T, text string) {
		first, err := fault.Parse(text)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") && !strings.ContainsAny(text, "\n\r") {
				t.Errorf("error of several lines: %q", err)
			}
			return
		}
		must(t, first.Validate())
		written := fault.Format(first)
		again, err := fault.Parse(written)
		if err != nil {
			t.Fatalf("reading %q again: %v", written, err)
		}
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("written as %q and read again (-first +second):\n%s", written, diff)
		}
	})
}

package klog

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMessage(t *testing.T) {
	tests := map[string]struct {
		in   string
		want Message
	}{
		"empty":        {"", Message{}},
		"unstructured": {"skipping pod synchronization - [PLEG is not healthy: a=b]\r\n", Message{Text: "skipping pod synchronization - [PLEG is not healthy: a=b]"}},
		"text alone":   {`"Starting kubelet main sync loop"`, Message{Text: "Starting kubelet main sync loop"}},
		"quoted values": {
			`"Skipping pod synchronization" err="PLEG is not healthy: pleg was last seen active 3m5s ago; threshold is 3m0s"`,
			Message{Text: "Skipping pod synchronization", Pairs: []Pair{{"err", "PLEG is not healthy: pleg was last seen active 3m5s ago; threshold is 3m0s"}}},
		},
		"escapes": {
			`"StopPodSandbox from runtime service failed" err="rpc error: desc = failed to stop \"web\":\n\tx\\y" podSandboxID="0a1b"`,
			Message{Text: "StopPodSandbox from runtime service failed", Pairs: []Pair{
				{"err", "rpc error: desc = failed to stop \"web\":\n\tx\\y"}, {"podSandboxID", "0a1b"},
			}},
		},
		"bare words": {
			`"Housekeeping took longer than expected" expected="1s" actual=2m0.004s ok=true n=-5 list=<nil> end=`,
			Message{Text: "Housekeeping took longer than expected", Pairs: []Pair{
				{"expected", "1s"}, {"actual", "2m0.004s"}, {"ok", "true"}, {"n", "-5"}, {"list", "<nil>"}, {"end", ""},
			}},
		},
		"bare words with blanks": {
			`"SyncLoop" err=rpc error: code = DeadlineExceeded desc = context deadline exceeded pod="a/b"`,
			Message{Text: "SyncLoop", Pairs: []Pair{{"err", "rpc error: code = DeadlineExceeded desc = context deadline exceeded"}, {"pod", "a/b"}}},
		},
		"JSON": {
			`"Node became not ready" node="n1" condition={"type":"Ready","message":"[a, \"}\" b]"} x=1`,
			Message{Text: "Node became not ready", Pairs: []Pair{
				{"node", "n1"}, {"condition", `{"type":"Ready","message":"[a, \"}\" b]"}`}, {"x", "1"},
			}},
		},
		"braces of Go": {
			`"Node became not ready" node="n1" condition={Type:Ready Status:False LastHeartbeatTime:2024-01-02 03:04:05 +0000 UTC m=+9.5 Reason:KubeletNotReady Message:PLEG is not healthy} v=&Pod{a:[b c] d=e} m=map[a:b c:d]`,
			Message{Text: "Node became not ready", Pairs: []Pair{
				{"node", "n1"},
				{"condition", "{Type:Ready Status:False LastHeartbeatTime:2024-01-02 03:04:05 +0000 UTC m=+9.5 Reason:KubeletNotReady Message:PLEG is not healthy}"},
				{"v", "&Pod{a:[b c] d=e}"},
				{"m", "map[a:b c:d]"},
			}},
		},
		"lists": {
			`"SyncLoop ADD" source="api" pods=["kube-system/a","default/b"] ids=[0a 0b]`,
			Message{Text: "SyncLoop ADD", Pairs: []Pair{{"source", "api"}, {"pods", `["kube-system/a","default/b"]`}, {"ids", "[0a 0b]"}}},
		},
		"block": {
			"\"Exec failed\" err=<\n\tfirst line\n\t  second \"line\" a=b\n\t >\n > pod=\"a/b\" out=<\n\tx\n >",
			Message{Text: "Exec failed", Pairs: []Pair{{"err", "first line\n  second \"line\" a=b\n >"}, {"pod", "a/b"}, {"out", "x"}}},
		},
		"block that is cut": {
			"\"Exec failed\" err=<\n\tfirst line\n\tsecond",
			Message{Text: "Exec failed", Pairs: []Pair{{"err", "first line\nsecond"}}},
		},
		"value that is cut": {
			`"Skipping pod synchronization" err="PLEG is not heal`,
			Message{Text: "Skipping pod synchronization", Pairs: []Pair{{"err", "PLEG is not heal"}}},
		},
		"value cut behind a backslash": {
			`"Skipping pod synchronization" err="a \`,
			Message{Text: "Skipping pod synchronization", Pairs: []Pair{{"err", `a \`}}},
		},
		"value cut behind an escaped quote": {
			`"Skipping pod synchronization" err="a \"`,
			Message{Text: "Skipping pod synchronization", Pairs: []Pair{{"err", `a "`}}},
		},
		"text that is cut": {`"Skipping pod synchroni`, Message{Text: `"Skipping pod synchroni`}},
		"a quotation":      {`"web" is not running`, Message{Text: `"web" is not running`}},
		"behind the pairs": {
			`"Skipping" err="a" --More-- (END)`,
			Message{Text: "Skipping", Pairs: []Pair{{"err", "a"}}, Rest: "--More-- (END)"},
		},
		"keys": {
			`"x" plugin-name="a" k8s.io/b="c" größe="d" _e="f"`,
			Message{Text: "x", Pairs: []Pair{{"plugin-name", "a"}, {"k8s.io/b", "c"}, {"größe", "d"}, {"_e", "f"}}},
		},
		"no blanks": {`"x"a="b"c="d"`, Message{Text: "x", Pairs: []Pair{{"a", "b"}, {"c", "d"}}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, ParseMessage([]byte(tt.in))); diff != "" {
				t.Errorf("ParseMessage(%q) (-want +got):\n%s", tt.in, diff)
			}
		})
	}
}

func TestParseMessageBoundsPairs(t *testing.T) {
	m := ParseMessage([]byte(`"x"` + strings.Repeat(` a="b"`, maxPairs+1)))
	if len(m.Pairs) != maxPairs || m.Rest != `a="b"` {
		t.Errorf("%d pairs and the rest %q", len(m.Pairs), m.Rest)
	}
}

func TestGet(t *testing.T) {
	m := Message{Pairs: []Pair{{"pod", "old"}, {"err", ""}, {"pod", "new"}}}
	for key, want := range map[string]struct {
		value string
		ok    bool
	}{"pod": {"new", true}, "err": {"", true}, "node": {}} {
		if value, ok := m.Get(key); value != want.value || ok != want.ok {
			t.Errorf("Get(%q) = %q, %v", key, value, ok)
		}
	}
}

// TestParseMessageOfCorpus reads a log of kubelet 1.24 or later and finds every error it names.
func TestParseMessageOfCorpus(t *testing.T) {
	data, err := os.ReadFile("../testdata/corpus/113-bottlerocket4250-startup.log")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(data)) {
		i := strings.Index(line, "]: ")
		if i < 0 {
			continue
		}
		_, msg, ok := ParseHeader([]byte(line[i+3:]))
		if !ok || !strings.HasPrefix(string(msg), `"`) {
			continue
		}
		m := ParseMessage(msg)
		value, ok := m.Get("err")
		if want := strings.Contains(string(msg), ` err=`); ok != want || (want && value == "") || m.Rest != "" {
			t.Errorf("ParseMessage(%q) = %+v", msg, m)
		}
		found++
	}
	if found == 0 {
		t.Error("no structured message in the file")
	}
}

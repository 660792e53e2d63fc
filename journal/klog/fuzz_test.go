package klog

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// FuzzParseHeader compares ParseHeader with its twin.
func FuzzParseHeader(f *testing.F) {
	for _, seed := range []string{
		"I0313 16:02:43.934473    1450 kubelet.go:1778] skipping pod synchronization",
		"??? I1121 00:48:42.699365 1234567 kubelet/kubelet.go:64] FLAG",
		"W0229 23:59:60,5\t1 ???:1]",
		"E1008 23:59:59 123456789012345678901234567890 a:b.go:1] x",
		"kubelet.go:1821] skipping",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if sameHeader(t, line) {
			return
		}
		file, n, msg, ok := ParseBareCaller(line)
		if want := strings.TrimLeft(string(line), " \t"); ok && !strings.HasPrefix(want, file+":") || n < 0 || !bytes.HasSuffix(line, msg) {
			t.Errorf("ParseBareCaller(%q) = %q, %d, %q, %v", line, file, n, msg, ok)
		}
	})
}

// klogPair writes a pair as klog does: with quotes, or as a block if the value has several lines.
func klogPair(key, value string) string {
	if !strings.Contains(value, "\n") {
		return " " + key + "=" + strconv.Quote(value)
	}
	return " " + key + "=<\n\t" + strings.ReplaceAll(value, "\n", "\n\t") + "\n >"
}

// FuzzParseMessage reads what comes, which must not make text out of nothing, and reads back what klog would write.
func FuzzParseMessage(f *testing.F) {
	for _, seed := range []string{
		`"Skipping pod synchronization" err="PLEG is not healthy: \"x\"" a=b c={"d":"e"} f=map[g:h] i=&J{K:[l m]}`,
		"\"Exec failed\" err=<\n\tfirst\n\tsecond\n > pod=\"a/b\"",
		`"cut" err="a \`,
		`"x"a=b c d=`,
	} {
		f.Add([]byte(seed), "Node \"n\"\u2028\x00", "a\n >\n\tb \\")
	}
	f.Fuzz(func(t *testing.T, raw []byte, text, value string) {
		m := ParseMessage(raw)
		size := len(m.Text) + len(m.Rest)
		for _, p := range m.Pairs {
			size += len(p.Key) + len(p.Value) + 1
		}
		if len(m.Pairs) > maxPairs || size > len(raw) {
			t.Errorf("ParseMessage(%q) = %+v", raw, m)
		}
		written := strconv.Quote(text) + klogPair("value", value) + klogPair("err", "rpc error: a=b")
		want := Message{Text: text, Pairs: []Pair{{"value", value}, {"err", "rpc error: a=b"}}}
		if diff := cmp.Diff(want, ParseMessage([]byte(written))); diff != "" {
			t.Errorf("ParseMessage(%q) (-want +got):\n%s", written, diff)
		}
	})
}

// FuzzParseJSON compares what is valid JSON with encoding/json.
func FuzzParseJSON(f *testing.F) {
	for _, seed := range []string{
		`{"ts":1757010283211.4668,"caller":"kubelet/kubelet.go:2460","msg":"Skipping","err":"a\u003c\ud83d\ude00","errCauses":[{"error":"b"}]}`,
		`{"ts":1757010283.5,"msg":"SyncLoop","v":2,"pod":{"name":"web","namespace":"default"},"n":-1.5e3,"x":null}`,
		`{"ts":"2025-09-04T20:24:43Z","msg":"m","level":"warn","msg":1}`,
		`{"ts":1,"msg":"cut \`,
		`{"a":{"b":[1,2,`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fields, n, _ := ParseObject(b)
		if n > len(b) || len(fields) > maxFields {
			t.Fatalf("ParseObject(%q) takes %d bytes and gives %d fields", b, n, len(fields))
		}
		h, m, ok := ParseJSON(b)
		var want map[string]any
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		if !json.Valid(b) || !utf8.Valid(b) || d.Decode(&want) != nil || len(fields) == maxFields {
			return
		}
		if ok && (want["msg"] != m.Text || h.Severity == 0) {
			t.Errorf("ParseJSON(%q) = %+v, %+v; the message is %v", b, h, m, want["msg"])
		}
		for key, value := range want {
			got, has := m.Get(key)
			switch value := value.(type) {
			case string:
				has = has && got == value
			case json.Number:
				has = has && got == value.String()
			}
			if !has && key != "msg" && key != "ts" && key != "caller" && key != "level" {
				t.Errorf("ParseJSON(%q): %q is %q, want %v", b, key, got, value)
			}
		}
	})
}

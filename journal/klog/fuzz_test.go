package klog

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
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
		if msg, _ := CutBareCaller(line); !bytes.HasSuffix(line, msg) {
			t.Errorf("CutBareCaller(%q) = %q", line, msg)
		}
	})
}

// FuzzParseObject compares what is valid JSON with encoding/json.
func FuzzParseObject(f *testing.F) {
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
		var want map[string]any
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		if !json.Valid(b) || !utf8.Valid(b) || d.Decode(&want) != nil || len(fields) == maxFields {
			return
		}
		got := map[string]string{}
		for _, f := range fields {
			got[f.Key] = f.Value
		}
		for key, value := range want {
			text, has := got[key]
			switch value := value.(type) {
			case string:
				has = has && text == value
			case json.Number:
				has = has && text == value.String()
			}
			if !has {
				t.Errorf("ParseObject(%q): %q is %q, want %v", b, key, text, value)
			}
		}
	})
}

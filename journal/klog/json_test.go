package klog

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseJSON(t *testing.T) {
	ts := Stamp{Micros: 1757010283211467, Known: true, Year: true, Zone: true}
	tests := map[string]struct {
		in  string
		h   Header
		m   Message
		bad bool
	}{
		"an error with its causes": {
			in: `{"ts":1757010283211.4668,"caller":"kubelet/kubelet.go:2460","msg":"Skipping pod synchronization","err":"PLEG is not healthy: \"x\"","errCauses":[ {"error": "PLEG is not healthy"} ]}`,
			h:  Header{Stamp: ts},
			m: Message{Text: "Skipping pod synchronization", Pairs: []Pair{
				{"err", `PLEG is not healthy: "x"`}, {"errCauses", `[{"error":"PLEG is not healthy"}]`},
			}},
		},
		"information about objects": {
			in: `{"ts":1757010283.211467,"caller":"kubelet.go:1","msg":"SyncLoop","v":2,"pod":{"name":"web","namespace":"default"},"node":{"name":"n1"},"x":{"name":"a","kind":"b"},"n":-1.5e3,"none":null}`,
			h:  Header{Stamp: ts},
			m: Message{Text: "SyncLoop", Pairs: []Pair{
				{"v", "2"},
				{"pod", "default/web"},
				{"node", "n1"},
				{"x", `{"name":"a","kind":"b"}`},
				{"n", "-1.5e3"},
				{"none", "null"},
			}},
		},
		"level beats v": {
			in: `{"level":"Warning","ts":1757010283211467,"msg":"m","v":0}`,
			h:  Header{Stamp: ts},
			m:  Message{Text: "m", Pairs: []Pair{{"v", "0"}}},
		},
		"nanoseconds": {
			in: `{"ts":1757010283211467123,"msg":"m"}`, h: Header{Stamp: ts}, m: Message{Text: "m"},
		},
		"time as text": {
			in: ` {"ts":"2025-09-04T20:24:43.211467+02:00","msg":"m"} `,
			h:  Header{Stamp: Stamp{Micros: 1757010283211467 + 7200e6, Known: true, Year: true, Zone: true, Offset: 7200}},
			m:  Message{Text: "m"},
		},
		"caller without a line, time of nonsense": {
			in: `{"ts":"soon","caller":"kubelet","msg":"m"}`, h: Header{}, m: Message{Text: "m"},
		},
		"cut": {
			in: `{"ts":1757010283211.4668,"msg":"Skipping","err":"PLEG is not heal`,
			h:  Header{Stamp: ts},
			m:  Message{Text: "Skipping", Pairs: []Pair{{"err", "PLEG is not heal"}}},
		},
		"no message":         {in: `{"ts":1757010283211.4668,"caller":"a.go:1"}`, bad: true},
		"message of nothing": {in: `{"ts":1757010283211.4668,"msg":null}`, bad: true},
		"another's JSON":     {in: `{"msg":"hello","time":"2025-09-04T20:24:43Z"}`, bad: true},
		"negative time":      {in: `{"msg":"hello","ts":-1}`, bad: true},
		"no number":          {in: `{"msg":"hello","ts":NaN}`, bad: true},
		"endless time":       {in: `{"msg":"hello","ts":1e300}`, bad: true},
		"no object":          {in: `["ts",1]`, bad: true},
		"empty object":       {in: `{}`, bad: true},
		"empty":              {in: ``, bad: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h, m, ok := ParseJSON([]byte(tt.in))
			if ok == tt.bad {
				t.Fatalf("ParseJSON(%s) = %+v, %+v, %v", tt.in, h, m, ok)
			}
			if tt.bad {
				return
			}
			if diff := cmp.Diff(tt.h, h); diff != "" {
				t.Errorf("header (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.m, m); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseJSONOfCorpus(t *testing.T) {
	data, err := os.ReadFile("../testdata/corpus/017-talos11775-klogjson.log")
	if err != nil {
		t.Fatal(err)
	}
	lines, skips := 0, 0
	for line := range bytes.Lines(data) {
		i := bytes.IndexByte(line, '{')
		if i < 0 {
			continue
		}
		lines++
		h, m, ok := ParseJSON(line[i:])
		if at, dated := h.Stamp.Instant(); !ok || !dated || at.UTC().Format("2006-01") != "2025-09" || m.Text == "" {
			t.Errorf("ParseJSON(%s) = %+v, %+v, %v", line, h, m, ok)
		}
		if reason, _ := m.Get("err"); bytes.Contains([]byte(reason), []byte("PLEG is not healthy")) {
			skips++
		}
	}
	if want := bytes.Count(data, []byte(`"err":"PLEG is not healthy`)); lines == 0 || skips != want {
		t.Errorf("%d of %d lines say that PLEG is not healthy, want %d", skips, lines, want)
	}
}

func TestParseObject(t *testing.T) {
	tests := map[string]struct {
		fields []Field
		n      int
		ok     bool
	}{
		`{"a":"b\n","c":{"d":[1,"}"]},"e":[ 1 ],"f":true} rest`: {[]Field{
			{"a", "b\n", '"'}, {"c", `{"d":[1,"}"]}`, '{'}, {"e", "[ 1 ]", '['}, {"f", "true", '0'},
		}, 48, true},
		"\n{ \"a\" :\t1 , \"b\" : \"\" }": {[]Field{{"a", "1", '0'}, {"b", "", '"'}}, 23, true},
		`{"a":1,"b"`:                      {[]Field{{"a", "1", '0'}}, 10, true},
		`{"a":1,"b":`:                     {[]Field{{"a", "1", '0'}}, 11, true},
		`{"a":{"b":1`:                     {[]Field{{"a", `{"b":1`, '{'}}, 11, true},
		`{"a":1 kubelet`:                  {[]Field{{"a", "1", '0'}}, 7, true},
		`{a:1}`:                           {nil, 1, false},
		`{`:                               {nil, 1, false},
		`"a":1`:                           {nil, 0, false},
	}
	for in, want := range tests {
		fields, n, ok := ParseObject([]byte(in))
		if diff := cmp.Diff(want.fields, fields); diff != "" || n != want.n || ok != want.ok {
			t.Errorf("ParseObject(%s) takes %d bytes, %v\n%s", in, n, ok, diff)
		}
	}
}

func TestParseObjectBoundsFields(t *testing.T) {
	in := append([]byte(`{"a":1`), bytes.Repeat([]byte(`,"a":1`), 2*maxFields)...)
	if fields, _, _ := ParseObject(in); len(fields) != maxFields {
		t.Errorf("%d fields", len(fields))
	}
}

func TestParseEpoch(t *testing.T) {
	for in, want := range map[string]int64{
		"1712891512": 1712891512e6, "1712891512.220193": 1712891512220193, "1712891512220": 1712891512220e3,
		"1712891512220193": 1712891512220193, "1712891512220193024": 1712891512220193,
	} {
		s, ok := ParseEpoch(in)
		if want := (Stamp{Micros: want, Known: true, Year: true, Zone: true}); !ok || s != want {
			t.Errorf("%s: %+v, want %+v", in, s, want)
		}
	}
	for _, in := range []string{"", "-1", "0", "NaN", "1e30", "12s"} {
		if s, ok := ParseEpoch(in); ok {
			t.Errorf("%s: %+v", in, s)
		}
	}
}

func TestElements(t *testing.T) {
	for in, want := range map[string][]Field{
		`[]`:                      nil,
		`{"a":1}`:                 nil,
		`["a\n", 1,{"b":[2]}] ,3`: {{Value: "a\n", Kind: '"'}, {Value: "1", Kind: '0'}, {Value: `{"b":[2]}`, Kind: '{'}},
		`[ [1], "cut`:             {{Value: "[1]", Kind: '['}, {Value: "cut", Kind: '"'}},
		`[1 2]`:                   {{Value: "1", Kind: '0'}},
		`[,`:                      nil,
	} {
		if diff := cmp.Diff(want, slices.Collect(Elements([]byte(in)))); diff != "" {
			t.Errorf("%s: %s", in, diff)
		}
	}
	for f := range Elements([]byte(`[1,2,3]`)) {
		if f.Value != "1" {
			t.Errorf("%+v after the first was enough", f)
		}
		break
	}
}

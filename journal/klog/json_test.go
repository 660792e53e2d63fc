package klog

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestParseJSON(t *testing.T) {
	ts := Stamp{Micros: 1757010283211467, Known: true, Year: true, Zone: true}
	local := Stamp{Micros: 1757010283211467 + 7200e6, Known: true, Year: true, Zone: true, Offset: 7200}
	for in, want := range map[string]Stamp{
		`{"ts":1757010283211.4668,"caller":"kubelet/kubelet.go:2460","msg":"m","err":"x"}`: ts,
		`{"ts":1757010283.211467,"caller":"kubelet.go:1","msg":"SyncLoop","v":2}`:          ts,
		`{"ts":1757010283211467,"msg":"m"}`:                                                ts,
		`{"ts":1757010283211467123,"msg":"m"}`:                                             ts,
		` {"ts":"2025-09-04T20:24:43.211467+02:00","msg":"m"} `:                            local,
		`{"ts":"soon","caller":"kubelet","msg":"m"}`:                                       {},
		`{"ts":1757010283211.4668,"msg":"Skipping","err":"PLEG is not heal`:                ts,
	} {
		if s, ok := ParseJSON([]byte(in)); s != want || !ok {
			t.Errorf("ParseJSON(%s) = %+v, %v, want %+v", in, s, ok, want)
		}
	}
	for _, in := range []string{
		`{"ts":1757010283211.4668,"caller":"a.go:1"}`, `{"ts":1757010283211.4668,"msg":null}`, `["ts",1]`, ``,
		`{"msg":"hello","time":"2025-09-04T20:24:43Z"}`, `{"msg":"hello","ts":-1}`, `{"msg":"hello","ts":NaN}`,
		`{"msg":"hello","ts":1e300}`,
	} {
		if s, ok := ParseJSON([]byte(in)); ok {
			t.Errorf("ParseJSON(%s) = %+v", in, s)
		}
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

func TestUnquote(t *testing.T) {
	tests := map[string]struct {
		s, rest string
		closed  bool
	}{
		``:                      {"", "", false},
		`abc"`:                  {"", `abc"`, false},
		`"`:                     {"", "", false},
		`""`:                    {"", "", true},
		`"a" b`:                 {"a", " b", true},
		`"a\"b" c`:              {`a"b`, " c", true},
		`"a\\" c`:               {`a\`, " c", true},
		`"a\\\"`:                {`a\"`, "", false},
		`"\a\b\f\n\r\t\v\/\'"`:  {"\a\b\f\n\r\t\v/'", "", true},
		`"\x1b[0m\u003c\u00e9"`: {"\x1b[0m<é", "", true},
		`"\ud83d\ude00"`:        {"😀", "", true},
		`"\ud83dx\ude00"`:       {"\ufffdx\ufffd", "", true},
		`"\xzz\u12\U0001"`:      {`\xzz\u12\U0001`, "", true},
		`"\q"`:                  {`\q`, "", true},
		`"a\`:                   {`a\`, "", false},
	}
	for in, want := range tests {
		s, rest, closed := Unquote([]byte(in))
		if s != want.s || string(rest) != want.rest || closed != want.closed {
			t.Errorf("Unquote(%s) = %q, %q, %v", in, s, rest, closed)
		}
	}
}

// FuzzParseObject compares what is valid JSON with encoding/json.
func FuzzParseObject(f *testing.F) {
	for _, seed := range []string{
		`{"ts":1757010283211.4668,"msg":"Skipping","err":"a\u003c\ud83d\ude00","errCauses":[{"error":"b"}]}`,
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

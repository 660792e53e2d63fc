package klog

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestParseObject(t *testing.T) {
	for in, want := range map[string][]Field{
		`{"a":"b\n\u003c\ud83d\ude00","c":{"d":[1,"}"]},"e":[ 1 ],"f":true,"a":-1.5e3} rest`: {
			{"a", "b\n<😀", '"'}, {"c", `{"d":[1,"}"]}`, '{'}, {"e", "[ 1 ]", '['}, {"f", "true", '0'}, {"a", "-1.5e3", '0'},
		},
		"\n{ \"a\" :\t1 , \"b\" : \"\" }": {{"a", "1", '0'}, {"b", "", '"'}},
		`{"a":{"b":1`:                     {{"a", `{"b":1`, '{'}},
		`{"a":"b\"c`:                      {{"a", `b"c`, '"'}},
		`{"a":"b\`:                        {{"a", `b\`, '"'}},
		`{a:1}`:                           nil,
		``:                                nil,
	} {
		fields, ok := ParseObject([]byte(in))
		if diff := cmp.Diff(want, fields); diff != "" || ok != (want != nil) {
			t.Errorf("ParseObject(%s): %v\n%s", in, ok, diff)
		}
	}
}

// FuzzParseObject checks that every member of an object is found.
func FuzzParseObject(f *testing.F) {
	for _, seed := range []string{
		`{"ts":1757010283211.4668,"msg":"Skipping","err":"a\u003c\ud83d\ude00","errCauses":[{"error":"b"}]}`,
		`{"ts":"2025-09-04T20:24:43Z","msg":"m","level":"warn","msg":1}`,
		`{"ts":1,"msg":"cut \`,
		`{"a":{"b":[1,2,`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fields, _ := ParseObject(b)
		var want map[string]any
		if !utf8.Valid(b) || json.Unmarshal(b, &want) != nil || len(fields) == maxFields {
			return
		}
		for _, f := range fields {
			delete(want, f.Key)
		}
		if len(want) > 0 {
			t.Errorf("ParseObject(%q) lacks %v", b, want)
		}
	})
}

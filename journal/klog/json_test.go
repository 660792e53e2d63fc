package klog

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseJSON(t *testing.T) {
	ts := Stamp{Micros: 1757010283211467, Known: true, Year: true, Zone: true}
	local := Stamp{Micros: 1757010283211467 + 7200e6, Known: true, Year: true, Zone: true, Offset: 7200}
	for in, want := range map[string]struct {
		s  Stamp
		ok bool
	}{
		`{"ts":1757010283211.4668,"caller":"kubelet/kubelet.go:2460","msg":"m","err":"x"}`: {ts, true},
		`{"ts":1757010283.211467,"caller":"kubelet.go:1","msg":"SyncLoop","v":2}`:          {ts, true},
		`{"ts":1757010283211467,"msg":"m"}`:                                                {ts, true},
		`{"ts":1757010283211467123,"msg":"m"}`:                                             {ts, true},
		` {"ts":"2025-09-04T20:24:43.211467+02:00","msg":"m"} `:                            {local, true},
		`{"ts":"soon","caller":"kubelet","msg":"m"}`:                                       {Stamp{}, true},
		`{"ts":1757010283211.4668,"msg":"Skipping","err":"PLEG is not heal`:                {ts, true},
		`{"ts":1757010283211.4668,"caller":"a.go:1"}`:                                      {ts, false},
		`{"ts":1757010283211.4668,"msg":null}`:                                             {ts, false},
		`{"msg":"hello","time":"2025-09-04T20:24:43Z"}`:                                    {Stamp{}, false},
		`{"msg":"hello","ts":-1}`:                                                          {Stamp{}, false},
		`{"msg":"hello","ts":NaN}`:                                                         {Stamp{}, false},
		`{"msg":"hello","ts":1e300}`:                                                       {Stamp{}, false},
		`["ts",1]`:                                                                         {Stamp{}, false},
		``:                                                                                 {Stamp{}, false},
	} {
		if s, ok := ParseJSON([]byte(in)); s != want.s || ok != want.ok {
			t.Errorf("ParseJSON(%s) = %+v, %v, want %+v, %v", in, s, ok, want.s, want.ok)
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

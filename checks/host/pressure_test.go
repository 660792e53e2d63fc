package host

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseStall(t *testing.T) {
	const some = "some avg10=0.22 avg60=0.17 avg300=1.11 total=58761459\n"
	whole := Stall{
		Some: Averages{0.22, 0.17, 1.11, 58761459 * time.Microsecond},
		Full: Averages{0, 0.13, 0.96, 57261459 * time.Microsecond},
	}
	for _, tt := range []struct {
		name, in string
		want     *Stall
		err      string
	}{
		{"whole", some + "full avg10=0.00 avg60=0.13 avg300=0.96 total=57261459\n", &whole, ""},
		{"no full", some, &Stall{Some: whole.Some}, ""},
		{"more to come", some + "most avg10=x\n", &Stall{Some: whole.Some}, ""},
		{"another field", strings.Replace(some, " total", " avg900=3 total", 1), &Stall{Some: whole.Some}, ""},
		{"nothing", "", nil, "no line"},
		{"only full", "full avg10=0.00 avg60=0.13 avg300=0.96 total=57261459\n", nil, "no line"},
		{"cut", "some avg10=0.22 avg60=0.17\n", nil, "2 numbers"},
		{"too much", strings.Replace(some, "0.22", "100.01", 1), nil, "share"},
		{"not a number", strings.Replace(some, "0.22", "NaN", 1), nil, "share"},
		{"below zero", strings.Replace(some, "0.22", "-1", 1), nil, "share"},
		{"endless", strings.Replace(some, "58761459", "18446744073709551615", 1), nil, "time"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStall([]byte(tt.in))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

func TestReadPressure(t *testing.T) {
	n := newNode(t)
	if _, err := ReadPressure(n.root); err == nil {
		t.Error("a kernel without PSI is no error")
	}
	b, err := os.ReadFile("testdata/node/pressure-io")
	if err != nil {
		t.Fatal(err)
	}
	n.write("proc/pressure/io", string(b))
	p, err := ReadPressure(n.root)
	if err != nil || p.CPU != nil || p.Memory != nil || p.IO == nil || p.IO.Some.Total == 0 {
		t.Errorf("ReadPressure = %+v, %v", p, err)
	}
}

func FuzzParseStall(f *testing.F) {
	f.Add("some avg10=0.22 avg60=0.17 avg300=1.11 total=58761459\nfull avg10=0.00 avg60=0.13 avg300=0.96 total=57261459\n")
	f.Fuzz(func(t *testing.T, in string) {
		s, err := parseStall([]byte(in))
		if err == nil && (s.Some.Total < 0 || !(s.Full.Avg10 >= 0 && s.Full.Avg10 <= 100)) {
			t.Errorf("parsed to %+v", s)
		}
	})
}

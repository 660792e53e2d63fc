package host

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReadMemory(t *testing.T) {
	n := newNode(t)
	if _, err := ReadMemory(n.root); err == nil {
		t.Error("no file is no error")
	}
	n.write("proc/meminfo", "MemTotal:       49368168 kB\nMemFree:        1024 kB\nMemAvailable:   2048 kB\nHugePages_Total:       0\n"+
		"SwapTotal:      12 kB\nSwapFree:       11 kB\nDirty:          10 kB\nWriteback:      9 kB\nWritebackTmp:   5 kB\nSUnreclaim:     8 kB\n"+
		"Shmem:          7 kB\nShmemHugePages: 6 kB\n")
	want := Memory{
		Total: 49368168 << 10, Free: 1 << 20, Available: 2 << 20, SwapTotal: 12 << 10, SwapFree: 11 << 10,
		SlabUnreclaimable: 8 << 10, Shmem: 7 << 10,
	}
	got, err := ReadMemory(n.root)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for _, bad := range []string{"", "MemTotal: 5 kB\n", "MemTotal: 5 kB\nMemAvailable: x kB\n"} {
		n.write("proc/meminfo", bad)
		if got, err := ReadMemory(n.root); err == nil || got != (Memory{}) {
			t.Errorf("%q is %+v, %v", bad, got, err)
		}
	}
	n.write("proc/meminfo", string(fixture(t, "node/meminfo")))
	m, err := ReadMemory(n.root)
	if err != nil || m.Total == 0 || m.Available == 0 || m.Available > m.Total || m.SlabUnreclaimable == 0 || m.Shmem == 0 {
		t.Errorf("of a recorded file: %+v, %v", m, err)
	}
}

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
		{"nothing", "", nil, "no line"},
		{"only full", "full avg10=0.00 avg60=0.13 avg300=0.96 total=57261459\n", nil, "no line"},
		{"cut", "some avg10=0.22 avg60=0.17\n", nil, "malformed"},
		{"too much", strings.Replace(some, "0.22", "100.01", 1), nil, "malformed"},
		{"not a number", strings.Replace(some, "0.22", "NaN", 1), nil, "malformed"},
		{"below zero", strings.Replace(some, "0.22", "-1", 1), nil, "malformed"},
		{"endless", strings.Replace(some, "58761459", "18446744073709551615", 1), nil, "malformed"},
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
	n.write("proc/pressure/io", string(fixture(t, "node/pressure-io")))
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

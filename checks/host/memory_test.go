package host

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMemory(t *testing.T) {
	const whole = "MemTotal:       49368168 kB\nMemFree:        1024 kB\nMemAvailable:   2048 kB\nHugePages_Total:       0\n" +
		"SwapTotal:      12 kB\nSwapFree:       11 kB\nDirty:          10 kB\nWriteback:      9 kB\nWritebackTmp:   5 kB\nSUnreclaim:     8 kB\n" +
		"Shmem:          7 kB\nShmemHugePages: 6 kB\n"
	want := Memory{
		Total: 49368168 << 10, Free: 1 << 20, Available: 2 << 20, SwapTotal: 12 << 10, SwapFree: 11 << 10,
		Dirty: 10 << 10, Writeback: 9 << 10, SlabUnreclaimable: 8 << 10, Shmem: 7 << 10,
	}
	for _, tt := range []struct {
		name, in string
		want     Memory
		err      string
	}{
		{"whole", whole, want, ""},
		{"twice", whole + "MemTotal: 1 kB\n", want, ""},
		{"no available", strings.Replace(whole, "MemAvailable", "MemGone", 1), Memory{}, "MemAvailable"},
		{"another unit", strings.Replace(whole, "1024 kB", "1024 MB", 1), Memory{}, "MemFree"},
		{"overflow", strings.Replace(whole, "1024 kB", "18446744073709551615 kB", 1), Memory{}, "MemFree"},
		{"nothing", "", Memory{}, "MemTotal"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseMemory([]byte(tt.in))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

func TestReadMemory(t *testing.T) {
	n := newNode(t)
	if _, err := ReadMemory(n.root); err == nil {
		t.Error("no file is no error")
	}
	b, err := os.ReadFile("testdata/node/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	n.write("proc/meminfo", string(b))
	m, err := ReadMemory(n.root)
	if err != nil || m.Total == 0 || m.Available == 0 || m.Available > m.Total || m.SlabUnreclaimable == 0 || m.Shmem == 0 {
		t.Errorf("ReadMemory = %+v, %v", m, err)
	}
}

func FuzzParseMemory(f *testing.F) {
	b, err := os.ReadFile("testdata/node/meminfo")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b))
	f.Fuzz(func(t *testing.T, in string) {
		if m, err := parseMemory([]byte(in)); err != nil && m != (Memory{}) {
			t.Errorf("an error beside %+v", m)
		}
	})
}

package stats

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// noTimes ignores when something was measured.
func noTimes() cmp.Option { return cmpopts.IgnoreTypes(metav1.Time{}) }

func compare(t *testing.T, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, noTimes()); diff != "" {
		t.Error(diff)
	}
}

const recordedPod = "kubepods/burstable/pod0b8e4c1c-7d1e-4f63-9b52-2b6f3b1e1a01"

func TestCgroups(t *testing.T) {
	const limit = 256 << 20
	tests := []struct {
		name, root, pod, id string
		want                usage
	}{
		{"version 1", "testdata/v1", recordedPod, "3f1c0d", usage{
			&statsapi.CPUStats{UsageCoreNanoSeconds: new(uint64(164852635))},
			&statsapi.MemoryStats{
				UsageBytes: new(uint64(49340416)), WorkingSetBytes: new(uint64(49340416 - 29704192)), RSSBytes: new(uint64(13783040)),
				AvailableBytes: new(uint64(limit - (49340416 - 29704192))), PageFaults: new(uint64(8717)), MajorPageFaults: new(uint64(1)),
			},
			&statsapi.ProcessStats{ProcessCount: new(uint64(1))},
		}},
		{"version 2, a scope in slices", "testdata/v2", CgroupPath("kubepods-besteffort-pod5d7a.slice"), "77aa", usage{
			&statsapi.CPUStats{UsageCoreNanoSeconds: new(uint64(1500250000))},
			&statsapi.MemoryStats{
				UsageBytes: new(uint64(73400320)), WorkingSetBytes: new(uint64(73400320 - 20971520)), RSSBytes: new(uint64(41943040)),
				AvailableBytes: new(uint64(134217728 - (73400320 - 20971520))), PageFaults: new(uint64(12345)), MajorPageFaults: new(uint64(67)),
			},
			&statsapi.ProcessStats{ProcessCount: new(uint64(5))},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := openCgroups(tt.root)
			got, err := c.readContainer(tt.pod, tt.id)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, noTimes(), cmp.AllowUnexported(usage{})); diff != "" {
				t.Error(diff)
			}
			pod, err := c.read(tt.pod)
			if err != nil || pod.memory.AvailableBytes != nil {
				t.Errorf("pod without a limit: %+v, %v", pod.memory, err)
			}
			if _, err := c.readContainer(tt.pod, "none"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("no container: %v", err)
			}
		})
	}
}

func TestCgroupPath(t *testing.T) {
	for parent, want := range map[string]string{
		"":                                   "",
		"/kubepods/besteffort/podx":          "/kubepods/besteffort/podx",
		"kubepods.slice":                     "kubepods.slice",
		"kubepods-besteffort-podx_y.slice":   "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podx_y.slice",
		"/kubepods.slice/kubepods-pod.slice": "/kubepods.slice/kubepods-pod.slice",
	} {
		if got := CgroupPath(parent); got != want {
			t.Errorf("%s: got %s, want %s", parent, got, want)
		}
	}
}

func TestParseStat(t *testing.T) {
	compare(t, map[string]uint64{"a": 1, "c": 18446744073709551615}, parseStat("a 1\nb x\n\nc 18446744073709551615\nd -1\ne"))
}

func TestParseTasks(t *testing.T) {
	compare(t, new(int64(3518)), parseTasks("1.36 3.49 4.53 2/3518 3715089\n"))
	for _, bad := range []string{"", "1 2 3 4", "1 2 3 4 5", "1 2 3 4/x 5", "1 2 3 4/-1 5"} {
		if got := parseTasks(bad); got != nil {
			t.Errorf("%q: got %d", bad, *got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("inactive_file 20971520\npgfault 12345\n")
	f.Add("1.36 3.49 4.53 2/3518 3715089")
	f.Add("kubepods-besteffort-podx.slice")
	f.Add("-.slice")
	f.Fuzz(func(t *testing.T, s string) {
		if got := parseStat(s); len(got) > strings.Count(s, "\n")+1 {
			t.Errorf("%d numbers in %q", len(got), s)
		}
		if n := parseTasks(s); n != nil && *n < 0 {
			t.Errorf("%d tasks in %q", *n, s)
		}
		if path := CgroupPath(s); !strings.HasSuffix(path, s) && !strings.Contains(s, ".") {
			t.Errorf("%q became %q", s, path)
		}
	})
}

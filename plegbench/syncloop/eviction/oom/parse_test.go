package oom

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	asked        = "stress invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=1000"
	inContainer  = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c1,mems_allowed=0,oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/c1,task=stress,pid=42,uid=0"
	global       = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user.slice,task=my, app,pid=77,uid=1000"
	atRoot       = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/,task_memcg=/a,task=b,pid=5,uid=0"
	killedLine   = "Memory cgroup out of memory: Killed process 42 (stress) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB"
	oldTask      = "Task in /kubepods/pod1/c1 killed as a result of limit of /kubepods/pod1"
	oldKilled    = "Killed process 42 (stress) total-vm:1kB, anon-rss:1kB, file-rss:0kB"
	oldSystemOOM = "Out of memory: Kill process 9 (x) score 1000 or sacrifice child"
)

func TestParser(t *testing.T) {
	tests := []struct {
		name  string
		lines []string
		want  []Kill
	}{
		{"a container since 5.0", []string{asked, "CPU: 1 PID: 42", inContainer, killedLine}, []Kill{{"/kubepods/pod1", "/kubepods/pod1/c1", "stress", 42}}},
		{"the system since 5.0", []string{asked, global, killedLine}, []Kill{{"/", "/user.slice", "my, app", 77}}},
		{"the root cgroup", []string{asked, atRoot}, []Kill{{"/", "/a", "b", 5}}},
		{"a container before 5.0", []string{asked, oldTask, oldKilled}, []Kill{{"/kubepods/pod1", "/kubepods/pod1/c1", "stress", 42}}},
		{"the system before 5.0", []string{asked, oldSystemOOM, oldKilled}, []Kill{{"/", "/", "stress", 42}}},
		{"two in a row", []string{asked, inContainer, asked, global}, []Kill{{"/kubepods/pod1", "/kubepods/pod1/c1", "stress", 42}, {"/", "/user.slice", "my, app", 77}}},
		{"the first is cut off by a second", []string{asked, oldTask, asked, oldKilled}, []Kill{{"/", "/", "stress", 42}}},
		{"no beginning", []string{inContainer, killedLine}, nil},
		{"a pid that no kernel has", []string{asked, "Killed process 99999999999 (x)", oldKilled}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var p parser
			var got []Kill
			for _, l := range tt.lines {
				if k, ok := p.line(l); ok {
					got = append(got, k)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseRecord(t *testing.T) {
	for record, want := range map[string]string{
		"6,339,5140900,-;NET: Registered\n SUBSYSTEM=pci\n": "NET: Registered",
		"30,1,2,-,caller=T1;a;b":                            "a;b",
		"6,1,2,c;":                                          "",
	} {
		if got, err := parseRecord(record); got != want || err != nil {
			t.Errorf("parseRecord(%q) = %q, %v, want %q", record, got, err, want)
		}
	}
	for _, record := range []string{"", "6,1,2;x", "6,1,2,-", "6,x,2,-;m", "-6,1,2,-;m"} {
		if got, err := parseRecord(record); err == nil {
			t.Errorf("parseRecord(%q) = %q without an error", record, got)
		}
	}
}

// A log of any kind gives no kill that its lines do not name, and never more kills than requests for memory.
func FuzzParser(f *testing.F) {
	f.Add(strings.Join([]string{asked, inContainer, killedLine}, "\n"))
	f.Add(strings.Join([]string{asked, global}, "\n"))
	f.Add(strings.Join([]string{asked, oldTask, oldKilled}, "\n"))
	f.Fuzz(func(t *testing.T, log string) {
		var p parser
		kills := 0
		for l := range strings.SplitSeq(log, "\n") {
			k, ok := p.line(l)
			if !ok {
				continue
			}
			kills++
			if k.PID < 0 || k.Memcg == "" || k.Process == "" && !strings.Contains(l, "task=,") || !strings.Contains(l, k.Process) {
				t.Errorf("%+v from %q", k, l)
			}
		}
		if asks := strings.Count(log, "invoked oom-killer:"); kills > asks {
			t.Errorf("%d kills of %d requests", kills, asks)
		}
	})
}

func FuzzParseRecord(f *testing.F) {
	f.Add("6,339,5140900,-;NET: Registered\n SUBSYSTEM=pci\n")
	f.Add(",,,;")
	f.Fuzz(func(t *testing.T, record string) {
		if m, err := parseRecord(record); err == nil && (strings.Contains(m, "\n") || !strings.Contains(record, ";"+m)) {
			t.Errorf("parseRecord(%q) = %q", record, m)
		}
	})
}

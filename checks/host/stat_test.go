package host

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// statLine writes a /proc/PID/stat line as the kernel does, with 52 fields.
func statLine(pid int, comm string, state byte, ppid int, start uint64) string {
	zeros := strings.Repeat(" 0", 17)
	return strconv.Itoa(pid) + " (" + comm + ") " + string(state) + " " + strconv.Itoa(ppid) + zeros + " " +
		strconv.FormatUint(start, 10) + strings.Repeat(" 0", 30) + "\n"
}

func TestParseStat(t *testing.T) {
	tests := []struct {
		name string
		in   string
		want stat
		err  string
	}{
		{"plain", statLine(812, "containerd-shim", 'S', 1, 4711), stat{pid: 812, ppid: 1, comm: "containerd-shim", state: 'S', start: 4711}, ""},
		{"spaces", statLine(9, "tmux: server", 'S', 1, 5), stat{pid: 9, ppid: 1, comm: "tmux: server", state: 'S', start: 5}, ""},
		{"parentheses", statLine(9, "(sd-pam)", 'D', 8, 5), stat{pid: 9, ppid: 8, comm: "(sd-pam)", state: 'D', start: 5}, ""},
		{"forged", statLine(9, "x) R 1 (y", 'T', 8, 5), stat{pid: 9, ppid: 8, comm: "x) R 1 (y", state: 'T', start: 5}, ""},
		{"empty comm", statLine(9, "", 'Z', 8, 5), stat{pid: 9, ppid: 8, comm: "", state: 'Z', start: 5}, ""},
		{"runc init", statLine(9, "runc:[2:INIT]", 'S', 8, 5), stat{pid: 9, ppid: 8, comm: "runc:[2:INIT]", state: 'S', start: 5}, ""},
		{
			"kernel thread", "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 3 0 0 20 0 1 0 4 0 0 18446744073709551615\n",
			stat{pid: 2, comm: "kthreadd", state: 'S', start: 4, kernel: true, threads: 1},
			"",
		},
		{
			"threads", "1 (process_api) S 0 1 1 0 -1 4194560 2 3 0 5 5 6 7 8 20 0 12 0 9 0 0 18446744073709551615\n",
			stat{pid: 1, comm: "process_api", state: 'S', start: 9, threads: 12},
			"",
		},
		{"nothing", "", stat{}, "no command name"},
		{"no name", "12 S 1 2 3", stat{}, "no command name"},
		{"reversed", "12 )x( S 1", stat{}, "no command name"},
		{"truncated", "12 (x) S 1 2 3", stat{}, "fields after the command name"},
		{"bad pid", "-1" + statLine(9, "x", 'S', 8, 5)[1:], stat{}, "process id"},
		{"bad state", strings.Replace(statLine(9, "x", 'S', 8, 5), ") S ", ") SS ", 1), stat{}, "process state"},
		{"bad parent", strings.Replace(statLine(9, "x", 'S', 8, 5), ") S 8", ") S -8", 1), stat{}, "parent process id"},
		{"bad start", strings.Replace(statLine(9, "x", 'S', 8, 4711), " 4711 ", " soon ", 1), stat{}, "start time"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStat([]byte(tt.in))
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(stat{})); diff != "" {
				t.Errorf("parseStat(%q) (-want +got):\n%s", tt.in, diff)
			}
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("parseStat(%q) error %v, want one with %q", tt.in, err, tt.err)
			}
		})
	}
}

func TestParseBootTime(t *testing.T) {
	tests := []struct {
		in   string
		want time.Time
	}{
		{"cpu  1 2 3\nctxt 5\nbtime 1731200000\nprocesses 7\n", time.Unix(1731200000, 0)},
		{"btime 1731200000", time.Unix(1731200000, 0)},
		{"cpu 1\n", time.Time{}},
		{"btime soon\n", time.Time{}},
		{"", time.Time{}},
	}
	for _, tt := range tests {
		if got := parseBootTime([]byte(tt.in)); !got.Equal(tt.want) {
			t.Errorf("parseBootTime(%q) = %v, want %v", tt.in, got, tt.want)
		}
	}
}

func TestStartTime(t *testing.T) {
	boot := time.Unix(1000, 0)
	if got, want := startTime(boot, 250), boot.Add(2500*time.Millisecond); !got.Equal(want) {
		t.Errorf("startTime(250 ticks) = %v, want %v", got, want)
	}
	if got := startTime(time.Time{}, 250); !got.IsZero() {
		t.Errorf("startTime without a time of boot = %v, want zero", got)
	}
	if got := startTime(boot, 1<<63); !got.IsZero() {
		t.Errorf("startTime of absurd ticks = %v, want zero", got)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte(statLine(812, "containerd-shim", 'S', 1, 4711)))
	f.Add([]byte(statLine(9, "x) R 1 (y", 'T', 8, 5)))
	f.Add([]byte("1 () Z 0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		st, err := parseStat(b)
		if err != nil {
			return
		}
		// What was understood can be written down and is understood in the same way; statLine writes no flags or threads.
		st.kernel, st.threads = false, 0
		again, err := parseStat([]byte(statLine(st.pid, st.comm, st.state, st.ppid, st.start)))
		if err != nil || again != st {
			t.Errorf("parseStat(%q) = %+v, but written down again it is %+v, %v", b, st, again, err)
		}
	})
}

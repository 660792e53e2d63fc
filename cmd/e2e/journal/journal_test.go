//go:build e2e

package journal

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/journalfile"
)

// replay writes what a kubelet writes: it starts, syncs, and while /run/frozen is there its relist is stuck, so that
// it skips with the kubelet's back-off of 100 ms to 5 s. Its last good relist is stuckBefore older than /run/frozen,
// to save the test that time. It keeps the number of its PLEG records in /run/replayed, and makes /run/recovered when
// it is well again.
const replay = `
line() {
  printf -v day '%(%m%d %H:%M:%S)T' "${now%??????}"
  printf '%s%s.%s %7d %s] %s\n' "$1" "$day" "${now: -6}" $$ "$2" "$3"
}
tick() { now=${EPOCHREALTIME/./}; }
tick; line I server.go:527 '"Kubelet version" kubeletVersion="v1.36.3"'
tick; line I kubelet.go:2637 '"Starting kubelet main sync loop"'
sleep 0.2
tick; line I cpu_manager.go:225 '"Starting" policy="none"'
last=$now count=0 delay=100
echo 0 > /run/replayed
while true; do
  tick
  [ -e /run/frozen ] || last=$((now - 150000000))
  age=$((now - last)) why='container runtime is down'
  if [ ! -e /run/frozen ]; then
    [ $delay = 100 ] || line I kubelet.go:2566 '"SyncLoop (PLEG): event for pod" pod="default/a" '\
'event={"ID":"3d8f","Type":"ContainerStarted","Data":"77aa"}'
    [ $delay = 100 ] || echo > /run/recovered
    delay=100
    sleep 1
    continue
  fi
  if [ $age -gt 180000000 ]; then
    printf -v ago '%dm%d.%06ds' $((age / 60000000)) $((age / 1000000 % 60)) $((age % 1000000))
    why="[container runtime is down, PLEG is not healthy: pleg was last seen active $ago ago; threshold is 3m0s]"
    echo $((++count)) > /run/replayed
  fi
  line E kubelet.go:2661 "\"Skipping pod synchronization\" err=\"$why\""
  printf -v pause '%d.%03d' $((delay / 1000)) $((delay % 1000))
  sleep $pause
  [ $((delay *= 2)) -le 5000 ] || delay=5000
done
`

const replayUnit = `[Unit]
Description=Kubernetes Kubelet
[Service]
ExecStart=/bin/bash /usr/local/bin/replay
SyslogIdentifier=kubelet
`

// stuckBefore is how long before the freeze the replayed kubelet's last good relist was.
const stuckBefore = 150 * time.Second

// TestEndToEndJournal freezes the containerd of a whole node for a minute while a replayed kubelet fills the
// journal, and asks kdiag: on the node while it lasts and afterwards, and from outside with the node switched off.
func TestEndToEndJournal(t *testing.T) {
	t.Parallel() // it waits for minutes
	box := e2etest.NewBox(t)
	logs := filepath.Join(box.Root(), "var", "log", "journal")
	e2etest.Must(t, os.MkdirAll(logs, 0o755))
	e2etest.Must(t, os.WriteFile(filepath.Join(box.Root(), "usr/local/bin/replay"), []byte(replay), 0o755))
	e2etest.Must(t,
		os.WriteFile(filepath.Join(box.Root(), "etc/systemd/system/kubelet.service"), []byte(replayUnit), 0o644))
	e2etest.Must(t, box.Boot(t.Context()))
	in := func(command string) string {
		t.Helper()
		out, err := box.Exec(t.Context(), "sh", "-c", command)
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	report := func(o e2etest.Outcome) *journal.Report { return e2etest.Decode[journal.Report](t, o) }
	number := func(command string) int64 {
		t.Helper()
		n, err := strconv.ParseInt(in(command), 10, 64)
		e2etest.Must(t, err)
		return n
	}

	in("systemctl start kubelet && sleep 3 && systemctl kill -s STOP containerd && touch /run/frozen")
	frozen := time.Unix(number("stat -c %Y /run/frozen"), 0)
	time.Sleep(time.Minute)
	out := in("kdiag pleg -o json --rpc-timeout 1s || true")
	if !strings.Contains(out, `"RuntimeHung"`) || !strings.Contains(out, "PLEG is not healthy") {
		t.Errorf("kdiag pleg during the incident:\n%s", out)
	}
	live := report(e2etest.Outcome{Stdout: in("kdiag journal -o json || true")}).Incidents()
	if len(live) != 1 || live[0].Recovered {
		t.Errorf("during the incident: %+v, want one incident that has not recovered", live)
	}
	thawed := time.Now()
	in("rm /run/frozen && systemctl kill -s CONT containerd && " +
		"for i in $(seq 3000); do [ -e /run/recovered ] && break; sleep 0.1; done; sleep 5; journalctl --sync")

	lines := int(number("cat /run/replayed"))
	check := func(where string, r *journal.Report) {
		t.Helper()
		all := r.Incidents()
		if len(all) != 1 || len(r.Episodes) != 1 {
			t.Errorf("%s: %d incidents of %d episodes, want 1 of 1: %+v", where, len(all), len(r.Episodes), r.Episodes)
			return
		}
		e := all[0]
		if e.Start == nil || e.End == nil || e.Anchor == nil || e.Lines != lines || !e.Recovered || len(e.Stalls) > 1 {
			t.Errorf("%s: want %d records of one stall, recovered: %+v", where, lines, e)
			return
		}
		// The last relist before the freeze is a second older than it at most, and a record comes every five; a busy
		// machine adds some.
		near := func(what string, got, want time.Time) {
			if got.Sub(want).Abs() > 20*time.Second {
				t.Errorf("%s: %s at %v, want about %v", where, what, got, want)
			}
		}
		near("anchor", *e.Anchor, frozen.Add(-stuckBefore))
		near("start", *e.Start, frozen.Add(3*time.Minute-stuckBefore))
		near("last record", *e.End, thawed)
	}
	after := report(e2etest.Outcome{Stdout: in("kdiag journal -o json || true")})
	check("on the node", after)
	if !slices.ContainsFunc(after.Incidents(), func(e journal.Episode) bool {
		return slices.ContainsFunc(e.Causes, func(c journal.Cause) bool {
			return c.Code == "RuntimeHung" && strings.Contains(strings.Join(c.Evidence.For, "\n"),
				"systemd sent SIGSTOP to containerd")
		})
	}) {
		t.Errorf("no cause names the signal: %+v", after.Incidents())
	}
	if text := in("kdiag journal --color never --details || true"); !strings.Contains(text, "RuntimeHung") {
		t.Errorf("the text names no cause:\n%s", text)
	}

	e2etest.Must(t, box.Poweroff(t.Context()))
	check("from outside", report(e2etest.Kdiag(t.Context(), t, "journal", "--root", box.Root(), "-o", "json")))
	check("by directory", report(e2etest.Kdiag(t.Context(), t, "journal", "--directory", logs, "-o", "json")))
	sameAsJournalctl(t, logs)
}

// sameAsJournalctl compares the messages of each file that journald wrote with what journalctl prints.
func sameAsJournalctl(t *testing.T, dir string) {
	t.Helper()
	files, err := journalfile.Find(dir)
	if err != nil || len(files) == 0 {
		t.Fatalf("no journal below %s: %v", dir, err)
	}
	for _, path := range files {
		args := []string{"--file", path, "-o", "cat", "--no-pager", "-q"}
		want, err := exec.CommandContext(t.Context(), "journalctl", args...).Output()
		e2etest.Must(t, err)
		var got bytes.Buffer
		f, err := journalfile.Open(path)
		e2etest.Must(t, err)
		_, err = f.Search(t.Context(), journalfile.Query{}, func(e *journalfile.Entry) bool {
			if e.Message != nil {
				got.Write(e.Message)
				got.WriteByte('\n')
			}
			return true
		})
		f.Close()
		e2etest.Must(t, err)
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: %d bytes, journalctl has %d and they differ", filepath.Base(path), got.Len(), len(want))
		}
	}
}

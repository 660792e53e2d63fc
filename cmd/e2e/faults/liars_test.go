//go:build e2e

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

// lie starts processes in a container under names of parts of a runtime, among them one with a line feed and an escape
// sequence. Their arguments and their environment speak of the container %[2]s and of a bundle below the host's folder
// %[1]s. Each handles SIGUSR1, as daemons do.
const lie = `mkdir -p /lie; cd /lie
big=$(head -c 100000 /dev/zero | tr '\0' x)
export DB_PASSWORD=secret-in-environment CNI_COMMAND=ADD CNI_CONTAINERID=%[2]s
for bundle in pipe zero secret; do
	for name in runc 'runc:[2:INIT]' crun containerd-shim-runc-v2 conmon kubelet dockerd crio containerd cri-dockerd \
			bridge "$(printf 'runc\033[31m\nred')"; do
		[ -e "$name" ] || cp /bin/busybox "$name"
		(exec -a sh "/lie/$name" -c 'trap "echo >>/lie/signalled" USR1 HUP TERM; echo >>/lie/up
			while :; do sleep 100000 & wait; done' x --root /r -namespace k8s.io -address /evil.sock \
			--container-runtime-endpoint unix:///evil.sock --password secret-in-arguments -id %[2]s create \
			--config %[1]s/$bundle/config.json --bundle %[1]s/$bundle %[2]s $big $big $big $big $big $big $big $big \
			$big $big $big $big $big $big $big $big $big $big) &
	done
	big=
done`

// liars are how many processes lie starts.
const liars = 3 * 12

// TestEndToEndPodsThatLie has pods pretend to be parts of the runtime, in a pid namespace of their own and in the
// host's. kdiag must not take them for these, nor signal them, nor read what they name, nor wait for it.
func TestEndToEndPodsThatLie(t *testing.T) {
	r := rig{e2etest.StartRig(t, nodebox.Options{})}
	host, err := r.Run(t.Context(), nodebox.Pods{
		Count: 1, Containers: 1, State: crictl.ContainerRunning, Prefix: "host", HostPID: true,
	})
	e2etest.Must(t, err)
	secret := filepath.Join(r.Folder, "secret")
	e2etest.Sh(t, "cd "+r.Folder+" && mkdir pipe zero && mkfifo pipe/config.json && ln -s /dev/zero zero/config.json && "+
		"mkdir secret && ln -s ../text secret/config.json")
	e2etest.Must(t, os.WriteFile(filepath.Join(filepath.Dir(secret), "text"), []byte(`{"annotations": {
		"io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.sandbox-name": "secret-in-file"}}`), 0o600))
	var controls []fault
	for name, pod := range map[string]nodebox.Pod{"a pod": r.Pods[1], "a pod in the host's pid namespace": host[0]} {
		group := fmt.Sprintf("%s/pod%s/%s", filepath.Dir(filepath.Dir(r.Group)), pod.Config.Metadata.Uid,
			pod.Containers[0].ID)
		l := &lying{rig: r, container: pod.Containers[0].ID, group: group}
		controls = append(controls, fault{Name: name, Make: l.start})
	}
	r.CheckControls(t, controls)
}

// A lying is a container whose processes lie.
type lying struct {
	rig
	container, group string
	pids             []int
}

func (l *lying) start(t *testing.T, at *place) {
	at.Also = l.blameless
	procs := filepath.Join(e2etest.Cgroup(t, "freezer", l.group), "cgroup.procs")
	first := numbers(t, procs)
	l.Ctr(t, "tasks", "exec", "--detach", "--exec-id", "lie", l.container, "/bin/busybox", "sh", "-c",
		fmt.Sprintf(lie, l.Folder, l.Pods[0].Containers[0].ID))
	inside := fmt.Sprintf("/proc/%d/root/lie/", first[0])
	t.Cleanup(func() {
		for _, pid := range numbers(t, procs) {
			if !slices.Contains(first, pid) {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		e2etest.Eventually(t, "they have ended", func() bool { return len(numbers(t, procs)) == len(first) })
	})
	e2etest.Eventually(t, "they are up", func() bool {
		up, _ := os.ReadFile(inside + "up")
		return strings.Count(string(up), "\n") == liars
	})
	l.pids = slices.DeleteFunc(numbers(t, procs), func(pid int) bool { return slices.Contains(first, pid) })

	// A group of the pod's own, whose name is shown because it is frozen.
	frozen := e2etest.MakeCgroup(t, "freezer", l.group+"/\x1b[31mred")
	e2etest.Enter(t, frozen, l.pids[0])
	state := filepath.Join(frozen, "freezer.state")
	t.Cleanup(func() { e2etest.Must(t, os.WriteFile(state, []byte("THAWED"), 0)) })
	e2etest.Must(t, os.WriteFile(state, []byte("FROZEN"), 0))

	for _, command := range []string{"node --details", "pleg --stacks --details", "stacks --capture --shim stuck"} {
		args := append(strings.Fields(command), l.Args...)
		o := l.Ask(t, append(args, "--timeout", "40s")...)
		l.harmless(t, command, o.Stdout+o.Stderr)
	}
	o := l.Ask(t, "pleg", "--timeout", "40s") // which finds the runtime's socket itself
	l.harmless(t, "pleg", o.Stdout+o.Stderr)
	l.checkBundle(t)
	for _, pid := range l.pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil || !strings.Contains(string(status), "ShdPnd:\t0000000000000000\n") {
			t.Errorf("process %d has ended, or a signal waits for it: %v\n%s", pid, err, status)
		}
	}
	if _, err := os.Stat(inside + "signalled"); err == nil {
		t.Error("a process in a pod was sent a signal")
	}
	for _, pid := range l.pids[1:] {
		e2etest.Must(t, unix.Kill(pid, unix.SIGSTOP)) // a part of the runtime that is stopped would be a cause
	}
}

// checkBundle checks that no process that lies has a role in a bundle, and nothing of what it names is there.
func (l *lying) checkBundle(t *testing.T) {
	t.Helper()
	o := l.Ask(t, append([]string{"bundle", "-", "--timeout", "1m"}, l.Args...)...)
	l.harmless(t, "bundle", o.Stderr)
	_, files := e2etest.OpenBundle(t, o.Stdout)
	for name, text := range files {
		if !strings.HasPrefix(name, "logs/") { // the journal's export format may hold any byte
			l.harmless(t, name, text)
		}
	}
	header, rows, _ := strings.Cut(files["host/processes.txt"], "\n")
	found := 0
	for row := range strings.Lines(rows) {
		pid, _ := strconv.Atoi(strings.Fields(row)[0])
		if !slices.Contains(l.pids, pid) {
			continue
		}
		found++
		if role := strings.Fields(row[strings.Index(header, "ROLE"):])[0]; role != "-" {
			t.Errorf("process %d has the role %s", pid, role)
		}
	}
	if found != len(l.pids) {
		t.Errorf("%d of %d processes are in the table", found, len(l.pids))
	}
}

// harmless checks that a text has nothing of what the processes name, and no control characters.
func (l *lying) harmless(t *testing.T, what, text string) {
	t.Helper()
	for _, part := range []string{"secret-in-", "evil.sock"} {
		if strings.Contains(text, part) {
			t.Errorf("%s has %s:\n%.4000s", what, part, text)
		}
	}
	if i := strings.IndexFunc(text, func(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\t' }); i >= 0 {
		t.Errorf("%s has a control character: %q", what, text[max(0, i-100):min(i+100, len(text))])
	}
}

// blameless checks that no cause names a process that lies.
func (l *lying) blameless(t *testing.T, r *checks.Report) {
	t.Helper()
	for _, c := range r.Causes {
		numbers := regexp.MustCompile(`\bpid:? ?(\d+)|PID:(\d+)`)
		for _, number := range numbers.FindAllStringSubmatch(fmt.Sprintf("%+v", c), -1) {
			pid, _ := strconv.Atoi(number[1] + number[2])
			if slices.Contains(l.pids, pid) {
				t.Errorf("%s names process %d: %+v", c.Code, pid, c)
			}
		}
	}
}

// numbers reads the process ids of a control group and those in it.
func numbers(t *testing.T, procs string) (list []int) {
	t.Helper()
	nested, err := filepath.Glob(filepath.Join(filepath.Dir(procs), "*", filepath.Base(procs)))
	e2etest.Must(t, err)
	for _, name := range append(nested, procs) {
		for field := range strings.FieldsSeq(e2etest.Read(t, name)) {
			pid, err := strconv.Atoi(field)
			e2etest.Must(t, err)
			list = append(list, pid)
		}
	}
	return list
}

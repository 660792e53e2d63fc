//go:build e2e

package e2etest

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/checks"
)

// notRun are parts of commands that only read, or write a dump, and are not run all the same, and why. Of them, and of
// what changes something and is not the repair, such as drain and reboot, the syntax is checked, and that the object is
// named.
var notRun = map[string]string{
	"kubectl ":       "there is no API server",
	"exited --watch": "it takes a minute, as it says",
	"relist --count": "it takes a second for each",
	"sysrq-trigger":  "other tests read the kernel's log",
	"kdiag bundle":   "its own tests run it, and it says what it does",
	"kdiag pleg":     "it asks for the runtime of a kubelet, and the machine has none",
}

// forgiven are complaints that are no fault of a step: of programs that Debian does not install, or the box does not
// have, of kill about a child that has ended meanwhile, of umount -f, which cuts the connection all the same, and of ls
// about what it was to look for. kdiag stacks prints what it does before it does it.
var forgiven = regexp.MustCompile(`(?m)^(sh: \d+: (crictl|iostat|ping|chronyc|curl|openssl): not found|` +
	`sh: \d+: kill: No such process|umount: .*: (target is busy|not mounted)\.|` +
	`ls: cannot .*: No such file or directory|kdiag: (once more, [^:]*: )?(send SIGUSR1|ask) .*)\n`)

// runAll runs each of its arguments in a shell, all at once, and writes of each the exit code, the complaints, and how
// its output begins.
const runAll = `dir=$(mktemp -d) && cd "$dir" || exit
for c; do
	n=$((n+1))
	{ timeout 20 sh -c "$c" </dev/null >$n.out 2>$n.err; echo $? >$n.code; } &
done
wait
for i in $(seq $n); do cat $i.code; printf '\0'; cat $i.err; printf '\0'; head -c 400 $i.out; printf '\0'; done
rm -r "$dir"`

// runSteps runs all steps of causes that only read, and those that write a dump. Each must end in time and complain of
// nothing; what reads prints something, unless it filters. The others must have no error of syntax, and name what they
// are about.
func (p Place) runSteps(t *testing.T, causes []checks.Cause) {
	t.Helper()
	var commands []string
	var steps []checks.NextStep
	for _, c := range causes {
		for _, step := range c.NextSteps {
			command := step.Command
			if !runs(step) {
				command = "if false; then\n" + command + "\nfi"
				if !namesObject(c, step) {
					t.Errorf("%s: %s names nothing of %+v %+v", c.Code, step.Command, c.Subject, c.Related)
				}
			}
			commands, steps = append(commands, command), append(steps, step)
		}
	}
	if len(commands) == 0 {
		return
	}
	out, err := p.command(context.Background(), append([]string{"sh", "-c", runAll, "sh"}, commands...)...).Output()
	Must(t, err)
	fields := strings.Split(string(out), "\x00")
	if len(fields) != 3*len(commands)+1 {
		t.Fatalf("%d fields for %d steps:\n%s", len(fields), len(commands), out)
	}
	for i, step := range steps {
		code, said, printed := strings.TrimSpace(fields[3*i]), fields[3*i+1], fields[3*i+2]
		t.Logf("%s %s: %s\n%s%s", code, step.Touches, step.Command, said, printed)
		complaints, late := forgiven.ReplaceAllString(said, ""), code == "124"
		reads := runs(step) && step.Touches == checks.TouchesNothing && !strings.Contains(step.Command, "grep")
		if complaints != "" || late || reads && said+printed == "" {
			t.Errorf("%s: exit code %s, %q, and it printed %q", step.Command, code, complaints, printed)
		}
	}
}

// runs reports whether a step only reads, or writes a dump, and can be run.
func runs(s checks.NextStep) bool {
	for part := range notRun {
		if strings.Contains(s.Command, part) {
			return false
		}
	}
	return s.Touches == checks.TouchesNothing || s.Touches == checks.TouchesDump
}

// namesObject reports whether a step that ends or changes one object names one of its cause.
func namesObject(c checks.Cause, step checks.NextStep) bool {
	one := []string{checks.TouchesProcess, checks.TouchesPod, checks.TouchesMount}
	if !slices.Contains(one, step.Touches) {
		return true
	}
	subjects := c.Related
	if c.Subject != nil {
		subjects = append(subjects, *c.Subject)
	}
	var names []string
	for _, s := range subjects {
		names = append(names, s.ID, s.Name, s.Pod, strings.TrimSuffix(s.Name, ".service"))
		for _, p := range s.Processes {
			names = append(names, strconv.Itoa(p.PID))
		}
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return name != "" && strings.Contains(step.Command, name)
	})
}

// repair runs a command in a folder of its own, writes its complaints, and runs kdiag.
const repair = `cd "$(mktemp -d)" && { %s
} 2>&1 >/dev/null; rm -r "$PWD"; cd /; `

// remains returns whether a later cause shows that a fault has not ended.
func remains(c checks.Cause) func(now checks.Cause) bool {
	return func(now checks.Cause) bool {
		return now.Severity == checks.Critical || now.Code == c.Code &&
			(c.Subject == nil || now.Subject.ID == c.Subject.ID && now.Subject.Name == c.Subject.Name)
	}
}

// repair runs the steps of a cause that have these parts. After them, soon, kdiag must not name the cause any
// more, and nothing critical.
func (p Place) repair(t *testing.T, c checks.Cause, parts []string) {
	t.Helper()
	var commands []string
	for _, part := range parts {
		i := slices.IndexFunc(c.NextSteps, func(s checks.NextStep) bool { return strings.Contains(s.Command, part) })
		if i < 0 || runs(c.NextSteps[i]) {
			t.Fatalf("%s advises %+v, want %q", c.Code, c.NextSteps, part)
		}
		commands = append(commands, c.NextSteps[i].Command)
	}
	step, ask := fmt.Sprintf(repair, strings.Join(commands, "\n")), append([]string{p.Program}, p.question("node")...)
	Eventually(t, fmt.Sprintf("%q repairs %s", commands, c.Code), func() bool {
		script := step + `printf '\0'; "$@" 2>/dev/null; true`
		out, err := p.command(context.Background(), append([]string{"sh", "-c", script, "sh"}, ask...)...).Output()
		Must(t, err)
		said, report, _ := strings.Cut(string(out), "\x00")
		if said = strings.TrimSpace(forgiven.ReplaceAllString(said, "")); said != "" {
			t.Errorf("%q: %s", commands, said)
		}
		step = "" // once is enough
		return !slices.ContainsFunc(p.own(Outcome{Stdout: report}.Report(t), c.Code), remains(c))
	})
}

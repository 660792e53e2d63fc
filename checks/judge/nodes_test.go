package judge

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// now is the moment at which all facts of the tests were taken, readAt that at which the journal was read.
func now() time.Time { return time.Date(2026, 3, 14, 3, 9, 26, 0, time.UTC) }

func readAt() time.Time { return now().Add(-2 * time.Second) }

// node returns the recorded healthy node, changed by lines as testdata/scenarios/nodes.txtar describes them.
func node(t testing.TB, lines string) *facts.Input {
	t.Helper()
	in := readCase("testdata/healthy")
	in.Summary = nil
	must(t, change(in, lines))
	if in.Measurement != nil && in.Summary == nil {
		in.Summarize()
	}
	return in
}

// A scenario is a node of testdata/scenarios, and what is wanted of it.
type scenario struct{ name, lines, want string }

// scenarios returns the nodes of testdata/scenarios, and the lines that they define by name.
var scenarios = sync.OnceValues(func() ([]scenario, map[string]string) {
	paths, _ := filepath.Glob("testdata/scenarios/*.txtar") // the pattern is good
	var all []scenario
	defined := map[string]string{}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			panic(err)
		}
		for _, s := range archive.Files {
			if name, ok := strings.CutPrefix(s.Name, "define "); ok {
				defined[name] = string(s.Data)
			} else {
				lines, want, _ := strings.Cut("\n"+string(s.Data), "\n> ")
				all = append(all, scenario{s.Name, lines, want})
			}
		}
	}
	return all, defined
})

// change applies lines to the facts.
func change(in *facts.Input, lines string) error {
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := changeLine(in, line); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
	}
	return nil
}

func changeLine(in *facts.Input, line string) error {
	_, defined := scenarios()
	if defined[line] != "" {
		return change(in, defined[line])
	}
	path, value, isValue := strings.Cut(line, " = ")
	verb, rest, _ := strings.Cut(line, " ")
	switch {
	case isValue && !strings.Contains(path, " "):
		if strings.HasPrefix(path, "Summary.") && in.Summary == nil {
			in.Summarize()
		}
		return setPath(reflect.ValueOf(in).Elem(), strings.Split(path, "."), value)
	case line == "host", line == "kubelet":
		in.Node = readCase("testdata/" + line + "_healthy").Node
		in.Node.Pressure.Value.Memory = &host.Stall{}
		if line == "kubelet" {
			in.Processes = append(in.Processes, host.Process{
				PID: 812, PPID: 1, Name: "kubelet", Role: host.RoleKubelet, State: 'S', Wchan: "futex_wait_queue",
				Started: now().Add(-72 * time.Hour),
			})
		}
		return nil
	case line == "nothing read":
		in.Node = &facts.Node{}
		walkStrings(reflect.ValueOf(in.Node).Elem(), func(field string, v reflect.Value) {
			if field == "Missing" {
				v.SetString("permission denied")
			}
		})
		return nil
	case verb == "stacks":
		return dumped(in, strings.Fields(rest))
	case verb == "journal", verb == "pleg":
		if in.Journal == nil {
			in.Journal = &journal.Report{
				APIVersion: journal.APIVersion, Kind: "JournalReport", GeneratedAt: readAt(), Lines: 4200,
			}
		}
		if verb == "pleg" {
			return pleg(in.Journal, strings.Fields(rest))
		}
		return records(in.Journal, rest)
	case in.Measurement == nil:
		return errors.New("nothing was measured")
	}
	return runtimeAnswers(in.Measurement, line)
}

// dumped enters what package stacks makes of a real dump, as one of the daemon or of another role.
func dumped(in *facts.Input, words []string) error {
	text, err := os.ReadFile("../stacks/testdata/reports/" + words[0] + ".json")
	if err != nil {
		return err
	}
	in.Stacks = &checks.StacksReport{}
	if err := json.Unmarshal(text, in.Stacks); err != nil {
		return err
	}
	s := &in.Stacks.Sources[0]
	s.Role, s.PID = append(words, "runtime")[1], 4711
	facts.TieStacks(in)
	return nil
}

// durations reads words.
func durations(words ...string) ([]time.Duration, error) {
	var all []time.Duration
	var errs error
	for _, w := range words {
		d, err := time.ParseDuration(w)
		all, errs = append(all, d), errors.Join(errs, err)
	}
	return all, errs
}

// ago is so long before the journal was read.
func ago(d time.Duration) *time.Time { return new(readAt().Add(-d)) }

// pleg adds an episode in which PLEG was unhealthy, by when it began, ended, and the kubelet's loop ran again.
func pleg(r *journal.Report, words []string) error {
	times, err := durations(words...)
	if err != nil {
		return err
	}
	from, to := times[0], times[1]
	e := journal.Episode{
		Kind: journal.Incident, Start: ago(from), End: ago(to), Anchor: ago(from + 3*time.Minute),
		Seconds: (from - to).Seconds(), Lines: int((from-to)/(5*time.Second)) + 1,
		MaxLastSeenSeconds: (from - to + 3*time.Minute).Seconds(), ThresholdSeconds: 180,
	}
	if len(times) > 2 {
		e.Recovered, e.RecoveredAt, e.RecoveredBy = true, ago(times[2]), signature.SyncLoopActive
	}
	r.Episodes = append(r.Episodes, e)
	return records(r, fmt.Sprintf(`of %d %s %v %v "Skipping pod synchronization" err="PLEG is not healthy: pleg was `+
		`last seen active 3m1.2s ago"`, e.Lines, signature.PLEGNotHealthy, from, to))
}

// records adds records: "of N CODE FIRST LAST EXAMPLE | SUBJECT | ...", with subjects such as "runc pid 7".
func records(r *journal.Report, text string) error {
	text, subjects, some := strings.Cut(text, " | ")
	words := append(strings.SplitN(text, " ", 6), "")
	if len(words) < 6 {
		return errors.New("there is no time of the first and the last")
	}
	n, err := strconv.ParseInt(words[1], 10, 64)
	times, err2 := durations(words[3:5]...)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	first, last := ago(times[0]), ago(times[1])
	c := journal.Count{
		Code: words[2], Title: "x", Lane: string(signature.Kubelet), Count: n, First: first, Last: last,
		Example: words[5],
	}
	for s := range strings.SplitSeq(subjects, " | ") {
		subject := journal.SubjectCount{Kind: "Container", ID: s, Count: n, First: first, Last: last}
		if name, pid, ok := strings.Cut(s, " pid "); ok {
			subject.Kind, subject.ID, subject.Name = "Process", pid, name
		}
		if some {
			c.Subjects = append(c.Subjects, subject)
		}
	}
	r.Signatures = append(r.Signatures, c)
	return nil
}

// runtimeAnswers applies a line about calls of the runtime, or what it holds.
func runtimeAnswers(m *plegbench.Measurement, line string) error {
	line, text, _ := strings.Cut(line, " | ")
	words := append(strings.Fields(line), "", "")
	names := words[2:]
	took, err := time.ParseDuration(words[1])
	answer := func(c crictl.Call) crictl.Call {
		switch {
		case err == nil:
			c.Elapsed = took
		case words[1] == "hangs":
			c.Code, c.Err, c.Elapsed = crictl.DeadlineExceeded, "context deadline exceeded", 5*time.Second
		default:
			c.Code, c.Err = crictl.Code(words[1]), cmp.Or(text, "some reason")
		}
		return c
	}
	var total, part int
	var bytes uint32
	_, _ = fmt.Sscan(strings.Join(words[1:], " "), &total, &part, &bytes)
	switch words[0] {
	case "socket":
		*m = plegbench.Measurement{Started: m.Started, Ended: m.Ended, Connect: crictl.Connect{
			State: crictl.ConnectState(words[1]), Elapsed: 5 * time.Second, Err: words[1],
		}}
	case "call":
		answers(m, names, answer)
	case "status":
		first := 0
		if names[0] == "first" {
			first, _ = strconv.Atoi(names[1])
		}
		for n := range m.Sweep.Inspections {
			i := &m.Sweep.Inspections[n]
			if n < first || names[0] == "all" || names[0] == "containers" && i.Kind == facts.KindContainer ||
				slices.Contains(names, i.ID) {
				i.Call = answer(i.Call)
			}
		}
	case "pods", "exited", "sweep":
		if m.Sandboxes == nil || m.Containers == nil {
			return errors.New("there are no lists")
		}
		map[string]func(){
			"pods": func() { pods(m, total, part) }, "exited": func() { exited(m, total, part, bytes) },
			"sweep": func() { sweep(m) },
		}[words[0]]()
	default:
		return errors.New("it is no change")
	}
	return nil
}

// answers changes the calls of RPCs, and takes away what those that fail would have brought.
func answers(m *plegbench.Measurement, names []string, answer func(crictl.Call) crictl.Call) {
	brings := map[string]func(){
		facts.RPCVersion: func() { m.Version = nil }, facts.RPCStatus: func() { m.Status = nil },
		facts.RPCSandboxes: func() { m.Sandboxes = nil }, facts.RPCContainers: func() { m.Containers = nil },
	}
	picked := func(c *crictl.Call) (failed bool) {
		if names[0] != "all" && !slices.Contains(names, c.Method) {
			return false
		}
		*c = answer(*c)
		return c.Code != crictl.OK
	}
	for i := range m.Probes {
		if c := &m.Probes[i]; picked(c) && brings[c.Method] != nil {
			brings[c.Method]()
		}
	}
	for i := range m.Samples {
		if s := &m.Samples[i]; picked(&s.Sandboxes) {
			s.Containers = crictl.Call{}
		} else {
			picked(&s.Containers)
		}
	}
	if m.Sandboxes == nil && m.Containers == nil {
		m.Sweep = plegbench.Sweep{}
	}
}

// pods replaces the pods of the node.
func pods(m *plegbench.Measurement, n, containers int) {
	m.Sandboxes.Sandboxes, m.Containers.Containers = nil, nil
	for p := range n {
		pod := &crictl.Pod{Namespace: "web", Name: fmt.Sprintf("checkout-%d", p), UID: fmt.Sprintf("uid-%d", p)}
		id, created := fmt.Sprintf("sandbox%d", p), now().Add(-24*time.Hour).UnixNano()
		m.Sandboxes.Sandboxes = append(m.Sandboxes.Sandboxes,
			crictl.PodSandbox{ID: id, Pod: pod, CreatedAt: created, Size: 900})
		for c := range containers {
			m.Containers.Containers = append(m.Containers.Containers, crictl.Container{
				ID: fmt.Sprintf("container%d-%d", p, c), SandboxID: id, Name: fmt.Sprintf("app%d", c), Pod: pod,
				CreatedAt: created, Size: 1000, State: crictl.ContainerRunning,
			})
		}
	}
	m.Sandboxes.Bytes, m.Containers.Bytes = 900*n, 1000*n*containers
}

// exited adds dead containers, so many of each pod and name.
func exited(m *plegbench.Measurement, total, perPod int, bytes uint32) {
	for i := range total {
		h := i / perPod
		m.Containers.Containers = append(m.Containers.Containers, crictl.Container{
			ID: fmt.Sprintf("dead%d", i), SandboxID: fmt.Sprintf("gone%d", h), Name: "job",
			State: crictl.ContainerExited, Size: bytes,
			Pod: &crictl.Pod{
				Namespace: "batch", Name: fmt.Sprintf("report-%d", h), UID: fmt.Sprintf("job-%d", h),
			},
			CreatedAt: now().Add(-time.Duration(i) * time.Minute).UnixNano(), Attempt: uint32(i % perPod),
		})
	}
	m.Containers.Bytes += total * int(bytes)
}

// sweep asks for the status of everything, two milliseconds each, answered.
func sweep(m *plegbench.Measurement) {
	m.Sweep = plegbench.Sweep{Reach: "everything"}
	at := now().Add(-time.Second)
	ask := func(kind, method, id, sandbox, name, state string, pod crictl.Pod) {
		at = at.Add(3 * time.Millisecond)
		m.Sweep.Total++
		m.Sweep.Inspections = append(m.Sweep.Inspections, plegbench.Inspection{
			Kind: kind, ID: id, SandboxID: sandbox, Name: name, Pod: pod, State: state,
			Call: crictl.Call{
				Method: method, Object: id, Start: at, Elapsed: 2 * time.Millisecond, Code: crictl.OK,
			},
		})
	}
	for _, s := range m.Sandboxes.Sandboxes {
		ask(facts.KindSandbox, "PodSandboxStatus", s.ID, s.ID, "", s.State.String(), *s.Pod)
	}
	for _, c := range m.Containers.Containers {
		ask(facts.KindContainer, "ContainerStatus", c.ID, c.SandboxID, c.Name, c.State.String(), *c.Pod)
	}
}

// setPath sets a field of the facts, or of the node in them, to a JSON value, or to a duration, or to a moment so long
// after now. Of a reading the path leads on into its value; * is every element of a list, and + one more.
func setPath(v reflect.Value, path []string, value string) error {
	for v.Kind() == reflect.Pointer && (len(path) > 0 || value != "null") {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	if len(path) == 0 {
		return setValue(v, value)
	}
	if v.Kind() == reflect.Struct {
		f := v.FieldByName(path[0])
		for _, inside := range []string{"Value", "Node"} {
			if outer := v.FieldByName(inside); !f.IsValid() && outer.IsValid() {
				return setPath(outer, path, value)
			}
		}
		if !f.IsValid() {
			return fmt.Errorf("%s has no %s", v.Type(), path[0])
		}
		return setPath(f, path[1:], value)
	}
	i, err := strconv.Atoi(path[0])
	switch {
	case v.Kind() != reflect.Slice:
		return fmt.Errorf("%s has no %s", v.Type(), path[0])
	case path[0] == "+":
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		i = v.Len() - 1
	case path[0] == "*":
		for i := range v.Len() {
			if err := setPath(v.Index(i), path[1:], value); err != nil {
				return err
			}
		}
		return nil
	case err != nil || i >= v.Len():
		return fmt.Errorf("no element %s of %d", path[0], v.Len())
	}
	return setPath(v.Index(i), path[1:], value)
}

func setValue(v reflect.Value, value string) error {
	d, err := time.ParseDuration(value)
	switch v.Addr().Interface().(type) {
	case *time.Duration:
		v.SetInt(int64(d))
		return err
	case *time.Time:
		v.Set(reflect.ValueOf(now().Add(d)))
		return err
	}
	if v.Kind() == reflect.Struct && v.FieldByName("Skipped").IsValid() {
		v = v.FieldByName("Value") // of a reading
	}
	v.SetZero()
	decoder := json.NewDecoder(strings.NewReader(states.Replace(value)))
	decoder.DisallowUnknownFields()
	return decoder.Decode(v.Addr().Interface())
}

// states writes the states of processes as JSON has them.
var states = strings.NewReplacer(`"State":"S"`, `"State":83`, `"State":"T"`, `"State":84`, `"State":"D"`, `"State":68`)

// walkStrings visits every string below a value, with the name of its field. Values of maps are left alone.
func walkStrings(v reflect.Value, visit func(string, reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			walkStrings(v.Elem(), visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			walkStrings(v.Index(i), visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			if f.Kind() == reflect.String && f.CanSet() {
				visit(v.Type().Field(i).Name, f)
			} else if f.CanSet() {
				walkStrings(f, visit)
			}
		}
	}
}

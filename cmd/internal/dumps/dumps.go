// Package dumps captures goroutine dumps of the runtime, of shims and of the kubelet, and reads and analyses them.
package dumps

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/capture"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/stacks"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/journal"
)

// betweenDumps is the time from a dump of the runtime without times to a second one: a healthy daemon waits less than a
// second for a shim, a CNI plugin or the disk. The second may take as long.
const betweenDumps = 3 * time.Second

// A Selection selects the processes whose goroutine dumps are captured.
type Selection struct {
	Runtime bool
	Shims   string // as --shim takes it; empty for none
	Kubelet bool
}

// Capture captures dumps of the selected processes at the same time. hangs is set when a call of the runtime hangs:
// then goroutines that stand still matter more. The error is about the value of which.Shims.
func Capture(
	ctx context.Context, in capture.Input, conn *connection.Connection, which Selection, hangs bool,
) ([]capture.Dump, error) {
	in.Socket = conn.Socket
	var chosen []host.Process
	switch which.Shims {
	case "", "stuck": // another runtime on this host keeps its shims
		if !which.Runtime && which.Shims == "" {
			break
		}
		asked := &facts.Input{Now: time.Now(), Runtime: conn.Runtime(), Processes: in.Processes}
		chosen = facts.StuckShims(facts.New(asked))
		if which.Shims == "" { // one that stands still gets no signal, and its stacks in the kernel belong to the answer
			chosen = slices.DeleteFunc(chosen, func(p host.Process) bool { return !facts.IsStopped(&p) && !p.Lasting })
		}
	default:
		shim, err := in.FindShim(which.Shims)
		if err != nil {
			return nil, err
		}
		chosen = []host.Process{shim}
	}
	var runtime, shims, kubelet []capture.Dump
	var work sync.WaitGroup
	if which.Runtime {
		work.Go(func() { runtime = []capture.Dump{captureRuntime(ctx, in, hangs)} })
	}
	work.Go(func() { shims = capture.Shims(ctx, in, chosen) })
	if which.Kubelet {
		work.Go(func() { kubelet = captureKubelet(ctx, in, conn.Kubelet) })
	}
	work.Wait()
	return slices.Concat(runtime, shims, kubelet), nil
}

// captureRuntime captures a dump of the runtime. A dump has no times in the first minutes of a process: where
// goroutines wait in it without one, a second dump shows which of them stand still. It is left out where little time is
// left, and where nothing hangs and none waits for a lock or a CNI plugin.
func captureRuntime(ctx context.Context, in capture.Input, hangs bool) capture.Dump {
	first := capture.Runtime(ctx, in)
	counts := []string{stacks.WaitsLock, stacks.WaitsBolt, stacks.WaitsCNI}
	asks := func(w checks.StackWait) bool {
		return w.MinSeconds == nil && (hangs && w.WaitsFor != stacks.WaitsNothing || slices.Contains(counts, w.WaitsFor))
	}
	end, bounded := ctx.Deadline()
	if bounded && time.Until(end) < 2*betweenDumps ||
		!slices.ContainsFunc(stacks.Analyse(readDump(ctx, first)).Waits, asks) {
		return first
	}
	select {
	case <-time.After(betweenDumps):
	case <-ctx.Done():
		return first
	}
	if say := in.Say; say != nil {
		in.Say = func(what string) { say("once more, to see what stands still: " + what) }
	}
	ctx, cancel := context.WithTimeout(ctx, betweenDumps)
	defer cancel()
	second := capture.Runtime(ctx, in)
	if len(second.Text) == 0 || second.Source.PID != first.Source.PID {
		return first
	}
	second.Before = &first
	return second
}

// None stands for a dump that could not be captured.
func None(role host.Role, problem string) []capture.Dump {
	return []capture.Dump{{Source: checks.StackSource{Role: string(role), Problem: problem}}}
}

// captureKubelet captures a dump of the kubelet that was found, or is one of the processes.
func captureKubelet(ctx context.Context, in capture.Input, found *crictl.Kubelet) []capture.Dump {
	pid := 0
	for _, p := range in.Processes {
		if p.Role == host.RoleKubelet {
			pid = p.PID
		}
	}
	if found != nil {
		pid = found.PID
	}
	if pid == 0 {
		return None(host.RoleKubelet, "no kubelet runs here")
	}
	reading, cancel := context.WithTimeout(ctx, connection.ScanTimeout)
	defer cancel()
	in.Kubelet, _ = deadline.Run(reading, "reading the kubelet's settings",
		func(ctx context.Context) (kubelet.Settings, error) {
			return kubelet.ReadSettings(ctx, in.Root, pid)
		})
	in.Kubelet.PID = pid // an error may leave the settings incomplete
	return []capture.Dump{capture.Kubelet(ctx, in)}
}

// A Set is goroutine dumps of one node.
type Set struct {
	Dumps    []*stacks.Dump // one without goroutines has a Problem
	Root     string         // of the host that they are of; empty for another one
	Node     *facts.Input   // the processes that goroutines may wait for; nil when not known
	Problems []string
}

// errEmpty is the error of a text without a byte.
var errEmpty = errors.New("empty")

// IsNoDump reports whether Read found no dump in a text.
func IsNoDump(err error) bool { return errors.Is(err, errEmpty) || errors.Is(err, stacks.ErrNoDump) }

// Read reads the dumps in a text, of one process if known has its pid. Where there is none, one without goroutines
// stands for it. A read that hangs is abandoned when ctx ends.
func (d *Set) Read(ctx context.Context, known checks.StackSource, open func() (io.ReadCloser, error)) error {
	dumps, err := deadline.RunGrace(ctx, "parsing the dumps", cli.Margin,
		func(ctx context.Context) ([]*stacks.Dump, error) {
			src, err := open()
			if err != nil {
				return nil, err
			}
			defer src.Close()
			text := bufio.NewReader(src)
			if _, err := text.Peek(1); errors.Is(err, io.EOF) {
				return nil, errEmpty
			}
			return stacks.Read(ctx, known.Name, text)
		})
	if err != nil && ctx.Err() != nil {
		err = errors.New("there was more to read at the end of --timeout")
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err // the name stands before it
	}
	if known.PID > 0 && len(dumps) > 1 {
		dumps = dumps[len(dumps)-1:]
	}
	switch {
	case err == nil:
	case len(dumps) == 0:
		known.Problem = err.Error()
		dumps = []*stacks.Dump{{}}
	default:
		d.Problems = append(d.Problems, known.Name+": "+err.Error())
	}
	for _, one := range dumps {
		s := known // completed from the dump
		s.Process, s.PID = cmp.Or(s.Process, one.Source.Process), cmp.Or(s.PID, one.Source.PID)
		s.Role, s.Cut = cmp.Or(s.Role, one.Source.Role), cmp.Or(s.Cut, one.Source.Cut)
		s.CapturedAt, s.Goroutines = cmp.Or(s.CapturedAt, one.Source.CapturedAt), one.Source.Goroutines
		one.Source = s
	}
	d.Dumps = append(d.Dumps, dumps...)
	return err
}

// Add reads dumps that were captured.
func (d *Set) Add(ctx context.Context, captured []capture.Dump) {
	for _, c := range captured {
		d.Dumps = append(d.Dumps, readDump(ctx, c))
	}
}

// readDump reads a captured dump. Its problems are in its source.
func readDump(ctx context.Context, c capture.Dump) *stacks.Dump {
	if len(c.Text) == 0 {
		return &stacks.Dump{Source: c.Source}
	}
	var d Set
	err := d.Read(ctx, c.Source, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.Text)), nil })
	one := d.Dumps[0]
	if err != nil && one.Source.Problem == "" {
		one.Source.Cut = cmp.Or(one.Source.Cut, err.Error())
	}
	if c.Before != nil {
		one.Before = readDump(ctx, *c.Before)
	}
	return one
}

// Report analyses which goroutines wait for which, and for which processes of the node, and sets d.Node.Stacks.
func (d *Set) Report(ctx context.Context) *checks.StacksReport {
	var read []*stacks.Dump
	var without []checks.StackSource
	for _, one := range d.Dumps {
		if len(one.Goroutines) > 0 {
			read = append(read, one)
		} else {
			without = append(without, one.Source)
		}
	}
	r := report(read)
	r.Sources = append(r.Sources, without...)
	if d.Node == nil {
		return r
	}
	d.Node.Stacks = r
	for _, w := range r.Waits {
		if pid := r.Sources[w.Source].PID; d.Root != "" && w.WaitsFor == stacks.WaitsFlock && pid > 0 {
			d.Node.FileLocks, _ = host.LocksBefore(ctx, d.Root, pid) // else nobody is named
		}
	}
	facts.TieStacks(d.Node)
	return r
}

// report analyses dumps. Of several dumps of one process it analyses the newest; the one before shows which goroutines
// stand still. The sources have it first, then the others, the newest first. Two dumps are of one process if program
// and pid agree as far as they are known; of more, the pid must be known.
func report(dumps []*stacks.Dump) *checks.StacksReport {
	var of checks.StackSource // of the one process, as far as it is known
	same := len(dumps) > 1
	for _, d := range dumps {
		s := d.Source
		same = same && agree(of.PID, s.PID) && agree(of.Process, s.Process) && agree(of.Role, s.Role) &&
			(len(dumps) == 2 || s.PID != 0)
		of.PID, of.Process, of.Role = cmp.Or(of.PID, s.PID), cmp.Or(of.Process, s.Process), cmp.Or(of.Role, s.Role)
	}
	if !same {
		return stacks.Analyse(dumps...)
	}
	slices.SortStableFunc(dumps, func(a, b *stacks.Dump) int {
		if a.Source.CapturedAt == nil || b.Source.CapturedAt == nil {
			return 0 // as they were given, the older one first
		}
		return a.Source.CapturedAt.Compare(*b.Source.CapturedAt)
	})
	slices.Reverse(dumps)
	for _, d := range dumps {
		d.Source.PID, d.Source.Process = of.PID, of.Process
	}
	newest, older := dumps[0], dumps[1:]
	newest.Before = older[0]
	r := stacks.Analyse(newest)
	for _, d := range older {
		r.Sources = append(r.Sources, stacks.Analyse(d).Sources...)
	}
	return r
}

// agree reports whether two values are equal, or one is unknown.
func agree[T comparable](a, b T) bool {
	var unknown T
	return a == b || a == unknown || b == unknown
}

// Take captures dumps of the selected processes for kdiag stacks, and then reads the processes that their goroutines
// may wait for. say is called with a line before each capture, by several goroutines at once. The error is one of
// usage.
func Take(
	ctx context.Context, env cli.Env, f *cli.Flags, which Selection, access *connection.KubeletFlags, say func(string),
) (*Set, error) {
	credentials, err := access.Credentials()
	if err != nil {
		return nil, err
	}
	conn, err := connection.Open(ctx, env, f)
	if _, none := errors.AsType[*crictl.NoEndpointError](err); none && !which.Runtime {
		err = nil // shims and the kubelet are found without the runtime's socket
	}
	d := &Set{Root: env.Root}
	if d.Problems, err = connection.Problems(err, f.Output); err != nil {
		return nil, err
	}
	if conn == nil {
		conn = &connection.Connection{}
	}
	defer conn.Close()
	which.Runtime = which.Runtime && conn.Socket != ""
	all, err := connection.StartScan(ctx, env.Root, host.Population{}).Wait(ctx)
	if err != nil {
		d.Problems = append(d.Problems, "processes of this host: "+err.Error())
	}
	dumps, err := Capture(ctx, capture.Input{
		Root: env.Root, Processes: all.Processes(), Credentials: credentials, APIServer: !access.NoAPIServer, Say: say,
	}, conn, which, true) // else nobody would ask
	if err != nil {
		return nil, cli.Usage(err.Error(), "--shim takes the id of a sandbox or container, a pid, or stuck")
	}
	d.Add(ctx, dumps)
	failed := func(c capture.Dump) bool { return c.Source.Problem != "" }
	if slices.ContainsFunc(dumps, failed) && os.Geteuid() != 0 {
		d.Problems = append(d.Problems,
			"without root, processes of others are not seen and not signalled: run with sudo")
	}
	d.Node = afterwards(ctx, env, conn, all)
	return d, nil
}

// rereadTimeout bounds reading processes a second time.
const rereadTimeout = 300 * time.Millisecond

// afterwards reads the processes again, for which goroutines may wait. The names of the containers behind shims come
// from the bundles on the disk, since the runtime may hang.
func afterwards(ctx context.Context, env cli.Env, conn *connection.Connection, all host.Population) *facts.Input {
	short, cancel := context.WithTimeout(ctx, rereadTimeout)
	defer cancel()
	again, _ := all.Again(short) // after an error, some are as before
	objects, _ := deadline.Run(ctx, "reading the bundles of shims",
		func(ctx context.Context) ([]host.Object, error) { return all.Objects(ctx), nil })
	for i, p := range again {
		served := func(o host.Object) bool { return o.ID != "" && o.ID == p.ObjectID }
		if at := slices.IndexFunc(objects, served); at >= 0 && p.Serves.Pod == "" {
			again[i].Serves = objects[at]
		}
	}
	return &facts.Input{Now: env.Now(), Runtime: conn.Runtime(), Processes: again, Limits: checks.DefaultLimits()}
}

// logTimeout bounds the reading of dumps out of logs.
const logTimeout = 5 * time.Second

// mostLogs bounds the logs that FromLogs reads again.
const mostLogs = 6

// FromLogs returns the analysis of the latest goroutines that the kubelet and the runtime wrote into logs that were
// read, such as when systemd's watchdog ended them, with SIGABRT; nil where there are none.
func FromLogs(ctx context.Context, logs *journal.Report) *checks.StacksReport {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	latest := map[string]*stacks.Dump{}
	for _, log := range logs.Dumped[:min(len(logs.Dumped), mostLogs)] {
		var one Set
		known := checks.StackSource{Name: log.Source, CapturedAt: log.At}
		switch log.Role {
		case journal.RoleKubelet:
			known.Role = string(host.RoleKubelet)
		case journal.RoleRuntime:
			known.Role = string(host.RoleRuntime)
		}
		_ = one.Read(ctx, known, func() (io.ReadCloser, error) { return log.Open(ctx) }) // without it there is no dump
		for _, d := range slices.Backward(one.Dumps) {
			if role := d.Source.Role; len(d.Goroutines) > 0 && latest[role] == nil {
				latest[role] = d
			}
		}
	}
	var all Set
	for _, role := range []host.Role{host.RoleKubelet, host.RoleRuntime} {
		if d := latest[string(role)]; d != nil {
			all.Dumps = append(all.Dumps, d)
		}
	}
	if len(all.Dumps) == 0 {
		return nil
	}
	return all.Report(ctx)
}

package agentcmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/agent"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/collect"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/recorder"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/cmd/internal/archive"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/diagnosis"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/crictl/deadline"
)

// Memory: little is kept from look to look, and the limit of the unit leaves room for one archive.
const (
	garbagePercent = 40
	memoryLimit    = 96 << 20 // soft, of Go's heap: half of the limit of the unit and the DaemonSet
)

const (
	// walkEvery is how often what takes most of a look is read while nothing is wrong: all threads, control groups
	// and mounts. A container or mount more or less is seen that much later; what hangs is not.
	walkEvery = 2 * time.Minute
	// lookTime bounds one look.
	lookTime = 20 * time.Second
	// endTime is what the end may take, whatever hangs.
	endTime = time.Second
	// diskTime bounds each reading of the records and archives, on a disk that may hang.
	diskTime = 5 * time.Second
	// pastTime is how far back the transitions of the agent before count.
	pastTime = 24 * time.Hour
)

// A service is what a running agent consists of.
type service struct {
	env         cli.Env
	opts        *options
	log         *slog.Logger
	credentials kubelet.Credentials
	watch       *diagnosis.Watch
	metrics     *agent.Metrics
	recorder    *recorder.Recorder // nil without a folder, or where it cannot be used
	agent       *agent.Agent
	writing     atomic.Bool    // the text file
	disk        deadline.Guard // of readings of the data folder
}

func run(ctx context.Context, env cli.Env, opts options) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	debug.SetGCPercent(garbagePercent)
	opts.Timeout, opts.Output = min(opts.Timeout, lookTime), "json" // documents, which have problems as facts
	env = opts.Host(env)
	ctx = deadline.WithGuard(ctx, new(deadline.Guard)) // of captures; looks have one of their own
	s := &service{env: env, opts: &opts, log: newLog(env), metrics: agent.NewMetrics(cli.Version())}
	if err := beIdle(); err != nil {
		s.log.Warn("the priority stays as it is", "error", err)
	}
	var err error
	if s.credentials, err = opts.Credentials(); err != nil {
		return err
	}
	past, err := s.openRecords(ctx)
	if err != nil {
		return err
	}
	publisher, err := s.publisher(ctx)
	if err != nil {
		return err
	}
	limits := checks.DefaultLimits()
	s.watch = diagnosis.NewWatch(ctx, env, &opts.Flags, diagnosis.WatchOptions{
		Interval: opts.interval, Sweep: opts.sweep, Walk: walkEvery, Done: s.metrics.Call,
		Request: diagnosis.Request{
			Command: "agent", Limits: limits,
			Probes: diagnosis.Probes{Credentials: s.credentials, APIServer: !opts.NoAPIServer},
		},
	})
	cfg := agent.Config{
		Interval: opts.interval, Look: s.look, Metrics: s.metrics, Recorder: s.recorder, Publisher: publisher,
		Log: s.log, Looked: s.looked,
	}
	if s.recorder != nil {
		cfg.Capture = s.capture
	}
	s.agent = agent.New(cfg, past)
	if err := s.serve(ctx); err != nil {
		return err
	}
	go s.watchdog(ctx)
	go s.reload(ctx)
	notify(daemon.SdNotifyReady)
	s.log.Info("kdiag agent runs", "version", cli.Version(), "interval", opts.interval, "records", opts.dataDir,
		"metrics", opts.listen)
	s.agent.Run(ctx)
	notify(daemon.SdNotifyStopping)
	return s.end()
}

// end ends what may be at work, and leaves behind what hangs.
func (s *service) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	if s.agent.Wait(ctx) == nil {
		s.watch.Close()
	}
	if s.recorder == nil {
		return nil
	}
	s.recorder.Append(time.Now(), recorder.KindStop, struct{}{})
	if err := s.recorder.Close(ctx); err != nil {
		s.log.Error("the last records were not written", "error", err)
	}
	return nil
}

// openRecords opens the recorder, and returns what is recorded of the time before. A disk that cannot be written is no
// reason not to watch the node.
func (s *service) openRecords(ctx context.Context) (past *checks.History, _ error) {
	dir := s.opts.dataDir
	if dir == "" {
		return nil, nil
	}
	opened, err := recorder.Open(dir, s.opts.dataBytes) // waits for no disk that hangs
	switch {
	case errors.Is(err, recorder.ErrInUse):
		return nil, cli.Usage("--data-dir "+dir+": "+err.Error(), "end that agent, or name another folder")
	case err != nil:
		s.log.Error("nothing is recorded", "folder", dir, "error", err)
		return nil, nil
	}
	s.recorder = opened
	boot, _ := os.ReadFile(filepath.Join(s.env.Root, "proc/sys/kernel/random/boot_id")) // empty in a sandbox
	s.recorder.Append(time.Now(), recorder.KindStart, recorder.Start{
		BootID: strings.TrimSpace(string(boot)), Version: cli.Version(),
		IntervalSeconds: s.opts.interval.Seconds(),
	})
	past, err = s.history(ctx, time.Now().Add(-pastTime))
	if err != nil && !errors.Is(err, recorder.ErrNoRecords) {
		s.log.Warn("what was before is not known", "folder", dir, "error", err)
	}
	return past, nil
}

// history reads the records since a time, within diskTime. A reading that hangs is not begun again.
func (s *service) history(ctx context.Context, since time.Time) (*checks.History, error) {
	return onDisk(ctx, &s.disk, "reading the records", func(ctx context.Context) (*checks.History, error) {
		return recorder.History(ctx, s.opts.dataDir, since, time.Time{})
	})
}

// publisher starts publishing where it is asked for.
func (s *service) publisher(ctx context.Context) (*agent.Publisher, error) {
	if !s.opts.publish {
		return nil, nil
	}
	host, _ := s.env.Hostname()
	name := cmp.Or(s.opts.nodeName, s.env.Getenv("NODE_NAME"), strings.ToLower(host))
	p, err := agent.NewPublisher(agent.PublishOptions{
		Kubeconfig: s.opts.kubeconfig, NodeName: name,
		Log: func(problem string) { s.log.Warn("publishing", "problem", problem) },
	})
	if err != nil {
		return nil, cli.Usage("--publish: "+err.Error(), "name a --kubeconfig, or run in a pod with a service account")
	}
	go p.Run(ctx)
	return p, nil
}

// look looks at the node.
func (s *service) look(ctx context.Context, closely bool) (*agent.Look, error) {
	node, err := s.watch.Observe(ctx, closely)
	if err != nil {
		return nil, err
	}
	r := judge.NewReport(document.Header(s.env, "agent", ""), node.Facts)
	document.Complete(r, node.Problems)
	return &agent.Look{Facts: node.Facts, Report: r}, nil
}

// looked shows systemd and node_exporter the state.
func (s *service) looked(r *checks.Report) {
	status := agent.Headline(r)
	if s.recorder != nil && s.recorder.Problem() != "" {
		status += fmt.Sprintf("; %d records lost: %s", s.recorder.Lost(), s.recorder.Problem())
	}
	notify("STATUS=" + strings.ReplaceAll(status, "\n", " "))
	if s.opts.textfileDir == "" || !s.writing.CompareAndSwap(false, true) {
		return
	}
	go func() { // the disk may hang
		defer s.writing.Store(false)
		if err := s.metrics.WriteTextfile(s.opts.textfileDir); err != nil {
			s.log.Error("--textfile-dir", "error", err)
		}
	}()
}

// capture writes an archive from what was seen. The runtime is not asked again.
func (s *service) capture(ctx context.Context, of *agent.Look, cause string) checks.TakenCapture {
	taken := checks.TakenCapture{At: time.Now().UTC().Truncate(time.Second), Cause: cause}
	fail := func(err error) checks.TakenCapture {
		taken.Error = err.Error()
		return taken
	}
	most, err := s.recorder.Room(ctx, s.opts.dataBytes/2)
	if err != nil {
		return fail(err)
	}
	taken.Path = filepath.Join(recorder.CapturesDir, checks.CaptureName(taken.At, cause))
	path := filepath.Join(s.opts.dataDir, taken.Path)
	// What an agent left that was killed while it packed. Perhaps it took too much memory: the facts take most.
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*-"+cause+".*"+part)) // the pattern is sound
	f, err := bundle.Create(path + part)                                              // it is listed when it is whole
	if err != nil {
		return fail(err)
	}
	in := collect.Input{
		Since: taken.At.Add(-time.Hour), Facts: of.Facts, Report: of.Report, Credentials: s.credentials,
		APIServer: !s.opts.NoAPIServer, Version: cli.Version(), Log: strings.NewReader(""),
		NoDumps: "not asked for (--capture-stacks)", Progress: func(string) {},
		Census: func(context.Context) (any, error) { return nil, errors.New("the runtime was not asked again") },
	}
	if s.opts.Simulate == "" {
		in.Root = s.env.Root
	}
	if len(left) > 0 {
		in.NoFacts = "kdiag agent was killed when it made this archive before"
	}
	series := *of.Facts
	series.Limits = checks.RuntimeLimits()
	in.Relist = judge.NewRelistBenchmark(document.Header(s.env, "relist", ""), &series)
	if s.opts.captureStacks {
		in.NoDumps = ""
		in.Dumps = s.watch.CaptureStacks(ctx)
	}
	_, taken.Bytes, err = archive.Write(ctx, s.env, f, bundle.Zst, most, redact.Standard, in)
	if err := publish(f, path, err); err != nil {
		return fail(err)
	}
	for _, name := range left {
		_ = os.Remove(name) // else it is removed when room is needed
	}
	return taken
}

// part ends the name of an archive that is being made.
const part = ".part"

// publish closes a file that was written, and gives it its name, unless writing it failed, as err says: then it is
// removed.
func publish(f *os.File, path string, err error) error {
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is returned
	}
	return err
}

// reload has the runtime and the kubelet searched anew on SIGHUP.
func (s *service) reload(ctx context.Context) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-hup:
			s.watch.Rediscover()
			s.log.Info("the runtime and the kubelet are searched anew")
		case <-ctx.Done():
			return
		}
	}
}

// watchdog tells systemd that the loop runs, as long as it does.
func (s *service) watchdog(ctx context.Context) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every <= 0 {
		return
	}
	tick := time.NewTicker(every / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if s.agent.Alive() {
				notify(daemon.SdNotifyWatchdog)
			}
		case <-ctx.Done():
			return
		}
	}
}

// notify tells systemd, where it waits for that.
func notify(state string) { _, _ = daemon.SdNotify(false, state) }

// newLog returns the agent's log, on standard error. For journald each line begins with its priority.
func newLog(env cli.Env) *slog.Logger {
	if env.Getenv("JOURNAL_STREAM") == "" {
		return slog.New(slog.NewTextHandler(env.Err, nil))
	}
	return slog.New(slog.NewTextHandler(journald{env.Err}, &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{} // journald has it
			}
			return a
		},
	}))
}

// journald writes a line of slog that begins with its level as sd-daemon(3) has it: <3> for errors. A handler writes
// each line at once.
type journald struct{ io.Writer }

var priorities = strings.NewReplacer("level=ERROR ", "<3>", "level=WARN ", "<4>", "level=INFO ", "<6>")

func (w journald) Write(line []byte) (int, error) {
	level, rest, _ := bytes.Cut(line, []byte(" "))
	_, err := w.Writer.Write(append([]byte(priorities.Replace(string(level)+" ")), rest...))
	return len(line), err
}

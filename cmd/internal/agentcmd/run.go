package agentcmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/agent"
	"github.com/kdiag/kdiag/checks/incident"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/recorder"
	"github.com/kdiag/kdiag/checks/upload"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/diagnosis"
	"github.com/kdiag/kdiag/crictl/deadline"
)

// Little memory is kept between observations, and the limit of the unit leaves room for one archive.
const (
	garbagePercent = 40
	memoryLimit    = 96 << 20 // soft, of Go's heap: half of the limit of the unit and the DaemonSet
)

const (
	// walkEvery is how often all threads, control groups and mounts are read, which takes most of an observation,
	// while nothing is wrong. A container or mount more or less is noticed that much later; a call that hangs is not.
	walkEvery = 2 * time.Minute
	// observeTimeout bounds one observation.
	observeTimeout = 20 * time.Second
	// endTime bounds the end of the agent, whatever hangs.
	endTime = time.Second
	// diskTime bounds each reading of the records and archives, on a disk that may hang.
	diskTime = 5 * time.Second
	// pastTime is how far back the transitions of the agent before count.
	pastTime = 24 * time.Hour
)

// A service is a running agent.
type service struct {
	env         cli.Env
	opts        *options
	log         *slog.Logger
	credentials kubelet.Credentials
	watch       *diagnosis.Watch
	metrics     *agent.Metrics
	recorder    *recorder.Recorder // nil without a folder, or where it cannot be used
	publisher   *agent.Publisher   // nil without --publish
	writing     atomic.Bool        // the text file
	disk        deadline.Guard     // of readings of the data folder
	uploads     *upload.Queue      // nil without --upload
	evidence    context.Context    // of archives and uploads; with --upload it ends after the context of run
	endEvidence context.CancelFunc // nil without --upload

	// observe and capture are observeNode and writeCapture, but in tests. Without a recorder, capture is nil.
	observe func(ctx context.Context, closely bool) (*observation, error)
	capture func(ctx context.Context, of *observation, cause string) checks.TakenCapture

	tracker *incident.Tracker
	busy    chan struct{}        // holds a token while an archive is made
	closely time.Time            // the end of closer observations
	closer  map[string]time.Time // by cause, when closer observations were begun; by the empty one, for slow calls
	slow    bool                 // whether the last observation had slow calls
	past    []checks.Transition  // perhaps not published before a restart
	work    sync.WaitGroup       // the observation and the capture under way

	mu       sync.Mutex
	last     *checks.Report
	observed time.Time
	seen     *observation         // the last one; nil without --upload
	captured map[string]time.Time // by cause, when the last archive was begun
}

func run(ctx context.Context, env cli.Env, opts options) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	debug.SetGCPercent(garbagePercent)
	opts.Timeout, opts.Output = min(opts.Timeout, observeTimeout), "json" // documents, which have problems as facts
	env = opts.Host(env)
	ctx = deadline.WithGuard(ctx, new(deadline.Guard)) // of captures; observations have their own
	s := newService(env, &opts, newLog(env, opts.logFormat, opts.node(env)))
	if err := beIdle(); err != nil {
		s.log.Warn("the priority stays as it is", "error", err)
	}
	var err error
	if s.credentials, err = opts.Credentials(); err != nil {
		return err
	}
	target, err := opts.UploadTarget(env)
	if err != nil {
		return err
	}
	past, err := s.openRecords(ctx)
	if err != nil {
		return err
	}
	if err := s.startPublisher(ctx); err != nil {
		return err
	}
	s.evidence = ctx
	s.startUploads(ctx, target)
	s.watch = diagnosis.NewWatch(ctx, env, &opts.Flags, diagnosis.WatchOptions{
		Interval: opts.interval, Sweep: opts.sweep, Walk: walkEvery, Done: s.metrics.Call,
		Request: diagnosis.Request{
			Command: "agent", Limits: checks.DefaultLimits(),
			Probes: diagnosis.Probes{Credentials: s.credentials, APIServer: !opts.NoAPIServer},
		},
	})
	s.observe = s.observeNode
	if s.recorder != nil {
		s.capture = s.writeCapture
	}
	s.resume(past)
	if err := s.serve(ctx); err != nil {
		return err
	}
	go s.watchdog(ctx)
	go s.reload(ctx)
	notify(daemon.SdNotifyReady)
	s.log.Info("kdiag agent runs", "version", cli.Version(), "interval", opts.interval, "records", opts.dataDir,
		"metrics", opts.listen)
	s.loop(ctx)
	notify(daemon.SdNotifyStopping)
	s.finishUploads()
	return s.end()
}

// end waits for the work under way, and abandons what hangs.
func (s *service) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	if s.wait(ctx) == nil {
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

// openRecords opens the recorder, and returns the history before this start. A disk that cannot be written does not
// keep the agent from watching the node.
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
		s.log.Warn("the earlier records cannot be read", "folder", dir, "error", err)
	}
	return past, nil
}

// history reads the records since a time, within diskTime. A reading that hangs is not begun again.
func (s *service) history(ctx context.Context, since time.Time) (*checks.History, error) {
	return onDisk(ctx, &s.disk, "reading the records", func(ctx context.Context) (*checks.History, error) {
		return recorder.History(ctx, s.opts.dataDir, since, time.Time{})
	})
}

// node is the name of the node object.
func (o *options) node(env cli.Env) string {
	host, _ := env.Hostname() // empty where there is none
	return cmp.Or(o.nodeName, env.Getenv("NODE_NAME"), strings.ToLower(host))
}

// startPublisher starts publishing with --publish.
func (s *service) startPublisher(ctx context.Context) error {
	if !s.opts.publish {
		return nil
	}
	p, err := agent.NewPublisher(agent.PublishOptions{
		Kubeconfig: s.opts.kubeconfig, NodeName: s.opts.node(s.env),
		Log: func(problem string) { s.log.Warn("publishing", "problem", problem) },
	})
	if err != nil {
		return cli.Usage("--publish: "+err.Error(), "name a --kubeconfig, or run in a pod with a service account")
	}
	s.publisher = p
	go p.Run(ctx)
	return nil
}

// reload searches for the runtime and the kubelet again on SIGHUP.
func (s *service) reload(ctx context.Context) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-hup:
			s.watch.Rediscover()
			s.log.Info("the runtime and the kubelet are searched anew")
			s.resumeUploads(ctx)
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
			if s.alive() {
				notify(daemon.SdNotifyWatchdog)
			}
		case <-ctx.Done():
			return
		}
	}
}

// notify tells systemd, where it waits for that.
func notify(state string) { _, _ = daemon.SdNotify(false, state) }

// newLog returns the agent's log: text on standard error, in which each line begins with its priority for journald; or
// JSON on standard output, in the names of OpenTelemetry's log data model and semantic conventions.
func newLog(env cli.Env, format, node string) *slog.Logger {
	if format == "json" {
		names := map[string]string{
			slog.TimeKey: "timestamp", slog.LevelKey: "severity_text", slog.MessageKey: "body", "error": "exception.message",
		}
		return slog.New(slog.NewJSONHandler(env.Out, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Value.Kind() == slog.KindDuration {
					a.Value = slog.StringValue(a.Value.Duration().String())
				}
				a.Key = cmp.Or(names[a.Key], a.Key)
				return a
			},
		})).With("service.name", "kdiag-agent", "service.version", cli.Version(), "k8s.node.name", node)
	}
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

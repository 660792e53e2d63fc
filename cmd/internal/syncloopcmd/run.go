package syncloopcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/target"
	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/plegbench/syncloop"
	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver"
)

// defaultVerbosity shows what most distributions' kubelets show.
const defaultVerbosity = 2

// garbagePercent makes the collector work more often than usual: a syncLoop holds little and lives long, so that
// memory is worth more than the time.
const garbagePercent = 40

// cgroupRoot keeps the pods' cgroups apart from those of a real kubelet, which ends pods below its own that it does
// not know.
const cgroupRoot = "/kdiag-syncloop"

func run(ctx context.Context, env cli.Env, opts options) error {
	if opts.Simulate == "help" {
		return target.PrintScenarios(env.Out)
	}
	if err := opts.complete(env); err != nil {
		return err
	}
	kubelet, noEffect, err := syncloop.LoadKubelet(opts.config, opts.kubelet)
	if err != nil {
		return &cli.UsageError{Problem: err.Error(), Hint: "kdiag syncloop --help lists the flags that are taken; a file is a KubeletConfiguration of kubelet.config.k8s.io/v1beta1"}
	}
	if !opts.cleanup && opts.manifests == "" && opts.kubeconfig == "" && kubelet.StaticPodPath == "" && kubelet.StaticPodURL == "" {
		return &cli.UsageError{
			Problem: "there is no source of pods",
			Hint:    "give --manifests FOLDER, --manifest-url URL or --kubeconfig FILE",
		}
	}
	var screen terminal
	if opts.tui && !opts.cleanup {
		if screen, err = terminalOf(env); err != nil {
			return err
		}
	}
	opts.Timeout, opts.RPCTimeout = cli.DefaultTimeout, cli.DefaultRPCTimeout
	if opts.Simulate == "" || len(opts.kubelet["container-runtime-endpoint"]) > 0 {
		opts.Endpoint = cmp.Or(opts.Endpoint, kubelet.ContainerRuntimeEndpoint)
	}
	t, err := target.Open(ctx, env, &opts.Flags)
	if err != nil {
		return err
	}
	defer t.Close()
	if !t.Simulated() {
		if err := probe(ctx, t.Endpoint.URL); err != nil {
			return err
		}
	}
	if opts.cleanup {
		return cleanup(ctx, env, opts, t.Endpoint.URL)
	}
	debug.SetGCPercent(garbagePercent)
	newest := &logLines{}
	out, closeLog, err := opts.openLog(env, newest)
	if err != nil {
		return err
	}
	defer closeLog()
	verbosity := defaultVerbosity
	if len(opts.kubelet["v"]) > 0 {
		verbosity = int(kubelet.Logging.Verbosity)
	}
	logging := textlogger.NewConfig(textlogger.Output(out), textlogger.Verbosity(verbosity))
	log := textlogger.NewLogger(logging)
	klog.SetLogger(log) // the log of client-go goes there too
	if len(noEffect) > 0 {
		_, _ = fmt.Fprintf(env.Err, "kdiag: settings without effect in a syncloop: %s\n", strings.Join(noEffect, ", "))
	}
	_, _ = fmt.Fprintf(env.Err, "kdiag: node %s on %s (%s)\n", opts.nodeName, t.Endpoint.URL, t.Endpoint.Reason)
	cfg, recorder, err := opts.syncloopConfig(kubelet, t.Endpoint.URL, log)
	if err != nil {
		return err
	}
	defer recorder.Shutdown()
	s, err := syncloop.New(ctx, cfg)
	if err != nil {
		return notStarted(ctx, t, err)
	}
	if a := s.Addr(); a != nil {
		_, _ = fmt.Fprintf(env.Err, "kdiag: serving http://%s: /healthz /pods /metrics /stats/summary /configz /debug/pprof\n", a)
	}
	if opts.tui {
		v := &viewer{term: screen, snapshot: s.Snapshot, log: newest, err: env.Err, color: env.Color("auto")}
		err = v.run(ctx, s.Run)
	} else {
		err = s.Run(ctx)
	}
	if err == nil && !t.Simulated() {
		_, _ = fmt.Fprintf(env.Err, "kdiag: ended; its pods run on until the next syncloop, or kdiag syncloop --cleanup --node-name %s\n", opts.nodeName)
	}
	return err
}

// complete fills in what follows from the host.
func (o *options) complete(env cli.Env) error {
	if o.nodeName == "" {
		host, err := env.Hostname()
		if err != nil {
			return fmt.Errorf("asking for this host's name: %w", err)
		}
		o.nodeName = strings.ToLower(host)
	}
	var err error
	if o.rootDir, err = filepath.Abs(o.rootDir); err != nil {
		return err
	}
	if o.logDir == "" {
		o.logDir = filepath.Join(o.rootDir, "log")
	}
	o.logDir, err = filepath.Abs(o.logDir)
	return err
}

// openLog opens the log. It goes to standard error unless it is given a file. With the view nothing of it may reach
// the screen: newest keeps the lines that the view shows.
func (o *options) openLog(env cli.Env, newest *logLines) (io.Writer, func(), error) {
	if o.logFile == "" {
		if o.tui {
			return newest, func() {}, nil
		}
		return env.Err, func() {}, nil
	}
	f, err := os.OpenFile(o.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, &cli.UsageError{Problem: err.Error(), Hint: "choose another --log-file"}
	}
	var out io.Writer = f
	if o.tui {
		out = io.MultiWriter(f, newest)
	}
	return out, func() { _ = f.Close() }, nil
}

func (o *options) syncloopConfig(
	kubelet *kubeletconfig.Config, endpoint string, log logr.Logger,
) (syncloop.Config, *syncloop.Recorder, error) {
	if kubelet.CgroupRoot == "" {
		kubelet.CgroupRoot = cgroupRoot
	}
	labels, err := nodeLabels(o.labels)
	if err != nil {
		return syncloop.Config{}, nil, err
	}
	cfg := syncloop.Config{
		Endpoint: endpoint, NodeName: o.nodeName, RootDir: o.rootDir, LogDir: o.logDir, Kubelet: kubelet,
		Periods:   syncloop.PeriodsFor(kubelet).Faster(o.speed),
		Manifests: o.manifests, ManifestURL: kubelet.StaticPodURL, ManifestHeader: http.Header(kubelet.StaticPodURLHeader),
		Objects: o.objects, Register: kubelet.RegisterNode, Labels: labels, StatusFile: o.statusFile,
		Version: target.Version(), Address: net.JoinHostPort(kubelet.Address, strconv.Itoa(int(kubelet.Port))), Kmsg: "/dev/kmsg", Log: log,
	}
	if cfg.Manifests == "" {
		cfg.Manifests = kubelet.StaticPodPath
	}
	var events record.EventSink
	if o.kubeconfig != "" {
		c, err := client(o.kubeconfig, kubelet)
		if err != nil {
			return syncloop.Config{}, nil, err
		}
		cfg.Client, events = c, c.Events()
	}
	recorder := syncloop.NewRecorder(events, o.nodeName, log)
	cfg.Recorder = recorder
	return cfg, recorder, nil
}

func client(kubeconfig string, kubelet *kubeletconfig.Config) (*apiserver.Client, error) {
	bad := func(problem string) error {
		return &cli.UsageError{Problem: "--kubeconfig: " + problem, Hint: "kubectl --kubeconfig " + kubeconfig + " get nodes shows whether it works"}
	}
	if _, err := clientcmd.LoadFromFile(kubeconfig); err != nil {
		if unread, ok := errors.AsType[*fs.PathError](err); ok {
			return nil, bad(unread.Error())
		}
		return nil, bad(kubeconfig + " is no kubeconfig") // the error is about types of Go
	}
	rest, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, bad(err.Error())
	}
	rest.ContentType, rest.UserAgent = kubelet.ContentType, "kdiag-syncloop/"+target.Version()
	return apiserver.New(rest, apiserver.Limits{
		QPS: float32(kubelet.KubeAPIQPS), Burst: int(kubelet.KubeAPIBurst),
		EventQPS: float32(kubelet.EventRecordQPS), EventBurst: int(kubelet.EventBurst),
	})
}

func cleanup(ctx context.Context, env cli.Env, opts options, endpoint string) error {
	removed, err := syncloop.Cleanup(ctx, syncloop.CleanupConfig{
		Endpoint: endpoint, NodeName: opts.nodeName, RootDir: opts.rootDir, LogDir: opts.logDir,
	})
	if err != nil {
		return &cli.HintError{Err: err, Code: cli.ExitProblem, Hint: "run it again once the runtime answers: kdiag runtime"}
	}
	text := fmt.Sprintf("removed %d sandboxes and %d containers of node %s", removed.Sandboxes, removed.Containers, opts.nodeName)
	if len(removed.Folders) > 0 {
		text += ", and " + strings.Join(removed.Folders, ", ")
	}
	_, err = fmt.Fprintln(env.Out, text)
	return err
}

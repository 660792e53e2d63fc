// Package syncloopcmd is kdiag syncloop: a small kubelet in the terminal.
package syncloopcmd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/screen"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/plegbench/syncloop"
	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver"
)

type options struct {
	cli.Flags // Endpoint and Simulate

	manifests  string
	objects    string
	kubeconfig string
	nodeName   string
	rootDir    string
	logDir     string
	config     string
	statusFile string
	logFile    string
	speed      float64
	unlimited  bool
	evented    bool
	tui        bool
	trace      string
	html       string // its page
	cleanup    bool
	labels     map[string]string

	kubelet map[string][]string // the kubelet's own flags, by name, as they were given
}

// NewCommand returns the command.
func NewCommand(env cli.Env) *cobra.Command {
	opts := options{kubelet: map[string][]string{}}
	cmd := &cobra.Command{
		Use:   "syncloop",
		Short: "Run pods on a CRI socket with a small kubelet, to watch its loop at work",
		Long: `Run pods on a real runtime through the same machinery as a kubelet: pod sources, syncLoop, pod workers,
PLEG, probes, volumes, eviction, garbage collection, node status. It serves to learn and to test, not to run a
cluster.

The log is the kubelet's own, line for line. Everything that it creates bears the label "io.kdiag.syncloop", and it
touches nothing else on the socket; but a real kubelet on the same socket kills its pods. Interrupted, it leaves its
pods running and takes them over when it is started again. docs/syncloop.md is a course in six lessons,
docs/syncloop-parts.md lists what differs from a kubelet.`,
		Example: `  kdiag syncloop --manifests ./pods --runtime-endpoint /run/containerd/containerd.sock
  kdiag syncloop --manifests ./pods --simulate healthy --tui
  kdiag syncloop --manifests ./pods --trace shop/web
  kdiag syncloop --kubeconfig ~/.kube/config --node-name lab-1
  kdiag syncloop --cleanup`,
		Args:    cobra.NoArgs,
		PreRunE: opts.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), env, opts)
		},
	}
	opts.addFlags(cmd)
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	o.AddEndpoint(cmd)
	fs.StringVar(&o.Simulate, "simulate", "", "run on the embedded runtime in this scenario; help lists them")
	fs.StringVar(&o.manifests, "manifests", "", "folder of pod manifests, or one (the kubelet's --pod-manifest-path)")
	fs.StringVar(&o.objects, "objects", "", "folder of YAML files with the ConfigMaps, Secrets and ServiceAccounts that "+
		"manifests name")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "API server to take pods from and to report to")
	fs.StringVar(&o.nodeName, "node-name", "", "the node's name (default: this host's)")
	fs.StringVar(&o.rootDir, "root-dir", "/var/lib/kdiag-syncloop", "folder for volumes and termination messages")
	fs.StringVar(&o.logDir, "log-dir", "", "folder for the containers' logs (default: log below --root-dir)")
	fs.StringVar(&o.config, "config", "", "KubeletConfiguration file; flags override it")
	fs.StringVar(&o.statusFile, "status-file", "", "keep the pods' statuses in this file, as JSON")
	fs.StringVar(&o.logFile, "log-file", "", "write the log there instead of to standard error")
	fs.Float64Var(&o.speed, "speed", 1, "shorten the kubelet's periods by this factor: with 60, 3m become 3s")
	fs.BoolVar(&o.unlimited, "unlimited-starts", false, "start any number of new pods at a time, as a kubelet does")
	fs.BoolVar(&o.evented, "evented", false, "let PLEG use the runtime's events: --feature-gates EventedPLEG=true")
	fs.BoolVar(&o.tui, "tui", false, "show the loop, PLEG, the pods and their workers in the terminal; q leaves")
	fs.StringVar(&o.trace, "trace", "", "tell the life of this pod, as [NAMESPACE/]NAME, step by step, and nothing else")
	fs.StringVarP(&o.Output, "output", "o", "text", "of --trace: text, or json, one object a line")
	fs.StringVar(&o.html, "html", "", "also write the trace to this file as a page with a lane for each part, at the end")
	fs.BoolVar(&o.cleanup, "cleanup", false, "remove all that a syncloop with this node name left, and end")
	fs.StringToStringVar(&o.labels, "node-labels", nil, "labels to register the node with, as key=value")
	for _, f := range kubeletconfig.Flags() {
		if f.Usage == "" {
			continue
		}
		short := ""
		if f.Name == "v" {
			short = f.Name // -v 4, as a kubelet takes it
		}
		flag := fs.VarPF(kubeletFlag{f.Kind, func(value string) {
			o.kubelet[f.Name] = append(o.kubelet[f.Name], value)
		}}, f.Name, short, f.Usage)
		if f.Kind == kubeletconfig.Switch {
			flag.NoOptDefVal = "true"
		}
	}
	fs.Lookup("v").NoOptDefVal = "4" // -v alone
	scenarios := cobra.FixedCompletions(fake.Names(), cobra.ShellCompDirectiveDefault)
	_ = cmd.RegisterFlagCompletionFunc("simulate", scenarios)
}

// A kubeletFlag is one of the kubelet's flags. Its values are checked together with the configuration file.
type kubeletFlag struct {
	kubeletconfig.Kind
	add func(value string)
}

func (f kubeletFlag) String() string { return "" }

// Set takes a value.
func (f kubeletFlag) Set(value string) error { f.add(value); return nil }

// Type names the kind of the value in the help.
func (f kubeletFlag) Type() string { return f.Kind.String() }

// check reports the first flag with a bad value, before anything is started.
func (o *options) check(cmd *cobra.Command, _ []string) error {
	if err := cmp.Or(
		o.Check(cmd, nil),
		cli.RejectEmpty(cmd, "manifests", "objects", "kubeconfig", "node-name", "root-dir", "log-dir", "config",
			"status-file", "log-file", "container-runtime-endpoint", "trace", "html"),
		cli.Reject(o.Output != "text" && o.Output != "json", fmt.Sprintf("--output %q is not text or json", o.Output),
			"give -o json with --trace, for one object a line"),
		cli.Reject(o.trace == "" && (o.html != "" || o.Output == "json"), "--html and -o json are of a trace",
			"give --trace [NAMESPACE/]NAME too"),
		cli.Reject(strings.Count(o.trace, "/") > 1 || strings.HasPrefix(o.trace, "/") || strings.HasSuffix(o.trace, "/"),
			fmt.Sprintf("--trace %q is not a pod", o.trace), "give NAMESPACE/NAME, or NAME of one in default"),
		cli.Reject(math.IsNaN(o.speed) || o.speed <= 0 || o.speed > 1000,
			fmt.Sprintf("--speed %v is out of range", o.speed), "give a factor from 1 to 1000, such as --speed 60"),
	); err != nil {
		return err
	}
	// A kubelet waits for a missing folder of manifests; here it is probably a typing error.
	for flag, path := range map[string]string{
		"manifests": o.manifests, "objects": o.objects, "kubeconfig": o.kubeconfig,
		"status-file": filepath.Dir(o.statusFile),
	} {
		if _, err := os.Stat(path); path != "" && err != nil {
			return cli.Usage("--"+flag+": "+err.Error(), "name an existing path that you may read")
		}
	}
	if _, err := syncloop.ContainerGC(o.kubelet); err != nil {
		return cli.Usage(err.Error(), "give -1 to keep all, or a duration such as 1m30s")
	}
	if cmd.Flags().Changed("evented") {
		o.kubelet["feature-gates"] = append(o.kubelet["feature-gates"], fmt.Sprintf("EventedPLEG=%t", o.evented))
	}
	return nil
}

func run(ctx context.Context, env cli.Env, opts options) error {
	if err := opts.complete(env); err != nil {
		return err
	}
	kubelet, noEffect, err := syncloop.LoadKubelet(opts.config, opts.kubelet)
	if err != nil {
		return cli.Usage(err.Error(),
			"see kdiag syncloop --help; a file is a KubeletConfiguration of kubelet.config.k8s.io/v1beta1")
	}
	if opts.manifests+opts.kubeconfig+kubelet.StaticPodPath+kubelet.StaticPodURL == "" && !opts.cleanup {
		return cli.Usage("there is no source of pods",
			"give --manifests FOLDER, --manifest-url URL or --kubeconfig FILE")
	}
	var view *screen.Screen
	if opts.tui {
		if view, err = screen.Open(env); err != nil {
			return err
		}
	}
	opts.Timeout, opts.RPCTimeout = cli.DefaultTimeout, cli.DefaultRPCTimeout
	if opts.Simulate == "" || len(opts.kubelet["container-runtime-endpoint"]) > 0 {
		opts.Endpoint = cmp.Or(opts.Endpoint, kubelet.ContainerRuntimeEndpoint)
	}
	t, err := connection.Open(ctx, env, &opts.Flags)
	if err != nil {
		return err
	}
	defer t.Close()
	if !t.Simulated() {
		c, err := connection.Probe(ctx, env, t.Endpoint.URL)
		if c.State == crictl.ConnectDenied {
			err = cli.Usage(t.Endpoint.URL+": permission denied", "run kdiag as root")
		}
		if err != nil {
			return err
		}
	}
	if opts.cleanup {
		return cleanup(ctx, env, opts, t.Endpoint.URL)
	}
	debug.SetGCPercent(40) // a syncLoop holds little and lives long: memory is worth more than the time
	page, err := cli.OpenPage(opts.html)
	if err != nil {
		return err
	}
	defer page.Close()
	newest := &logLines{}
	out, closeLog, err := opts.logTo(env, newest)
	if err != nil {
		return err
	}
	defer closeLog()
	verbosity := 2 // as most distributions set it
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
	tracer := &render.Tracer{Out: env.Out, Format: render.Format(opts.Output), Keep: opts.html != ""}
	if opts.trace != "" {
		cfg.Trace = syncloop.NewTrace(opts.trace, opts.nodeName, tracer.Step)
	}
	s, err := syncloop.New(ctx, cfg)
	if err != nil {
		return notStarted(ctx, t, err)
	}
	if a := s.Addr(); a != nil {
		_, _ = fmt.Fprintf(env.Err, "kdiag: serving %s\n", served(kubelet, cfg.Client != nil, a))
	}
	if opts.tui {
		ctx, leave := context.WithCancel(ctx)
		defer leave()
		style := render.Options{Color: env.Color("auto"), ASCII: env.ASCII()}
		err = view.Show(ctx, leave, func(width, height int) []string {
			v := render.LoopView{Now: time.Now(), Snapshot: s.Snapshot(), Log: newest.newest()}
			return v.Draw(width, height, style)
		}, s.Run)
	} else {
		err = s.Run(ctx)
	}
	if err := opts.writePage(env, page, tracer); err != nil {
		return err
	}
	if err == nil && !t.Simulated() {
		const text = "kdiag: ended; its pods run on. To remove them: kdiag syncloop --cleanup --node-name %s\n"
		_, _ = fmt.Fprintf(env.Err, text, opts.nodeName)
	}
	return err
}

// writePage writes the page of the trace, if one is wanted.
func (o *options) writePage(env cli.Env, page *cli.Destination, tracer *render.Tracer) error {
	if o.html == "" {
		return nil
	}
	var text bytes.Buffer
	head := checks.Header{Host: o.nodeName, KdiagVersion: cli.Version(), GeneratedAt: env.Now()}
	if err := tracer.HTML(&text, head); err != nil {
		return err
	}
	return page.Write(text.Bytes())
}

// logTo returns where the log goes, and what closes it. Beside a trace, which is read by itself, it is printed with -v
// only; nothing of it may reach the screen of --tui, which shows the newest lines.
func (o *options) logTo(env cli.Env, newest io.Writer) (out io.Writer, closeLog func(), err error) {
	out, closeLog = env.Err, func() {}
	if o.tui || o.trace != "" && len(o.kubelet["v"]) == 0 {
		out = io.Discard
	}
	if o.logFile != "" {
		f, err := os.OpenFile(o.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, nil, cli.Usage("--log-file: "+err.Error(), "choose another --log-file")
		}
		out, closeLog = f, func() { _ = f.Close() }
	}
	if o.tui {
		out = io.MultiWriter(out, newest)
	}
	return out, closeLog, nil
}

// served has the server's URL and the paths that it serves.
func served(kubelet *kubeletconfig.Config, api bool, at net.Addr) string {
	scheme := "http"
	if syncloop.Secure(kubelet, api) {
		scheme = "https"
	}
	paths := scheme + "://" + at.String() + ": /healthz /pods /metrics /metrics/resource /stats/summary"
	if kubelet.EnableDebuggingHandlers {
		paths += " /configz /debug/pprof"
	}
	return paths
}

// complete sets the defaults that depend on the host.
func (o *options) complete(env cli.Env) error {
	if o.nodeName == "" {
		host, err := env.Hostname()
		if err != nil {
			return fmt.Errorf("asking for this host's name: %w", err)
		}
		o.nodeName = strings.ToLower(host)
	}
	var err, logErr error
	if o.kubeconfig != "" {
		o.kubelet["kubeconfig"] = []string{o.kubeconfig}
	}
	o.rootDir, err = filepath.Abs(o.rootDir)
	o.logDir, logErr = filepath.Abs(cmp.Or(o.logDir, filepath.Join(o.rootDir, "log")))
	return cmp.Or(err, logErr)
}

func (o *options) syncloopConfig(
	kubelet *kubeletconfig.Config, endpoint string, log logr.Logger,
) (syncloop.Config, *syncloop.Recorder, error) {
	// A real kubelet ends pods below its own cgroup that it does not know.
	kubelet.CgroupRoot = cmp.Or(kubelet.CgroupRoot, "/kdiag-syncloop")
	garbage, err := syncloop.ContainerGC(o.kubelet)
	if err != nil {
		return syncloop.Config{}, nil, cli.Usage(err.Error(), "see kdiag syncloop --help")
	}
	cfg := syncloop.Config{
		Endpoint: endpoint, NodeName: o.nodeName, RootDir: o.rootDir, LogDir: o.logDir, Kubelet: kubelet,
		Periods:   syncloop.PeriodsFor(kubelet).Faster(o.speed),
		Manifests: cmp.Or(o.manifests, kubelet.StaticPodPath), ManifestURL: kubelet.StaticPodURL,
		ManifestHeader: http.Header(kubelet.StaticPodURLHeader), Objects: o.objects, Register: kubelet.RegisterNode,
		Labels: o.labels, StatusFile: o.statusFile, Unlimited: o.unlimited, Version: cli.Version(),
		Kmsg: "/dev/kmsg", ContainerGC: &garbage, Log: log,
		Address: net.JoinHostPort(kubelet.Address, strconv.Itoa(int(kubelet.Port))),
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
	rest, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil { // the error is about types of Go
		return nil, cli.Usage("--kubeconfig: "+kubeconfig+" is not a kubeconfig",
			"kubectl --kubeconfig "+kubeconfig+" get nodes shows whether it works")
	}
	rest.ContentType, rest.UserAgent = kubelet.ContentType, "kdiag-syncloop/"+cli.Version()
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
		return cli.Fail(err, cli.ExitProblem, "run it again when kdiag runtime shows an answer")
	}
	text := fmt.Sprintf("removed %d sandboxes and %d containers of node %s", removed.Sandboxes, removed.Containers,
		opts.nodeName)
	if len(removed.Folders) > 0 {
		text += ", and " + strings.Join(removed.Folders, ", ")
	}
	_, err = fmt.Fprintln(env.Out, text)
	return err
}

// notStarted adds the next step to the error of a syncLoop that could not be started. It asks the runtime once more, to
// distinguish a runtime that does not answer from bad settings.
func notStarted(ctx context.Context, t *connection.Connection, err error) error {
	if ctx.Err() != nil {
		return cli.Fail(err, cli.ExitUnknown, "")
	}
	if _, call := t.Client.Version(ctx); !call.OK() {
		return cli.Fail(err, cli.ExitProblem, "kdiag runtime shows what is wrong with it")
	}
	const hint = "the runtime answers; give other settings, such as another --log-dir or --node-name"
	return cli.Usage(err.Error(), hint)
}

const keptLines = 200 // of the log

// logLines is a writer that keeps the newest lines. It is safe for use by several goroutines; each write is one line or
// more, as klog's are.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(b) {
		l.lines = append(l.lines, string(line))
	}
	l.lines = slices.Clone(l.lines[max(0, len(l.lines)-keptLines):])
	return len(b), nil
}

// newest returns the newest lines, oldest first.
func (l *logLines) newest() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

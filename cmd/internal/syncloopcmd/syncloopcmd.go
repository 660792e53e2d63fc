// Package syncloopcmd is kdiag syncloop: a small kubelet in the terminal.
package syncloopcmd

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/plegbench/syncloop"
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

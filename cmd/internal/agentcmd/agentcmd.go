// Package agentcmd is kdiag agent: the diagnosis as a service, with a recorder.
package agentcmd

import (
	"cmp"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/cmd/internal/archive"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/diagnosis"
	"github.com/kdiag/kdiag/crictl/fake"
)

type options struct {
	cli.Flags
	connection.KubeletFlags
	archive.UploadFlags
	interval, sweep time.Duration
	listen          string
	metrics         string
	dataDir         string
	dataSize        string
	dataBytes       int64
	textfileDir     string
	publish         bool
	logFormat       string
	nodeName        string
	kubeconfig      string
	captureStacks   bool
	serveCaptures   bool
	capturesToken   string
}

// The defaults, of the contract.
const (
	defaultInterval = 30 * time.Second
	defaultSweep    = 5 * time.Minute
	defaultListen   = "127.0.0.1:9478"
	defaultDataSize = "64MiB"
	leastData       = 4 << 20
)

// NewCommand returns kdiag agent.
func NewCommand(env cli.Env) *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the diagnosis as a service: metrics, node condition, and a record of what happened",
		Long: `Look at this node again and again: every --interval both lists, Version, Status, what changed and what takes
little; the status of all objects spread over --sweep-interval. Where something begins, look each 5 s for two minutes,
with everything that kdiag node does. A call that hangs is never made again while it hangs.

What was seen is kept in --data-dir, for kdiag history, also from the disk of a dead node. When a critical cause
begins, the evidence is packed there as kdiag bundle does, before anything restarts; goroutine dumps by signal only with
--capture-stacks.

Metrics are served at --listen (/metrics, /healthz, /report, /history) and written into --textfile-dir. With
--serve-captures the archives are served too: to programs on this host, and to others that know the token in
--captures-token. With --publish the node gets the condition KdiagProblem, the condition
KdiagRepair with the action that ends the cause, and events of what begins and ends.

With --upload each archive is sent away at once, by PUT or POST: to an object store or a plain server. Archives are made
earlier then, when a critical cause is first seen; also, of a node that is not well, when it is about to be removed (a
taint of cluster-autoscaler or Karpenter, or its deletion; with --publish) and when the agent is told to end. What could
not be sent is sent after a restart.

SIGHUP searches the runtime and the kubelet anew, and sends again what a server refused. Runs without a kubelet and
without a runtime, and waits for them.`,
		Example: `  kdiag agent                                    # as root; kdiag history shows what it recorded
  kdiag agent --publish --node-name worker-3     # in a pod, with --host-root /host
  kdiag agent --upload 'https://logs.example.com/{node}/{time}-{cause}.tar.zst' --upload-headers /etc/kdiag/headers
  kdiag agent --listen 0.0.0.0:9478 --textfile-dir /var/lib/node_exporter/textfile_collector`,
		Args:    cobra.NoArgs,
		PreRunE: opts.check,
		RunE:    func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), env, opts) },
	}
	opts.AddRuntime(cmd, fake.Names())
	cli.AddAdvisories(cmd)
	opts.AddKubeletFlags(cmd, "do not ask the API server that the kubelet's kubeconfig names")
	fs := cmd.Flags()
	fs.Lookup("timeout").Usage = "time for one look"
	_ = fs.MarkHidden("fail-on") // nothing fails
	fs.DurationVar(&opts.interval, "interval", defaultInterval, "time between two looks")
	fs.DurationVar(&opts.sweep, "sweep-interval", defaultSweep, "time in which each object is asked about once")
	fs.StringVar(&opts.listen, "listen", defaultListen, "address of the metrics; empty for none")
	fs.StringVar(&opts.metrics, "metrics", "full", "full, or compact: fewer than 60 series, for large fleets")
	fs.StringVar(&opts.dataDir, "data-dir", diagnosis.DefaultDataDir, "folder of the records; empty for none")
	fs.StringVar(&opts.dataSize, "data-size", defaultDataSize, "largest size of the records and archives")
	fs.StringVar(&opts.textfileDir, "textfile-dir", "", "write kdiag.prom for node_exporter into this folder")
	fs.BoolVar(&opts.publish, "publish", false, "keep the node's conditions KdiagProblem and KdiagRepair, and make events")
	fs.StringVar(&opts.logFormat, "log-format", "text", "log to stderr as text, or to stdout as json, one object a line")
	fs.StringVar(&opts.nodeName, "node-name", "", "name of the node object (default: $NODE_NAME, the host's name)")
	fs.StringVar(&opts.kubeconfig, "kubeconfig", "", "how to reach the API server (default: the pod's service account)")
	fs.BoolVar(&opts.captureStacks, "capture-stacks", false,
		"take goroutine dumps for archives too: SIGUSR1 to the runtime's daemon and stuck shims")
	fs.BoolVar(&opts.serveCaptures, "serve-captures", false,
		"serve the archives too, at /captures/ of --listen, for kdiag fleet bundle")
	fs.StringVar(&opts.capturesToken, "captures-token", "",
		"file with the token that requests for archives from other hosts must have (default: they are refused)")
	opts.AddUpload(cmd)
	return cmd
}

func (o *options) check(cmd *cobra.Command, _ []string) error {
	var err error
	o.dataBytes, err = cli.ParseSize("data-size", o.dataSize, leastData)
	_, _, listenErr := net.SplitHostPort(o.listen)
	return cmp.Or(
		err,
		cli.Reject(o.interval < time.Second, "--interval must be at least 1s", "for example --interval 30s"),
		cli.Reject(o.sweep < o.interval, "--sweep-interval must be at least --interval",
			"for example --sweep-interval 5m"),
		cli.OneOf(cmd, "metrics", o.metrics, []string{"full", "compact"}),
		cli.OneOf(cmd, "log-format", o.logFormat, []string{"text", "json"}),
		cli.Reject(o.listen != "" && listenErr != nil, fmt.Sprintf("--listen %q is not a valid address", o.listen),
			"for example --listen "+defaultListen+", or :9478 for all of the host's"),
		cli.Reject(o.serveCaptures && (o.listen == "" || o.dataDir == ""),
			"--serve-captures needs --listen and --data-dir", "give both a value, or leave out --serve-captures"),
		o.CheckUpload(cmd),
		cli.Reject(o.URL != "" && o.dataDir == "", "--upload needs --data-dir", "give --data-dir a value"),
		cli.Reject(o.capturesToken != "" && !o.serveCaptures, "--captures-token is for --serve-captures",
			"add --serve-captures"),
		cli.Reject(!o.publish && o.kubeconfig != "", "--kubeconfig is for --publish", "add --publish"),
		o.checkFolder("textfile-dir", o.textfileDir),
		cli.RejectEmpty(cmd, "node-name", "kubeconfig", "textfile-dir", "captures-token"),
		o.CheckKubeletFlags(cmd), o.Check(cmd, nil),
	)
}

// checkFolder returns an error for a folder that is not there.
func (o *options) checkFolder(flag, name string) error {
	if name == "" {
		return nil
	}
	info, err := cli.Look(name, func() (fs.FileInfo, error) { return os.Stat(name) })
	if err == nil && !info.IsDir() {
		return cli.Usage("--"+flag+" "+name+" is not a folder", "name the folder that node_exporter reads")
	}
	if err != nil {
		return cli.Usage("--"+flag+": "+strings.TrimPrefix(err.Error(), "stat "), "make it, or correct the name")
	}
	return nil
}

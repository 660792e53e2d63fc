package connection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/probes"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/plegbench"
)

// CgroupDriver asks the runtime which cgroup driver the kubelet should use.
func (c *Connection) CgroupDriver(ctx context.Context) (string, error) {
	driver, call := c.Client.CgroupDriver(ctx)
	if call.Code != crictl.Unimplemented {
		return driver, callError(call)
	}
	s, call := c.Client.Config(ctx) // of containerd 1
	if call.OK() && s.CgroupDriver == "" {
		return "", probes.Skip("the runtime does not report its cgroup driver")
	}
	return s.CgroupDriver, callError(call)
}

// Setup asks the runtime for its folders and programs, and the socket for its daemon. It waits no longer than a healthy
// runtime needs: without an answer the usual folders are read.
func (c *Connection) Setup(ctx context.Context) (crictl.RuntimeConfig, error) {
	ctx, cancel := context.WithTimeout(ctx, ProbeTimeout)
	defer cancel()
	s, call := c.Client.Config(ctx)
	if call.OK() {
		s.PID = max(crictl.Probe(ctx, c.Socket).PeerPID, 0)
		if len(s.BinDirs) == 0 {
			s.NetworkFolders(ctx, c.root, c.Socket)
		}
	}
	return s, callError(call)
}

// SandboxImage asks the runtime which image it makes sandboxes of, and whether that is on the node.
func (c *Connection) SandboxImage(ctx context.Context) (facts.SandboxImage, error) {
	name, call := c.Client.SandboxImage(ctx)
	switch {
	case !call.OK():
		return facts.SandboxImage{}, callError(call)
	case name == "":
		return facts.SandboxImage{}, probes.Skip("the runtime does not say which image it makes sandboxes of")
	}
	there, call := c.Client.HasImage(ctx, name)
	return facts.SandboxImage{Name: name, Absent: !there}, callError(call)
}

// callError returns a short error for a call that failed; nil for one that succeeded.
func callError(call crictl.Call) error {
	switch {
	case call.OK():
		return nil
	case call.Hung():
		return errors.New("the runtime does not answer")
	case call.Code == crictl.Unavailable:
		return errors.New("the runtime is not available")
	}
	return fmt.Errorf("%s: %s", call.Method, call.Err)
}

// Hints finds sandboxes and containers without the runtime's help.
func (c *Connection) Hints(ctx context.Context, processes *Scan) []plegbench.Hint {
	var list []plegbench.Hint
	add := func(kind, id, name, namespace, pod, uid string) {
		list = append(list, plegbench.Hint{
			Kind: kind, ID: id, Name: name, Pod: crictl.Pod{Namespace: namespace, Name: pod, UID: uid},
		})
	}
	if c.Simulated() {
		c.server.Running(func(id, name, namespace, pod, uid string) {
			add(plegbench.KindContainer, id, name, namespace, pod, uid)
		})
		return list
	}
	all, _ := processes.Wait(ctx) // an incomplete scan gives fewer hints
	objects, _ := deadline.Run(ctx, "reading the bundles of shims",
		func(ctx context.Context) ([]host.Object, error) { return all.Objects(ctx), nil })
	for _, o := range objects {
		add(o.Kind, o.ID, o.Name, o.Namespace, o.Pod, o.PodUID)
	}
	return list
}

// ScanTimeout bounds the scan of /proc: enough for tens of thousands of processes, and little beside an RPC deadline.
const ScanTimeout = 4 * time.Second

// A Scan is the one scan of /proc of a run, which goes on beside other work.
type Scan struct {
	done       chan struct{} // closed at the end
	population host.Population
	err        error
}

// StartScan starts the scan of the processes below root. A service passes the result of its scan before, else an empty
// one.
func StartScan(ctx context.Context, root string, before host.Population) *Scan {
	var names host.Names
	for _, in := range crictl.Installations() {
		names.Runtimes = append(names.Runtimes, in.Processes...)
		names.Shims = append(names.Shims, in.Shims...)
		names.DataDirs = append(names.DataDirs, in.DataDir)
		names.StateDirs = append(names.StateDirs, in.StateDir)
	}
	s := &Scan{done: make(chan struct{})}
	go func() {
		defer close(s.done)
		ctx, cancel := context.WithTimeout(ctx, ScanTimeout)
		defer cancel()
		s.population, s.err = deadline.Run(ctx, "listing the processes",
			func(ctx context.Context) (host.Population, error) {
				return host.ReadPopulation(ctx, root, names, before)
			})
	}()
	return s
}

// Wait returns the result of the scan, or the error of ctx if that ends first.
func (s *Scan) Wait(ctx context.Context) (host.Population, error) {
	select {
	case <-s.done:
		return s.population, s.err
	case <-ctx.Done():
		return host.Population{}, ctx.Err()
	}
}

// KubeletFlags are the flags for access to the kubelet's server.
type KubeletFlags struct {
	tokenFile   string
	certificate string
	key         string
	NoAPIServer bool // --no-api-server
}

// AddKubeletFlags adds these flags. withoutAPIServer is the usage of --no-api-server.
func (k *KubeletFlags) AddKubeletFlags(cmd *cobra.Command, withoutAPIServer string) {
	fs := cmd.Flags()
	fs.StringVar(&k.tokenFile, "kubelet-token", "", "a file with a bearer token for the kubelet's server")
	fs.StringVar(&k.certificate, "kubelet-cert", "",
		"a client certificate (PEM) for the kubelet's server; default: the node's own")
	fs.StringVar(&k.key, "kubelet-key", "", "the key of --kubelet-cert, when it is not in the same file")
	fs.BoolVar(&k.NoAPIServer, "no-api-server", false, withoutAPIServer)
}

// CheckKubeletFlags returns an error for the first invalid flag. It makes the paths absolute.
func (k *KubeletFlags) CheckKubeletFlags(cmd *cobra.Command) error {
	hint := "see " + cmd.CommandPath() + " --help"
	return cmp.Or(
		cli.RejectEmpty(cmd, "kubelet-token", "kubelet-cert", "kubelet-key"),
		cli.Regular("kubelet-token", &k.tokenFile, hint),
		cli.Regular("kubelet-cert", &k.certificate, hint),
		cli.Regular("kubelet-key", &k.key, hint),
		cli.Reject(k.key != "" && k.certificate == "", "--kubelet-key without --kubelet-cert",
			"name both, or leave both out"),
	)
}

// maxToken bounds a file with a token, in bytes: service account tokens have one to two thousand.
const maxToken = 64 << 10

// Credentials reads the files that the flags name. The error is one of usage.
func (k *KubeletFlags) Credentials() (kubelet.Credentials, error) {
	c := kubelet.Credentials{CertFile: k.certificate, KeyFile: k.key}
	if k.tokenFile == "" {
		return c, nil
	}
	data, err := cli.ReadFile(k.tokenFile, maxToken)
	c.Token = strings.TrimSpace(string(data))
	if err == nil && c.Token == "" {
		err = errors.New("the file is empty")
	}
	if err != nil {
		err = cli.Usage("--kubelet-token: "+err.Error(), "")
	}
	return c, err
}

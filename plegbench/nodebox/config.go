package nodebox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Options say how a private containerd is to be. The zero value is a healthy one without a pod network.
type Options struct {
	// Parent is the folder in which the box makes its own; empty means that of temporary files. A socket's path is at
	// most 107 bytes long, so it must be short.
	Parent string
	// Network gives the runtime a CNI configuration with a stub plugin. Without it the runtime has none and says
	// NetworkReady=false; pods on the host's network run all the same.
	Network bool
	// DisabledPlugins are ids such as PluginCRI.
	DisabledPlugins []string
	// MaxSend and MaxReceive bound gRPC messages on the server's side, in bytes; 0 means containerd's 16 MiB. Images are
	// loaded in messages of 1 MiB, so MaxReceive must be larger.
	MaxSend, MaxReceive int
	// RootSize puts the runtime's root folder on a tmpfs of this many bytes: what is written there costs no disk, and
	// it can be filled. 0 leaves it on the file system of Parent.
	RootSize int64
}

// PluginCRI is the id of containerd's CRI plugin.
const PluginCRI = "io.containerd.grpc.v1.cri"

// layout names what lies where in a box's folder. Everything of the box is below it, except the shims' sockets, which
// containerd puts into /run/containerd/s, cgroups, and what libcni remembers in /var/lib/cni.
type layout struct{ dir string }

func (l layout) path(name string) string { return filepath.Join(l.dir, name) }
func (l layout) socket() string          { return l.path("c.sock") }
func (l layout) config() string          { return l.path("config.toml") }
func (l layout) log() string             { return l.path("containerd.log") }
func (l layout) root() string            { return l.path("root") }
func (l layout) state() string           { return l.path("state") }
func (l layout) images() string          { return l.path("images.tar") }
func (l layout) owner() string           { return l.path("owner") }
func (l layout) hang() string            { return l.path("cni/hang") }

// tasks is where containerd keeps one bundle for each running sandbox and container.
func (l layout) tasks() string { return l.path("state/io.containerd.runtime.v2.task/k8s.io") }

// sandboxes is where the CRI plugin keeps a folder for each sandbox that was not removed.
func (l layout) sandboxes() string { return l.path("root/" + PluginCRI + "/sandboxes") }

// shimSocket is where the shim of a sandbox listens: a folder that no configuration changes, and a digest of the daemon's
// socket, the namespace and the sandbox.
func (l layout) shimSocket(sandboxID string) string {
	sum := sha256.Sum256([]byte(filepath.Join(l.socket(), "k8s.io", sandboxID)))
	return "/run/containerd/s/" + hex.EncodeToString(sum[:])
}

// network is the name of the box's CNI network.
func (l layout) network() string { return filepath.Base(l.dir) }

// cgroup is the parent of the box's pod cgroups. The folder's name makes it the box's own.
func (l layout) cgroup() string { return "/" + filepath.Base(l.dir) }

// maxSocketPath is the longest path of a unix socket, in bytes: sun_path without its NUL.
const maxSocketPath = 107

// write lays out a box's folder.
func (l layout) write(opts Options) error {
	// containerd listens on <socket>.ttrpc as well.
	if n := len(l.socket() + ".ttrpc"); n > maxSocketPath {
		return fmt.Errorf("the socket's path %s.ttrpc has %d bytes, %d are possible", l.socket(), n, maxSocketPath)
	}
	for _, dir := range []string{"root", "state", "opt", "runc", "logs", "cni/bin", "cni/net.d"} {
		if err := os.MkdirAll(l.path(dir), 0o711); err != nil {
			return err
		}
	}
	if err := os.WriteFile(l.config(), []byte(l.toml(opts)), 0o644); err != nil {
		return err
	}
	if !opts.Network {
		return nil
	}
	return l.writeCNI()
}

// toml returns containerd's configuration, version 2, which 2.x turns into its own.
//
// NRI, which 2.x has and 1.6 passes over, would listen on one socket for all daemons of the machine.
// restrict_oom_score_adj is for machines without CAP_SYS_RESOURCE, where no sandbox can lower its score. The streaming
// server takes any free port on the loopback interface.
func (l layout) toml(opts Options) string {
	q := strconv.Quote
	disabled := make([]string, len(opts.DisabledPlugins))
	for i, p := range opts.DisabledPlugins {
		disabled[i] = q(p)
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("version = 2")
	line("root = %s", q(l.root()))
	line("state = %s", q(l.state()))
	line("disabled_plugins = [%s]", strings.Join(disabled, ", "))
	line("[grpc]")
	line("  address = %s", q(l.socket()))
	if opts.MaxSend > 0 {
		line("  max_send_message_size = %d", opts.MaxSend)
	}
	if opts.MaxReceive > 0 {
		line("  max_recv_message_size = %d", opts.MaxReceive)
	}
	line(`[plugins."io.containerd.internal.v1.opt"]`)
	line("  path = %s", q(l.path("opt")))
	line(`[plugins."io.containerd.nri.v1.nri"]`)
	line("  disable = true")
	line(`[plugins.%q]`, PluginCRI)
	line("  restrict_oom_score_adj = true")
	line("  netns_mounts_under_state_dir = true")
	line("  sandbox_image = %s", q(ImagePause))
	line(`  stream_server_address = "127.0.0.1"`)
	line(`  stream_server_port = "0"`)
	line(`  [plugins.%q.cni]`, PluginCRI)
	line("    bin_dir = %s", q(l.path("cni/bin")))
	line("    conf_dir = %s", q(l.path("cni/net.d")))
	line(`  [plugins.%q.containerd.runtimes.runc]`, PluginCRI)
	line(`    runtime_type = "io.containerd.runc.v2"`)
	line(`    [plugins.%q.containerd.runtimes.runc.options]`, PluginCRI)
	line("      Root = %s", q(l.path("runc")))
	return b.String()
}

//go:build e2e

package nodebox

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Options configure a private containerd. The zero value is a healthy one without a pod network.
type Options struct {
	// Parent is the folder in which the box makes its own; empty means that of temporary files. A socket's path is at
	// most 107 bytes long, so it must be short.
	Parent string
	// Network gives the runtime a CNI configuration with a stub plugin. Without it the runtime has none and reports
	// NetworkReady=false; pods on the host's network still run.
	Network bool
	// OCI is the OCI runtime that shims call; empty means runc.
	OCI string
	// RootSize puts the runtime's root folder on a tmpfs of this many bytes: what is written there costs no disk, and
	// it can be filled. 0 leaves it on the file system of Parent.
	RootSize int64
	// Debug has the daemon listen on DebugSocket.
	Debug bool
}

// PluginCRI is the id of containerd's CRI plugin.
const PluginCRI = "io.containerd.grpc.v1.cri"

// A layout contains the paths in a box's folder. Everything of the box is below it, except cgroups, the shims' sockets,
// which containerd puts into /run/containerd/s, and what libcni stores in /var/lib/cni.
type layout struct{ dir string }

func (l layout) path(name string) string { return filepath.Join(l.dir, name) }

// Socket returns the path of the runtime's socket.
func (l layout) Socket() string { return l.path("c.sock") }

// DebugSocket returns the path of the socket at which the daemon serves profiles, where Options.Debug is set.
func (l layout) DebugSocket() string { return l.path("debug.sock") }

// Registries returns the folder in which HOST:PORT/hosts.toml tells the runtime how to reach a registry. It is read
// with each pull.
func (l layout) Registries() string { return l.path("certs.d") }

// Dir returns the box's folder.
func (l layout) Dir() string { return l.dir }

// Endpoint returns the runtime's address, as --runtime-endpoint takes it.
func (l layout) Endpoint() string { return "unix://" + l.Socket() }

// Log returns the path of the daemon's log.
func (l layout) Log() string { return l.path("containerd.log") }

// write creates the content of a box's folder.
func (l layout) write(tb testing.TB, opts Options) {
	tb.Helper()
	for _, dir := range []string{"root", "state", "opt", "runc", "logs", "cni/bin", "cni/net.d"} {
		must(tb, os.MkdirAll(l.path(dir), 0o711))
	}
	must(tb, os.WriteFile(l.path("config.toml"), []byte(l.toml(opts)), 0o644))
	if opts.Network {
		l.writeCNI(tb)
	}
}

// toml returns containerd's configuration, version 2, which 2.x turns into its own.
//
// NRI, which 2.x has and 1.6 passes over, would listen on one socket for all daemons of the machine.
// restrict_oom_score_adj is for machines without CAP_SYS_RESOURCE, where no sandbox can lower its score. The streaming
// server takes any free port on the loopback interface.
func (l layout) toml(opts Options) string {
	debug := ""
	if opts.Debug {
		debug = l.DebugSocket()
	}
	return fmt.Sprintf(`version = 2
root = %[2]q
state = %[3]q
[grpc]
  address = %[4]q
[debug]
  address = %[11]q
[plugins."io.containerd.internal.v1.opt"]
  path = %[5]q
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins.%[1]q]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  sandbox_image = %[6]q
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins.%[1]q.registry]
    config_path = %[12]q
  [plugins.%[1]q.cni]
    bin_dir = %[7]q
    conf_dir = %[8]q
  [plugins.%[1]q.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.%[1]q.containerd.runtimes.runc.options]
      Root = %[9]q
      BinaryName = %[10]q
`, PluginCRI, l.path("root"), l.path("state"), l.Socket(), l.path("opt"), ImagePause,
		l.path("cni/bin"), l.path("cni/net.d"), l.path("runc"), opts.OCI, debug, l.Registries())
}

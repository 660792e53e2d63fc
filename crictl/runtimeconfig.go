package crictl

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/kubeletconfig"
)

// A RuntimeConfig lists the folders and programs of the host that a runtime is configured to use.
type RuntimeConfig struct {
	ConfDir string   // of the CNI configuration
	BinDirs []string // of the CNI plugins
	// PassesOver is set where the runtime takes the first configuration that is whole, and not the first by name.
	PassesOver bool
	Plugins    []string // the CNI plugins that the loaded networks call, the one for the loopback interface among them
	// Programs are the shim and the OCI runtime of the default handler: names, or paths that the configuration sets.
	Programs []string
	// Folders are made by containerd when it starts, in its root and its state folder, and must exist while it runs.
	Folders      []string
	CgroupDriver string // systemd or cgroupfs, of the default handler
	PID          int    // of the runtime's daemon; 0 when not known
}

// Config asks the runtime for its configuration, which containerd has in the details of a verbose Status. That of other
// runtimes is empty.
func (c *Client) Config(ctx context.Context) (RuntimeConfig, Call) {
	return ask(ctx, c, runtimeapi.RuntimeService_Status_FullMethodName, "", &runtimeapi.StatusRequest{Verbose: true},
		func(resp *runtimeapi.StatusResponse) RuntimeConfig {
			return configIn(resp.GetInfo()["config"], resp.GetInfo()["cniconfig"])
		})
}

// configIn reads the configuration of containerd's CRI plugin and of its CNI library (go-cni's ConfigResult), as JSON.
func configIn(config, cni string) (s RuntimeConfig) {
	var c struct {
		ContainerdRootDir, StateDir string // the second is the CRI plugin's
		Containerd                  struct {
			DefaultRuntimeName string
			Runtimes           map[string]struct {
				RuntimeType, RuntimePath string
				Options                  struct {
					BinaryName    string
					SystemdCgroup bool
				}
			}
		}
	}
	var n struct {
		PluginDirs    []string
		PluginConfDir string
		Networks      []struct {
			Config struct {
				Plugins []struct {
					Network struct {
						Type string
						IPAM struct{ Type string }
					}
				}
			}
		}
	}
	if json.Unmarshal([]byte(config), &c) == nil {
		if c.ContainerdRootDir != "" && c.StateDir != "" {
			s.Folders = []string{
				filepath.Join(c.ContainerdRootDir, "io.containerd.metadata.v1.bolt"),
				filepath.Join(filepath.Dir(c.StateDir), "io.containerd.runtime.v2.task"),
			}
		}
		h, known := c.Containerd.Runtimes[c.Containerd.DefaultRuntimeName]
		if known {
			s.CgroupDriver = "cgroupfs"
		}
		if h.Options.SystemdCgroup {
			s.CgroupDriver = "systemd"
		}
		// io.containerd.runc.v2 is run by containerd-shim-runc-v2.
		if parts := strings.Split(h.RuntimeType, "."); known && len(parts) == 4 {
			s.Programs = []string{cmp.Or(h.RuntimePath, "containerd-shim-"+parts[2]+"-"+parts[3])}
			if parts[2] == "runc" {
				s.Programs = append(s.Programs, cmp.Or(h.Options.BinaryName, "runc"))
			}
		}
	}
	if json.Unmarshal([]byte(cni), &n) != nil {
		return s
	}
	s.ConfDir, s.BinDirs = n.PluginConfDir, n.PluginDirs
	for _, network := range n.Networks {
		for _, p := range network.Config.Plugins {
			for _, plugin := range []string{p.Network.Type, p.Network.IPAM.Type} {
				if plugin != "" && !slices.Contains(s.Plugins, plugin) {
					s.Plugins = append(s.Plugins, plugin)
				}
			}
		}
	}
	return s
}

// NetworkFolders adds the folders of the CNI configuration and its plugins that a daemon other than containerd uses, by
// c.PID: CRI-O has its whole configuration, as TOML, at /config of its own socket (server/inspect.go), and cri-dockerd
// has flags. The socket is as this process sees it, root the host's root directory.
func (c *RuntimeConfig) NetworkFolders(ctx context.Context, root, socket string) {
	p, _ := readProcess(root, c.PID, func(comm string) bool { return comm == "crio" || comm == "cri-dockerd" })
	switch p.name {
	case "crio":
		text, _ := askHTTP(ctx, socket, "/config") // without an answer the usual folders are read
		c.ConfDir, c.BinDirs = foldersOfCRIO(text)
		c.PassesOver = true
	case "cri-dockerd":
		flags := kubeletconfig.ParseFlags(p.argv[1:], "cni-conf-dir", "cni-bin-dir")
		c.ConfDir = cmp.Or(kubeletconfig.Last(flags, "cni-conf-dir"), "/etc/cni/net.d")
		c.PassesOver = true
		c.BinDirs = strings.Split(cmp.Or(kubeletconfig.Last(flags, "cni-bin-dir"), "/opt/cni/bin"), ",")
	}
}

// foldersOfCRIO reads two keys of CRI-O's configuration, whose strings and lists are written as in JSON:
//
//	network_dir = "/etc/cni/net.d"
//	plugin_dirs = ["/opt/cni/bin"]
func foldersOfCRIO(text string) (conf string, bin []string) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, " = ")
		var err error
		switch strings.TrimSpace(key) {
		case "network_dir":
			err = json.Unmarshal([]byte(value), &conf)
		case "plugin_dirs":
			err = json.Unmarshal([]byte(value), &bin)
		}
		if err != nil {
			return "", nil
		}
	}
	return conf, bin
}

// askHTTP gets up to 1 MiB from a path of a server on a unix socket.
func askHTTP(ctx context.Context, socket, path string) (string, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return dialUnix(ctx, pathOf(socket)) }
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return string(text), err
}

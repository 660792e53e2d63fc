package crictl

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A RuntimeConfig lists the folders and programs of the host that a runtime is configured to use.
type RuntimeConfig struct {
	ConfDir string   // of the CNI configuration
	BinDirs []string // of the CNI plugins
	Plugins []string // the CNI plugins that the loaded networks call, the one for the loopback interface among them
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

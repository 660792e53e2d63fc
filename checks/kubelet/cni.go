package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// usualConfDir is where the network configuration is unless a distribution has another place.
const usualConfDir = "/etc/cni/net.d"

// confDirs are where the network configuration may be: of OpenShift, whose podman leaves other files in the
// usual folder; in the usual folder; of K3s and RKE2, and of MicroK8s, which give their containerd one of their own.
func confDirs() []string {
	return []string{
		"/etc/kubernetes/cni/net.d", usualConfDir, defaultK3sDir + "/agent/etc/cni/net.d",
		"/var/snap/microk8s/current/args/cni-network",
	}
}

// pluginDirs are where plugins are: containerd's default, GKE's, OpenShift's, the folders of distributions, and of K3s,
// RKE2 and MicroK8s.
func pluginDirs() []string {
	return []string{
		"/opt/cni/bin", "/home/kubernetes/bin", "/var/lib/cni/bin", "/usr/lib/cni", "/usr/libexec/cni",
		"/usr/local/lib/cni", defaultK3sDir + "/data/cni", defaultK3sDir + "/data/current/bin",
		"/var/snap/microk8s/current/opt/cni/bin",
	}
}

// ReadCNI loads the network configuration as containerd does: of all files in the folder whose names end in .conf,
// .conflist or .json the first by name, and if that one is broken none (go-cni's loadFromConfDir; CRI-O passes over
// broken files, as setup says). The folders are those that the runtime has configured. Where it reports none, the
// folder of the configuration is the first of the well-known ones that holds a file, those of plugins are all
// well-known ones that exist, and where none does, no plugin is called missing.
func ReadCNI(ctx context.Context, root string, setup crictl.RuntimeConfig, s Settings) (CNI, error) {
	host := crictl.SeenBy(root, setup.PID)
	c := CNI{ConfDir: usualConfDir, BinDirs: setup.BinDirs, Configured: len(setup.BinDirs) > 0}
	c.Apart, c.MountsStay = apart(root, setup.PID, s.PID), mountsStay(root, setup.PID, s)
	c.lookFor(host, setup.Plugins)
	c.Programs = missingPrograms(host, root, setup)
	for _, dir := range setup.Folders {
		if isAbsent(host, dir) && isAbsent(host, filepath.Dir(dir)) {
			dir = filepath.Dir(dir)
		}
		if isAbsent(host, dir) {
			c.Folders = append(c.Folders, oneLine(dir))
		}
	}
	dirs := confDirs()
	if setup.ConfDir != "" {
		c.ConfDir, dirs = setup.ConfDir, []string{setup.ConfDir}
	}
	var names []string
	for _, dir := range dirs {
		found, err := confFiles(host, dir)
		if err != nil && err.Error() != crictl.Absent {
			return c, fmt.Errorf("reading network configurations: %s %w", oneLine(dir), err)
		}
		if len(found) > 0 {
			c.ConfDir, names = dir, found
			break
		}
	}
	if !c.Configured {
		for _, dir := range pluginDirs() {
			if info, err := host.Stat(dir); err == nil && info.IsDir() {
				c.BinDirs = append(c.BinDirs, dir)
			}
		}
	}
	if len(names) == 0 {
		c.Problem = "there is no network configuration in " + strings.Join(dirs, ", ")
		return c, ctx.Err()
	}
	if setup.PassesOver {
		names = c.wholeFirst(host, names)
	}
	c.File = oneLine(names[0])
	for _, other := range names[1:] {
		c.Others = append(c.Others, oneLine(other))
	}
	data, err := host.Read(filepath.Join(c.ConfDir, names[0]))
	if err != nil {
		c.Problem = c.File + " " + err.Error()
	} else if list, err := parseNetwork(names[0], data); err != nil {
		c.Problem = c.File + ": " + oneLine(err.Error())
	} else {
		c.fill(host, list)
		c.lookForBridge(host, root, setup.PID, list)
		c.IPv6Off = rangeV6.Match(list.Bytes) && setup.PID > 0 && lacksIPv6(root, setup.PID)
	}
	return c, ctx.Err()
}

// resultsDir is where CNI's library keeps the result of each sandbox's ADD until its DEL (libcni's CacheDir), in files
// NETWORK-ID-INTERFACE. maxResults bounds how many are read: as many as a full node has.
const (
	resultsDir = "/var/lib/cni/results"
	maxResults = 1000
)

// lookForBridge notes the bridge of a network of the plugin bridge, if it is not among the interfaces of the runtime,
// and the sandboxes whose results name it. The plugin makes it again with the next sandbox, and leaves the others cut
// off: the interfaces of their pairs have no master.
func (c *CNI) lookForBridge(host crictl.HostFiles, root string, pid int, list *libcni.NetworkConfigList) {
	i := slices.IndexFunc(list.Plugins, func(p *libcni.PluginConfig) bool { return p.Network.Type == "bridge" })
	if i < 0 || pid <= 0 {
		return
	}
	conf := struct{ Bridge string }{"cni0"} // defaultBrName in plugins/main/bridge
	interfaces, err := os.ReadFile(filepath.Join(root, "proc", strconv.Itoa(pid), "net/dev"))
	if err != nil || json.Unmarshal(list.Plugins[i].Bytes, &conf) != nil {
		return
	}
	there, loose := false, map[string]bool{}
	for line := range strings.Lines(string(interfaces)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		there = there || name == conf.Bridge
		link := filepath.Join(root, "sys/class/net", name)
		if _, err := os.Lstat(link); err == nil && strings.HasPrefix(name, "veth") {
			if _, err = os.Lstat(filepath.Join(link, "master")); err != nil {
				loose[name] = true
			}
		}
	}
	if there && len(loose) == 0 {
		return
	}
	c.Loose, c.LostBridge = there, oneLine(conf.Bridge)
	files, _ := host.List(resultsDir) // without it no sandbox is known to be attached
	for _, file := range files[:min(len(files), maxResults)] {
		var r struct {
			ContainerID string
			Result      struct {
				Interfaces []struct{ Name, Sandbox string }
			}
		}
		data, err := host.Read(filepath.Join(resultsDir, file.Name()))
		if err != nil || json.Unmarshal(data, &r) != nil {
			continue
		}
		attached, cut := false, !c.Loose
		for _, iface := range r.Result.Interfaces {
			attached = attached || iface.Name == conf.Bridge && iface.Sandbox == ""
			cut = cut || loose[iface.Name] && iface.Sandbox == ""
		}
		if attached && cut {
			c.CutOff = append(c.CutOff, oneLine(r.ContainerID))
		}
	}
}

// rangeV6 finds a range of IPv6 addresses in a configuration.
var rangeV6 = lazyregexp.New(`"subnet"\s*:\s*"[0-9A-Fa-f]*:`)

// lacksIPv6 reports whether a process sees no IPv6 address, not even that of lo, or new interfaces get none.
func lacksIPv6(root string, pid int) bool {
	proc := filepath.Join(root, "proc")
	all, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "net/if_inet6"))
	off, _ := os.ReadFile(filepath.Join(proc, "sys/net/ipv6/conf/default/disable_ipv6"))
	return err == nil && len(all) == 0 || strings.TrimSpace(string(off)) == "1"
}

// wholeFirst returns names with the first file that can be used, with its plugins, in front.
func (c *CNI) wholeFirst(host crictl.HostFiles, names []string) []string {
	whole := slices.IndexFunc(names, func(name string) bool {
		data, err := host.Read(filepath.Join(c.ConfDir, name))
		list, errParse := parseNetwork(name, data)
		if err != nil || errParse != nil {
			return false
		}
		one := CNI{BinDirs: c.BinDirs}
		one.fill(host, list)
		return len(one.Missing) == 0
	})
	if whole <= 0 {
		return names
	}
	return slices.Concat(names[whole:whole+1], names[:whole], names[whole+1:])
}

// confFiles lists the files with a configuration in a folder, by name.
func confFiles(host crictl.HostFiles, dir string) ([]string, error) {
	entries, err := host.List(dir)
	var names []string
	for _, e := range entries {
		known := slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name()))
		if known && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// parseNetwork reads a file: a list of plugins, or, unless it is named .conflist, a single plugin.
func parseNetwork(name string, data []byte) (*libcni.NetworkConfigList, error) {
	if strings.HasSuffix(name, ".conflist") {
		list, err := libcni.NetworkConfFromBytes(data)
		if err == nil && len(list.Plugins) == 0 {
			err = errors.New("names no plugin")
		}
		return list, err
	}
	plugin, err := libcni.NetworkPluginConfFromBytes(data)
	if err != nil {
		return nil, err
	}
	return &libcni.NetworkConfigList{Name: plugin.Network.Name, Plugins: []*libcni.PluginConfig{plugin}}, nil
}

// fill names the plugins, those for addresses (ipam) after the ones that call them, and looks for their programs.
func (c *CNI) fill(host crictl.HostFiles, list *libcni.NetworkConfigList) {
	c.Name = oneLine(list.Name)
	for _, p := range list.Plugins {
		for _, plugin := range []string{p.Network.Type, p.Network.IPAM.Type} {
			if plugin == "" || slices.Contains(c.Plugins, oneLine(plugin)) {
				continue
			}
			c.Plugins = append(c.Plugins, oneLine(plugin))
			c.lookFor(host, []string{plugin})
		}
	}
}

// lookFor notes which of the plugins have no program.
func (c *CNI) lookFor(host crictl.HostFiles, plugins []string) {
	for _, plugin := range plugins {
		if len(c.BinDirs) > 0 && !slices.Contains(c.Missing, oneLine(plugin)) && !c.installed(host, plugin) {
			c.Missing = append(c.Missing, oneLine(plugin))
		}
	}
}

// missingPrograms returns the runtime's programs that are not there. It looks for a name in the PATH of the
// daemon's environment, of which nothing else is kept, and beside the daemon's own program.
func missingPrograms(host crictl.HostFiles, root string, setup crictl.RuntimeConfig) (missing []string) {
	proc := filepath.Join(root, "proc", strconv.Itoa(setup.PID))
	environ, err := os.ReadFile(filepath.Join(proc, "environ"))
	exe, errExe := os.Readlink(filepath.Join(proc, "exe"))
	if setup.PID == 0 || err != nil || errExe != nil {
		return nil // not known
	}
	dirs := []string{filepath.Dir(exe)}
	for kv := range strings.SplitSeq(string(environ), "\x00") {
		if list, ok := strings.CutPrefix(kv, "PATH="); ok {
			dirs = append(dirs, filepath.SplitList(list)...)
		}
	}
	for _, program := range setup.Programs {
		c := CNI{BinDirs: dirs}
		if dir, name := filepath.Split(program); dir != "" {
			c.BinDirs, program = []string{dir}, name
		}
		if !c.installed(host, program) {
			missing = append(missing, oneLine(program))
		}
	}
	return missing
}

// isAbsent reports whether a file is known not to exist.
func isAbsent(host crictl.HostFiles, name string) bool {
	_, err := host.Stat(name)
	return err != nil && err.Error() == crictl.Absent
}

// installed reports whether a plugin's program is there and may be run.
func (c *CNI) installed(host crictl.HostFiles, plugin string) bool {
	return slices.ContainsFunc(c.BinDirs, func(dir string) bool {
		info, err := host.Stat(filepath.Join(dir, plugin))
		return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
	})
}

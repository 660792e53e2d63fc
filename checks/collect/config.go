package collect

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// mostConfigs bounds the files that are taken of one folder. A node has a handful.
const mostConfigs = 64

// kubeletConfig adds the configuration that the kubelet runs with where its server lets kdiag in, else its files.
func kubeletConfig(ctx context.Context, in *Input, to *files) error {
	const main = "config/kubelet.yaml"
	settings := in.Facts.Node.Settings
	s := settings.Value
	if s.PID == 0 {
		return absence(settings.Why())
	}
	// The kubelet logs each request that it refuses: a credential that was refused is not tried again.
	if c := in.Facts.Node.Health.Value.Credential; c != "" && c != "read-only port" {
		doc, err := kubelet.Configz(ctx, in.Root, s, in.Credentials)
		if err == nil {
			doc.JSON, err = yaml.JSONToYAML(doc.JSON)
		}
		if err == nil {
			to.add(main, doc.URL, redact.YAML, bytes.NewReader(doc.JSON))
			return nil
		}
		to.lacks(main, fmt.Errorf("/configz: %w", err))
	}
	if len(s.Files) == 0 {
		return absence("the kubelet has no configuration file; its flags are in host/processes.txt")
	}
	seen := crictl.SeenBy(in.Root, s.PID)
	to.addFile(main, seen, s.Files[0], redact.YAML)
	to.addFiles("config/kubelet.d/", seen, s.Files[1:], redact.YAML)
	return nil
}

// addFiles adds files of the host to a folder of the archive.
func (f *files) addFiles(folder string, seen crictl.HostFiles, from []string, format redact.Format) {
	for _, name := range from {
		f.addFile(folder+path.Base(name), seen, name, format)
	}
}

// A daemon is the runtime that was asked, and where its configuration is.
type daemon struct {
	files  crictl.HostFiles // as it sees them
	config string           // its file: that on its command line, else the default of its program
	folder string           // of more; empty where the file itself names them
}

// daemonOf returns the runtime that was asked: the process that listens on the socket, else the only one.
func daemonOf(in *Input) (daemon, bool) {
	runtimes := slices.DeleteFunc(slices.Clone(in.Facts.Processes), func(p host.Process) bool {
		return p.Role != host.RoleRuntime
	})
	m, socket := in.Facts.Measurement, strings.TrimPrefix(in.Facts.Runtime.Endpoint, "unix://")
	i := slices.IndexFunc(runtimes, func(p host.Process) bool {
		return m != nil && m.Connect.PeerPID == p.PID || slices.Contains(p.Sockets, socket)
	})
	if i < 0 && len(runtimes) == 1 {
		i = 0
	}
	if i < 0 {
		return daemon{files: crictl.SeenBy(in.Root, 0)}, false
	}
	p := runtimes[i]
	d := daemon{files: crictl.SeenBy(in.Root, p.PID), config: "/etc/containerd/config.toml"}
	switch {
	case p.Name == "crio":
		d.config, d.folder = "/etc/crio/crio.conf", "/etc/crio/crio.conf.d"
	case strings.HasSuffix(p.Name, "dockerd"):
		d.config = "/etc/docker/daemon.json"
	}
	d.config = cmp.Or(p.Config, d.config)
	return d, true
}

// text returns the configuration file; empty where it cannot be read.
func (d *daemon) text() string {
	text, _ := readFile(d.files, d.config, mib)
	return string(text)
}

// runtimeConfig adds the configuration of the runtime that was asked, with the files that it includes.
func runtimeConfig(_ context.Context, in *Input, to *files) error {
	d, ok := daemonOf(in)
	if !ok {
		return absence("which process is the runtime is not known")
	}
	to.addFile("config/runtime"+path.Ext(d.config), d.files, d.config, redact.Text)
	included := imported(&d, d.text())
	var err error
	if d.folder != "" {
		included, err = list(d.files, d.folder, "*")
	}
	to.addFiles("config/runtime.d/", d.files, included, redact.Text)
	return err
}

// imports matches the list of files that containerd's configuration includes. It may span lines.
var (
	imports = lazyregexp.New(`(?m)^\s*imports\s*=\s*\[([^\]]*)\]`)
	quoted  = lazyregexp.New(`["']([^"']+)["']`)
)

// imported returns the files that a configuration of containerd imports, patterns resolved.
func imported(d *daemon, text string) (all []string) {
	found := imports.FindStringSubmatch(text)
	if found == nil {
		return nil
	}
	for _, q := range quoted.FindAllStringSubmatch(found[1], mostConfigs) {
		pattern := q[1]
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(d.config), pattern)
		}
		paths, _ := list(d.files, filepath.Dir(pattern), filepath.Base(pattern))
		all = append(all, paths...)
	}
	return all
}

// cniDir matches the folder of network configurations in the configuration of containerd, and of CRI-O.
var cniDir = lazyregexp.New(`(?m)^\s*(?:conf_dir|network_dir)\s*=\s*["']([^"']+)["']`)

// cniConfig adds the network configurations. Kubeconfigs that plugins keep beside them are left on the node.
func cniConfig(_ context.Context, in *Input, to *files) error {
	seen := in.Facts.Node.CNI.Value
	d, _ := daemonOf(in)
	dir := seen.ConfDir
	if !seen.Configured { // a runtime that hangs could not be asked
		if m := cniDir.FindStringSubmatch(d.text()); m != nil {
			dir = m[1]
		}
	}
	if dir == "" {
		return absence(in.Facts.Node.CNI.Why())
	}
	for _, pattern := range []string{"*.conf", "*.conflist", "*.json"} {
		paths, err := list(d.files, dir, pattern)
		if err != nil {
			return err
		}
		to.addFiles("config/cni/", d.files, paths, redact.JSON)
	}
	if len(to.all)+len(to.lacked) == 0 {
		return absence(dir + " holds no configuration")
	}
	return nil
}

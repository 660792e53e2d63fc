package crictl

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// kubeletFiles are where kubeadm and the packages put what the kubelet of a node is told on its command line, in the order in which
// its unit joins them (the drop-in 10-kubeadm.conf of the kubelet's package): a later one wins.
func kubeletFiles() []string {
	return []string{"/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet"}
}

// kubeletConfigFile is where kubeadm writes the kubelet's configuration.
const kubeletConfigFile = "/var/lib/kubelet/config.yaml"

// fromLeft takes what is left of a kubelet or a runtime where neither runs: a kubelet that finds no runtime ends itself, and containerd
// takes its socket away when it ends. The shims go on.
func (d *discovery) fromLeft(ctx context.Context) bool {
	e, err := bounded(ctx, lookTimeout, func() (Endpoint, error) { return d.left(ctx), nil })
	if err != nil {
		return d.reject(SourceKubelet, kubeletConfigFile, reasonOf(err))
	}
	return e.URL != "" && d.use(e)
}

func (d *discovery) left(ctx context.Context) Endpoint {
	read := func(name string) (data []byte) {
		_ = InRoot(d.root, name, func(path string) (err error) {
			data, err = readFile(path)
			return err
		})
		return data
	}
	var value, from string
	if c, err := parseKubeletConfig(read(kubeletConfigFile)); err == nil && c.endpoint != "" {
		value, from = c.endpoint, "containerRuntimeEndpoint in "+kubeletConfigFile
	}
	for _, name := range kubeletFiles() {
		if flag := last(parseFlags(envArgs(string(read(name))), "container-runtime-endpoint")["container-runtime-endpoint"]); flag != "" {
			value, from = flag, "--container-runtime-endpoint in "+name
		}
	}
	if url, err := ParseEndpoint(value); err == nil {
		return Endpoint{URL: url, Source: SourceKubelet, Reason: from + ", of a kubelet that does not run"}
	}
	url, shims := shimAddress(ctx, d.root)
	if shims == 0 {
		return Endpoint{}
	}
	return Endpoint{
		URL: url, Source: SourceWellKnown,
		Reason: fmt.Sprintf("the address that %d running shims of Kubernetes were given; no socket exists where it is known to be", shims),
	}
}

// envArgs are the words of the values in a file of environment variables: KUBELET_KUBEADM_ARGS="--a=b --c=d".
func envArgs(text string) (args []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if _, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			args = append(args, strings.Fields(strings.Trim(value, `"'`))...)
		}
	}
	return args
}

// shimAddress returns the address of the daemon for which most of containerd's shims of Kubernetes run, and how many those are. It is
// on their command line (-namespace k8s.io -address /run/containerd/containerd.sock); those of other users do not count.
func shimAddress(ctx context.Context, root string) (url string, shims int) {
	entries, err := os.ReadDir(filepath.Join(root, "proc"))
	if err != nil {
		return "", 0
	}
	counts := map[string]int{}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil || ctx.Err() != nil {
			continue
		}
		dir := filepath.Join(root, "proc", e.Name())
		if comm, err := readUpTo(filepath.Join(dir, "comm"), 256); err != nil || !strings.HasPrefix(string(comm), "containerd-shim") {
			continue
		}
		if status, err := readUpTo(filepath.Join(dir, "status"), 64<<10); err != nil || alienUser(status, os.Geteuid()) != "" {
			continue
		}
		cmdline, err := readUpTo(filepath.Join(dir, "cmdline"), maxCmdline)
		args := splitCmdline(cmdline)
		i, j := slices.Index(args, "-namespace"), slices.Index(args, "-address")
		if err != nil || i < 0 || j < 0 || max(i, j)+1 >= len(args) || args[i+1] != "k8s.io" {
			continue
		}
		if u, err := ParseEndpoint(args[j+1]); err == nil {
			counts[u]++
		}
	}
	for u, n := range counts {
		if n > shims || n == shims && u < url {
			url, shims = u, n
		}
	}
	return url, shims
}

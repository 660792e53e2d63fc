package crictl

import (
	"errors"
	"slices"
	"strings"
)

// A KubeletProcess is a running kubelet, as far as its arguments say what it reads. The arguments themselves stay here.
type KubeletProcess struct {
	root    string
	process kubeletProcess
}

// OpenKubelet reads the arguments of a process that is, or contains, a kubelet. Root is the host's root as we see it.
func OpenKubelet(root string, pid int) (*KubeletProcess, error) {
	p, ok := readKubeletProcess(root, pid)
	if !ok {
		return nil, errors.New("no kubelet runs under this number, or its arguments may not be read")
	}
	return &KubeletProcess{root, p}, nil
}

// Name is the name of the process: kubelet, k3s-server, ...
func (k *KubeletProcess) Name() string { return k.process.name }

// Problem says why not all of its arguments are known; empty when they are.
func (k *KubeletProcess) Problem() string { return k.process.problem }

// Socket is the endpoint that a distribution gives to the kubelet in its process; empty for a kubelet proper.
func (k *KubeletProcess) Socket() string {
	if k.process.kind.socket == "" {
		return ""
	}
	return unixScheme + k.process.kind.socket
}

// Flags returns every value of the named long flags, in order. Switches are flags that need no value, for true, and never
// take the next argument as theirs.
func (k *KubeletProcess) Flags(switches []string, names ...string) map[string][]string {
	args := slices.Clone(k.process.args)
	for i, arg := range args {
		if name, ok := strings.CutPrefix(arg, "--"); ok && slices.Contains(switches, strings.ReplaceAll(name, "_", "-")) {
			args[i] += "=true"
		}
	}
	return parseFlags(args, append(names, switches...)...)
}

// DropIns lists a --config-dir in the kubelet's order, as the kubelet sees it: all files that end in .conf, directories
// below included, by name.
func (k *KubeletProcess) DropIns(dir string) ([]string, error) {
	return dropIns(k.root, k.process.pid, dir)
}

package crictl

import (
	"path/filepath"
	"slices"
	"strings"
)

// An embedding says how a kubelet sits in its process.
type embedding struct {
	rank   int    // 0 for a kubelet proper; higher ones are taken only when there is none of a lower
	socket string // endpoint that the distribution gives to its kubelet; empty for a kubelet proper
}

// mayBeKubelet reports whether a process of this name is worth a look at its arguments. The kernel cuts names at 15
// bytes.
func mayBeKubelet(comm string) bool {
	comm = strings.TrimSpace(comm)
	for _, part := range []string{"kubelet", "hyperkube", "kubelite"} {
		if strings.Contains(comm, part) {
			return true
		}
	}
	for _, prefix := range []string{"k3s", "rke2", "k0s"} {
		if comm == prefix || strings.HasPrefix(comm, prefix+"-") {
			return true
		}
	}
	return false
}

// kubeletArgs decides by name and arguments whether a process is or contains a kubelet, and returns the kubelet's own
// arguments. RKE2 and k0s start a kubelet as a child of theirs, which is preferred when it is there.
func kubeletArgs(comm string, argv []string) (embedding, []string, bool) {
	if len(argv) == 0 {
		return embedding{}, nil, false // a zombie, or a kernel thread of that name
	}
	program := filepath.Base(argv[0])
	args := argv[1:]
	verb := ""
	if i := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") }); i >= 0 {
		verb = args[i]
	}
	switch {
	case program == "kubelet" || comm == "kubelet":
		return embedding{}, args, true
	case program == "hyperkube" && (verb == "kubelet" || verb == "/kubelet"):
		return embedding{}, args[slices.Index(args, verb)+1:], true
	case program == "kubelite" || comm == "kubelite":
		return embedding{rank: 1, socket: "/var/snap/microk8s/common/run/containerd.sock"}, args, true
	case isHost(comm, program, "k3s") && !slices.Contains(args, "--disable-agent"):
		socket := "/run/k3s/containerd/containerd.sock"
		if slices.Contains(args, "--docker") {
			socket = "/run/k3s/cri-dockerd/cri-dockerd.sock"
		}
		return serverOrAgent(comm, verb, args, 1, socket)
	case isHost(comm, program, "rke2"):
		return serverOrAgent(comm, verb, args, 2, "/run/k3s/containerd/containerd.sock")
	case isHost(comm, program, "k0s"):
		worker := verb == "worker" || verb == "controller" &&
			(slices.Contains(args, "--enable-worker") || slices.Contains(args, "--single"))
		return embedding{rank: 2, socket: "/run/k0s/containerd.sock"}, handedOn(args), worker
	}
	return embedding{}, nil, false
}

func isHost(comm, program, name string) bool {
	return program == name || comm == name || strings.HasPrefix(comm, name+"-")
}

func serverOrAgent(comm, verb string, args []string, rank int, socket string) (embedding, []string, bool) {
	runs := verb == "server" || verb == "agent" ||
		strings.HasSuffix(comm, "-server") || strings.HasSuffix(comm, "-agent")
	return embedding{rank: rank, socket: socket}, handedOn(args), runs
}

// handedOn are the arguments that a distribution's process hands to the kubelet in it:
//
//	k3s server --container-runtime-endpoint unix:///run/x.sock --kubelet-arg=feature-gates=EventedPLEG=true
//
// which makes --container-runtime-endpoint unix:///run/x.sock and --feature-gates=EventedPLEG=true.
func handedOn(args []string) []string {
	var out []string
	own := parseFlags(args, "container-runtime-endpoint")
	if v := own["container-runtime-endpoint"]; len(v) > 0 {
		out = append(out, "--container-runtime-endpoint="+v[len(v)-1])
	}
	for _, flag := range []string{"kubelet-arg", "kubelet-extra-args"} {
		for _, v := range parseFlags(args, flag)[flag] {
			for _, arg := range strings.Fields(v) {
				out = append(out, "--"+strings.TrimLeft(arg, "-"))
			}
		}
	}
	return out
}

// readArgsFile follows MicroK8s's --kubelet-args-file, which holds one argument per line and two variables of snap:
//
//	--config=${SNAP_DATA}/args/kubelet-config.yaml
func (p *kubeletProcess) readArgsFile(root string) {
	files := parseFlags(p.args, "kubelet-args-file")["kubelet-args-file"]
	if len(files) == 0 {
		return
	}
	name := files[len(files)-1]
	data, err := readAsProcess(root, p.pid, name)
	if err != nil {
		p.problem = printable(name, errLimit) + " " + reasonOf(err)
		return
	}
	snapData := filepath.Dir(filepath.Dir(name))
	common := filepath.Join(filepath.Dir(snapData), "common")
	expand := strings.NewReplacer("${SNAP_DATA}", snapData, "$SNAP_DATA", snapData, "${SNAP_COMMON}", common, "$SNAP_COMMON", common)
	p.args = nil
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			flag, value, joined := strings.Cut(expand.Replace(line), " ")
			p.args = append(p.args, flag)
			if joined {
				p.args = append(p.args, strings.Trim(strings.TrimSpace(value), `"'`))
			}
		}
	}
}

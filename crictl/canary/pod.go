package canary

import (
	"crypto/rand"
	"encoding/hex"
	"maps"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Namespace and labels of canaries. Nothing without the label is ever touched. None of the kubelet's labels is set.
const (
	Namespace = "kdiag-canary"        // of all canaries
	Label     = "io.kdiag/canary"     // "true" on each sandbox and container
	LabelRun  = "io.kdiag/canary-run" // another value for each

	annotationExpires = "io.kdiag/canary-expires" // from then on it is a leftover
)

// The parents of the canary's cgroups, neither of which is left behind: they are always there. The kubelet's own
// kubepods would not do, because the kubelet removes cgroups below it that it does not know.
const (
	systemdParent  = "system.slice"
	cgroupfsParent = "/"
)

const (
	// nobody is the user whom the program runs as: 65534 by convention on Linux.
	nobody = 65534
	// memoryLimit leaves room for runc's own start, which counts too (about 10 MB).
	memoryLimit = 128 << 20
	// cpuShares are a twentieth of a core when the node is busy. A quota would stretch the times that are measured.
	cpuShares = 51
	// mostOOM makes the canary the first to go when the node runs out of memory (OOM_SCORE_ADJ_MAX).
	mostOOM = 1000
)

// A pod is the configuration of a canary's sandbox and container.
type pod struct {
	run       string
	sandbox   *runtimeapi.PodSandboxConfig
	container *runtimeapi.ContainerConfig
}

// newPod returns an unprivileged pod without mounts that exits by itself in case this process is killed.
func newPod(opts Options, image choice, now time.Time, systemd bool) pod {
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails (crypto/rand)
	run := hex.EncodeToString(random[:])
	lives := opts.Course + opts.Cleanup
	network := runtimeapi.NamespaceMode_NODE
	if opts.CNI {
		network = runtimeapi.NamespaceMode_POD
	}
	namespaces := &runtimeapi.NamespaceOption{
		Network: network, Pid: runtimeapi.NamespaceMode_CONTAINER, Ipc: runtimeapi.NamespaceMode_POD,
	}
	seccomp := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	labels := map[string]string{Label: "true", LabelRun: run}
	p := pod{run: run, sandbox: &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: Namespace + "-" + run, Namespace: Namespace, Uid: run},
		Labels:      labels,
		Annotations: map[string]string{annotationExpires: now.Add(lives).UTC().Format(time.RFC3339)},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: cgroupfsParent,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: namespaces, ReadonlyRootfs: true, Seccomp: seccomp,
			},
		},
	}}
	if systemd {
		p.sandbox.Linux.CgroupParent = systemdParent
	}
	if opts.CNI { // a pod on the host's network has the host's name
		p.sandbox.Hostname = p.sandbox.Metadata.Name
	}
	p.container = &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "canary"},
		Image:    &runtimeapi.ImageSpec{Image: image.id, UserSpecifiedImage: image.name},
		Labels:   maps.Clone(labels),
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{
				CpuShares: cpuShares, MemoryLimitInBytes: memoryLimit, OomScoreAdj: mostOOM,
			},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: namespaces, ReadonlyRootfs: true, NoNewPrivs: true, Seccomp: seccomp,
				Capabilities: &runtimeapi.Capability{DropCapabilities: []string{"ALL"}},
				RunAsUser:    &runtimeapi.Int64Value{Value: nobody}, RunAsGroup: &runtimeapi.Int64Value{Value: nobody},
			},
		},
	}
	switch {
	case len(opts.Command) > 0:
		p.container.Command = opts.Command
	case !image.pause:
		p.container.Command = []string{"sleep", strconv.Itoa(int(lives.Seconds()) + 1)}
	}
	return p
}

// logFolder is the folder of a canary's logs below dir; empty for a run that was not named by newPod.
func logFolder(dir, run string) string {
	if dir == "" || !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(run) {
		return ""
	}
	return filepath.Join(dir, Namespace+"-"+run)
}

// isLeftover reports whether a sandbox is a canary whose run must have ended, at the latest after a day.
func isLeftover(s *runtimeapi.PodSandbox, now time.Time) bool {
	if s.GetId() == "" || s.GetLabels()[Label] != "true" || s.GetMetadata().GetNamespace() != Namespace {
		return false
	}
	latest := time.Unix(0, s.GetCreatedAt()).Add(24 * time.Hour)
	expires, err := time.Parse(time.RFC3339, s.GetAnnotations()[annotationExpires])
	if err != nil || expires.After(latest) {
		expires = latest
	}
	return now.After(expires)
}

package runoptions

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
)

const hostsPath = "/etc/hosts"

// mounts are the container's volumes, /etc/hosts unless the container brings its own, and the file of the termination
// message.
func (o *Options) mounts(pod *v1.Pod, c *v1.Container, podIPs []string, env map[string]string) ([]*runtimeapi.Mount, error) {
	volumes := o.cfg.Volumes.Mounts(pod.UID)
	ownHosts := len(podIPs) > 0 || pod.Spec.HostNetwork
	var mounts []*runtimeapi.Mount
	for i := range c.VolumeMounts {
		vm := &c.VolumeMounts[i]
		volume, ok := volumes[vm.Name]
		if !ok {
			return nil, fmt.Errorf("cannot find volume %q to mount into container %q", vm.Name, c.Name)
		}
		mount, err := o.mount(pod, c, i, volume, env)
		if err != nil {
			return nil, err
		}
		ownHosts = ownHosts && mount.ContainerPath != hostsPath
		mounts = append(mounts, mount)
	}
	if ownHosts {
		path := filepath.Join(o.PodDir(string(pod.UID)), "etc-hosts")
		if err := o.writeHosts(path, pod, podIPs); err != nil {
			return nil, err
		}
		mounts = append(mounts, &runtimeapi.Mount{ContainerPath: hostsPath, HostPath: path, SelinuxRelabel: true})
	}
	if c.TerminationMessagePath == "" {
		return mounts, nil
	}
	path, err := o.terminationLog(pod.UID, c.Name)
	if err != nil {
		// The container can do without it. Upstream does not refuse it for that either.
		o.cfg.Log.Error(err, "Error on creating termination-log file", "pod", klog.KObj(pod), "containerName", c.Name)
		return mounts, nil
	}
	return append(mounts, &runtimeapi.Mount{
		ContainerPath: absolute(c.TerminationMessagePath), HostPath: path, SelinuxRelabel: o.cfg.SELinux,
	}), nil
}

func absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return "/" + path
}

// mount is that of the container's i-th volume.
func (o *Options) mount(pod *v1.Pod, c *v1.Container, i int, volume Volume, env map[string]string) (*runtimeapi.Mount, error) {
	vm := &c.VolumeMounts[i]
	path := volume.HostPath
	subPath, err := subPathOf(vm, env)
	if err != nil {
		return nil, err
	}
	if subPath != "" {
		at := filepath.Join(o.PodDir(string(pod.UID)), "volume-subpaths", vm.Name, c.Name, strconv.Itoa(i))
		if path, err = bindSubPath(volume.HostPath, subPath, at); err != nil {
			// The reason may tell of files of the host, which are not the pod's business.
			o.cfg.Log.Error(err, "Failed to prepare subPath for volumeMount of the container", "pod", klog.KObj(pod),
				"containerName", c.Name, "volumeMountName", vm.Name)
			return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q", vm.Name, c.Name)
		}
	}
	mount := &runtimeapi.Mount{
		ContainerPath: absolute(vm.MountPath), HostPath: path,
		Readonly: vm.ReadOnly || volume.ReadOnly, SelinuxRelabel: volume.Managed,
	}
	if vm.RecursiveReadOnly != nil && *vm.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled {
		return nil, fmt.Errorf("recursive read-only mount %q of container %q is not supported", vm.Name, c.Name)
	}
	if vm.MountPropagation == nil {
		return mount, nil
	}
	switch *vm.MountPropagation {
	case v1.MountPropagationNone:
	case v1.MountPropagationHostToContainer:
		mount.Propagation = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	case v1.MountPropagationBidirectional:
		mount.Propagation = runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	default:
		return nil, fmt.Errorf("invalid MountPropagation mode: %q", *vm.MountPropagation)
	}
	return mount, nil
}

// terminationLog makes the file that the container's termination message is read from when it has ended; each instance of
// the container has its own.
func (o *Options) terminationLog(uid types.UID, name string) (string, error) {
	dir := filepath.Join(o.PodDir(string(uid)), "containers", name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprintf("%08x", rand.Uint32()))
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		return "", err
	}
	return path, os.Chmod(path, 0o666) // whatever the umask is: any user of the container may write it
}

// writeHosts writes the pod's /etc/hosts: the node's for a pod on the node's network, else localhost and the pod itself.
func (o *Options) writeHosts(path string, pod *v1.Pod, podIPs []string) error {
	var b strings.Builder
	if pod.Spec.HostNetwork {
		node, err := os.ReadFile(hostsPath)
		if err != nil {
			return err
		}
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.Write(node)
	} else {
		host, domain, err := o.Hostname(pod)
		if err != nil {
			return err
		}
		if domain != "" {
			host = host + "." + domain + "\t" + host
		}
		b.WriteString("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n")
		for _, ip := range podIPs {
			b.WriteString(ip + "\t" + host + "\n")
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
	}
	for _, alias := range pod.Spec.HostAliases {
		b.WriteString(alias.IP + "\t" + strings.Join(alias.Hostnames, "\t") + "\n")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	// Other containers of the pod have the file mounted already: it is written anew in its place.
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return err
	}
	return os.Chmod(path, fs.FileMode(0o644))
}

// Package runoptions works out what a container or sandbox is created with beyond its own spec: environment, mounts,
// /etc/hosts, the file of the termination message, DNS, host name and cgroup (pkg/kubelet/kubelet_pods.go upstream).
//
// Environment variables of services are left out: the services would have to be watched for them, and DNS has replaced them.
package runoptions

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/record"

	"github.com/kdiag/kdiag/plegbench/syncloop/kuberuntime"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A Volume is one that containers can be given, as the volume manager describes it.
type Volume = struct {
	HostPath string // where it is on the node
	ReadOnly bool   // for every container
	Managed  bool   // it may be relabelled for SELinux
}

// Volumes are those that pods have.
type Volumes interface {
	Mounts(uid types.UID) map[string]Volume
}

// Objects are what environment variables are taken from. What is not there is a NotFound error of the API's kind.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
}

// Config is what Options need. All fields are required but for those that say otherwise.
type Config struct {
	Volumes     Volumes
	Objects     Objects
	NodeName    string                 // of pods that do not say where they are bound; may be empty
	RootDir     string                 // like /var/lib/kubelet
	HostIPs     func() []string        // of the node, the preferred one first
	Allocatable func() v1.ResourceList // of the node, for containers without limits

	ClusterDNS    []string // addresses; none: pods that want the cluster's DNS get the node's, and an event
	ClusterDomain string   // like cluster.local; may be empty
	ResolvConf    string   // like /etc/resolv.conf; empty: pods get no name server but themselves

	SystemdCgroups bool   // the cgroup driver is systemd; else it is cgroupfs
	CgroupRoot     string // below which kubepods is, like the kubelet's --cgroup-root; empty is /
	SELinux        bool   // the node enforces it; the file of the termination message is relabelled then

	Recorder record.EventRecorder
	Log      logr.Logger
}

// Options implement kuberuntime.Options. They are safe for use by several goroutines, one for each pod.
type Options struct{ cfg Config }

var _ kuberuntime.Options = (*Options)(nil)

// New makes Options.
func New(cfg Config) *Options {
	return &Options{cfg: cfg}
}

// RunOptions are a container's environment and mounts. Each call makes a new file for the termination message. Errors are of
// objects, volumes or fields that are not there.
func (o *Options) RunOptions(
	ctx context.Context, pod *v1.Pod, c *v1.Container, podIP string, podIPs []string,
) (*kuberuntime.RunOptions, error) {
	if len(c.VolumeDevices) > 0 {
		return nil, fmt.Errorf("cannot pass device %q into container %q: block devices are not supported", c.VolumeDevices[0].Name, c.Name)
	}
	if !filepath.IsLocal(c.Name) || c.Name != filepath.Base(c.Name) || c.Name == "." {
		return nil, fmt.Errorf("container name %q is no name of a folder", c.Name)
	}
	if len(podIPs) == 0 && podIP != "" {
		podIPs = []string{podIP}
	}
	if len(podIPs) == 0 && pod.Spec.HostNetwork {
		podIPs = o.cfg.HostIPs()
	}
	env, err := o.environment(ctx, pod, c, podIPs)
	if err != nil {
		return nil, err
	}
	mounts, err := o.mounts(pod, c, podIPs, env)
	if err != nil {
		return nil, err
	}
	return &kuberuntime.RunOptions{Env: keyValues(env), Mounts: mounts}, nil
}

// PodDir is the pod's folder below the root directory.
func (o *Options) PodDir(uid string) string { return filepath.Join(o.cfg.RootDir, "pods", uid) }

// maxHostname is one byte less than Linux allows.
const maxHostname = 63

// Hostname is the pod's host name without its domain, and the domain if it has one. Errors are of names that are no DNS
// labels.
func (o *Options) Hostname(pod *v1.Pod) (host, domain string, err error) {
	host = pod.Name
	if pod.Spec.Hostname != "" {
		host = pod.Spec.Hostname
		if wrong := validation.IsDNS1123Label(host); wrong != nil {
			return "", "", fmt.Errorf("pod Hostname %q is not a valid DNS label: %s", host, strings.Join(wrong, ";"))
		}
	}
	if pod.Spec.HostnameOverride != nil {
		host = *pod.Spec.HostnameOverride
		if wrong := validation.IsDNS1123Subdomain(host); wrong != nil {
			return "", "", fmt.Errorf("pod HostnameOverride %q is not a valid DNS subdomain: %s", host, strings.Join(wrong, ";"))
		}
	}
	if len(host) > maxHostname {
		host = strings.TrimRight(host[:maxHostname], "-.")
		o.cfg.Log.Error(nil, "Hostname for pod was too long, truncated it", "podName", pod.Name,
			"hostnameMaxLen", maxHostname, "truncatedHostname", host)
	}
	if pod.Spec.Subdomain == "" || pod.Spec.HostnameOverride != nil {
		return host, "", nil
	}
	if wrong := validation.IsDNS1123Label(pod.Spec.Subdomain); wrong != nil {
		return "", "", fmt.Errorf("pod Subdomain %q is not a valid DNS label: %s", pod.Spec.Subdomain, strings.Join(wrong, ";"))
	}
	return host, fmt.Sprintf("%s.%s.svc.%s", pod.Spec.Subdomain, pod.Namespace, o.cfg.ClusterDomain), nil
}

// CgroupParent is the pod's cgroup: below kubepods, and below the cgroup of its quality of service if that is not
// Guaranteed. For systemd it is the name of a slice, which holds those above it (pkg/kubelet/cm upstream). On a node that
// has a kubelet of its own CgroupRoot must not be the kubelet's, which ends all pods below its root that it does not know.
func (o *Options) CgroupParent(p *v1.Pod) string {
	parts := strings.FieldsFunc(o.cfg.CgroupRoot, func(r rune) bool { return r == '/' })
	parts = append(parts, "kubepods")
	if class := strings.ToLower(string(pod.QOSClass(p))); class != "guaranteed" {
		parts = append(parts, class)
	}
	parts = append(parts, "pod"+string(p.UID))
	if !o.cfg.SystemdCgroups {
		return "/" + strings.Join(parts, "/")
	}
	for i, part := range parts { // a dash tells a slice from the one above it
		parts[i] = strings.ReplaceAll(strings.TrimSuffix(part, ".slice"), "-", "_")
	}
	return strings.Join(parts, "-") + ".slice"
}

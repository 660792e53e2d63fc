package kuberuntime

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/downward"
)

// environment is a container's environment: envFrom, overridden by env, whose values may refer to earlier variables as
// $(NAME).
func (m *Manager) environment(
	ctx context.Context, p *v1.Pod, c *v1.Container, ips []string,
) (map[string]string, error) {
	env := map[string]string{}
	for _, from := range c.EnvFrom {
		var data map[string]string
		var err error
		switch {
		case from.ConfigMapRef != nil:
			data, err = m.object(ctx, "ConfigMap", p.Namespace, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		case from.SecretRef != nil:
			data, err = m.object(ctx, "Secret", p.Namespace, from.SecretRef.Name, from.SecretRef.Optional)
		}
		if err != nil {
			return nil, err
		}
		for k, v := range data {
			env[from.Prefix+k] = v
		}
	}
	for _, e := range c.Env {
		value, ok, err := pod.Expand(e.Value, env), true, error(nil)
		if e.ValueFrom != nil {
			value, ok, err = m.value(ctx, p, c, ips, &e)
		}
		if err != nil {
			return nil, err
		}
		if ok {
			env[e.Name] = value
		}
	}
	return env, nil
}

// value resolves the source of a variable. ok is false for something optional that is missing.
func (m *Manager) value(
	ctx context.Context, p *v1.Pod, c *v1.Container, ips []string, e *v1.EnvVar,
) (value string, ok bool, err error) {
	var kind, name, key string
	var optional *bool
	switch from := e.ValueFrom; {
	case from.FieldRef != nil:
		value, err = m.field(p, ips, from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err = downward.Resource(from.ResourceFieldRef, p, c, m.Allocatable())
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		kind, name, key, optional = "ConfigMap", ref.Name, ref.Key, ref.Optional
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		kind, name, key, optional = "Secret", ref.Name, ref.Key, ref.Optional
	default:
		return "", false, fmt.Errorf("the source of environment variable %s is not supported", e.Name)
	}
	data, err := m.object(ctx, kind, p.Namespace, name, optional)
	if err != nil {
		return "", false, err
	}
	if value, ok = data[key]; !ok && !isTrue(optional) {
		return "", false, fmt.Errorf("couldn't find key %v in %s %s/%s", key, kind, p.Namespace, name)
	}
	return value, ok, nil
}

// object returns the data of a ConfigMap or Secret, nil if it is optional and missing.
func (m *Manager) object(
	ctx context.Context, kind, namespace, name string, optional *bool,
) (data map[string]string, err error) {
	if kind == "ConfigMap" {
		var object *v1.ConfigMap
		if object, err = m.Objects.ConfigMap(ctx, namespace, name); err == nil {
			return object.Data, nil
		}
	} else {
		var object *v1.Secret
		if object, err = m.Objects.Secret(ctx, namespace, name); err == nil {
			data = map[string]string{}
			for k, v := range object.Data {
				data[k] = string(v)
			}
			return data, nil
		}
	}
	if isTrue(optional) && apierrors.IsNotFound(err) {
		return nil, nil
	}
	return nil, err
}

// field is the text of a field of the pod: those of volumes, and those that are known only once the pod has its
// addresses.
func (m *Manager) field(p *v1.Pod, ips []string, path string) (string, error) {
	if p.Spec.HostNetwork {
		ips = m.HostIPs
	}
	switch path {
	case "spec.nodeName":
		return cmp.Or(p.Spec.NodeName, m.NodeName), nil
	case "spec.serviceAccountName":
		return p.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return first(m.HostIPs), nil
	case "status.hostIPs":
		return strings.Join(m.HostIPs, ","), nil
	case "status.podIP":
		return first(ips), nil
	case "status.podIPs":
		return strings.Join(ips, ","), nil
	}
	return downward.Field(p, path)
}

func first(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return all[0]
}

// keyValues sorts variables by name, so that the same pod is always created alike.
func keyValues(env map[string]string) []*runtimeapi.KeyValue {
	var out []*runtimeapi.KeyValue
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, &runtimeapi.KeyValue{Key: k, Value: []byte(env[k])})
	}
	return out
}

const hostsPath = "/etc/hosts"

// mounts are a container's volumes, /etc/hosts unless the container brings its own, and the file of the termination
// message. On the node's network the runtime provides /etc/hosts.
func (m *Manager) mounts(p *v1.Pod, c *v1.Container, ips []string) ([]*runtimeapi.Mount, error) {
	if !filepath.IsLocal(c.Name) || c.Name != filepath.Base(c.Name) || c.Name == "." {
		return nil, fmt.Errorf("container name %q is no name of a folder", c.Name)
	}
	if len(c.VolumeDevices) > 0 {
		return nil, fmt.Errorf("block devices, as %s of container %s, are not supported", c.VolumeDevices[0].Name, c.Name)
	}
	volumes := m.Volumes.Mounts(p.UID)
	ownHosts := len(ips) > 0 && !p.Spec.HostNetwork
	var mounts []*runtimeapi.Mount
	for _, vm := range c.VolumeMounts {
		volume, ok := volumes[vm.Name]
		if !ok {
			return nil, fmt.Errorf("cannot find volume %q to mount into container %q", vm.Name, c.Name)
		}
		if vm.SubPath != "" || vm.SubPathExpr != "" {
			return nil, fmt.Errorf("subPath, as in volume mount %q of container %q, is not supported", vm.Name, c.Name)
		}
		mount := &runtimeapi.Mount{
			ContainerPath: absolute(vm.MountPath), HostPath: volume.HostPath,
			Readonly: vm.ReadOnly || volume.ReadOnly, SelinuxRelabel: volume.Managed,
		}
		if vm.MountPropagation != nil {
			mount.Propagation = map[v1.MountPropagationMode]runtimeapi.MountPropagation{
				v1.MountPropagationHostToContainer: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
				v1.MountPropagationBidirectional:   runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL,
			}[*vm.MountPropagation]
		}
		ownHosts = ownHosts && mount.ContainerPath != hostsPath
		mounts = append(mounts, mount)
	}
	dir := filepath.Join(m.RootDir, "pods", string(p.UID))
	if ownHosts {
		path := filepath.Join(dir, "etc-hosts")
		// Other containers of the pod have the file mounted already: its content is replaced, not the file.
		if err := write(path, hosts(p, ips), 0o644); err != nil {
			return nil, err
		}
		mounts = append(mounts, &runtimeapi.Mount{ContainerPath: hostsPath, HostPath: path, SelinuxRelabel: true})
	}
	if c.TerminationMessagePath != "" {
		// Each instance of the container has its own file. Any user in the container may write it.
		path := filepath.Join(dir, "containers", c.Name, fmt.Sprintf("%08x", rand.Uint32()))
		if err := write(path, "", 0o666); err != nil {
			return nil, err
		}
		mounts = append(mounts, &runtimeapi.Mount{
			ContainerPath: absolute(c.TerminationMessagePath), HostPath: path, SelinuxRelabel: true,
		})
	}
	return mounts, nil
}

func absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return "/" + path
}

// write writes a file with a mode that the umask does not change.
func write(path, text string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// hosts is the content of a pod's /etc/hosts: localhost, the pod itself, and its aliases.
func hosts(p *v1.Pod, ips []string) string {
	var b strings.Builder
	b.WriteString("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n")
	for _, ip := range ips {
		b.WriteString(ip + "\t" + hostname(p) + "\n")
	}
	if len(p.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
	}
	for _, alias := range p.Spec.HostAliases {
		b.WriteString(alias.IP + "\t" + strings.Join(alias.Hostnames, "\t") + "\n")
	}
	return b.String()
}

package runoptions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/downward"
)

// environment is the container's: that of envFrom, and over it that of env, in whose values $(NAME) stands for what was set
// before.
func (o *Options) environment(ctx context.Context, pod *v1.Pod, c *v1.Container, podIPs []string) (map[string]string, error) {
	env := map[string]string{}
	for _, from := range c.EnvFrom {
		var data map[string]string
		var err error
		switch {
		case from.ConfigMapRef != nil:
			data, err = o.configMap(ctx, pod.Namespace, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		case from.SecretRef != nil:
			data, err = o.secret(ctx, pod.Namespace, from.SecretRef.Name, from.SecretRef.Optional)
		}
		if err != nil {
			return nil, err
		}
		for k, v := range data {
			env[from.Prefix+k] = v
		}
	}
	for _, e := range c.Env {
		value, ok, err := o.value(ctx, pod, c, podIPs, e, env)
		if err != nil {
			return nil, err
		}
		if ok {
			env[e.Name] = value
		}
	}
	return env, nil
}

// value is that of one variable. ok is false for what is optional and not there.
func (o *Options) value(
	ctx context.Context, p *v1.Pod, c *v1.Container, podIPs []string, e v1.EnvVar, env map[string]string,
) (value string, ok bool, err error) {
	if e.Value != "" || e.ValueFrom == nil {
		value, _ = pod.Expand(e.Value, env)
		return value, true, nil
	}
	from := e.ValueFrom
	switch {
	case from.FieldRef != nil:
		value, err = o.field(p, podIPs, from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err = downward.Resource(from.ResourceFieldRef, p, c, o.cfg.Allocatable())
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		data, err := o.configMap(ctx, p.Namespace, ref.Name, ref.Optional)
		return pick(data, err, "ConfigMap", p.Namespace+"/"+ref.Name, ref.Key, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		data, err := o.secret(ctx, p.Namespace, ref.Name, ref.Optional)
		return pick(data, err, "Secret", p.Namespace+"/"+ref.Name, ref.Key, ref.Optional)
	}
	return "", false, fmt.Errorf("the source of environment variable %s is not supported", e.Name)
}

func pick(data map[string]string, err error, kind, object, key string, optional *bool) (string, bool, error) {
	if err != nil {
		return "", false, err
	}
	value, ok := data[key]
	if !ok && (optional == nil || !*optional) {
		return "", false, fmt.Errorf("couldn't find key %v in %s %s", key, kind, object)
	}
	return value, ok, nil
}

func (o *Options) configMap(ctx context.Context, namespace, name string, optional *bool) (map[string]string, error) {
	object, err := o.cfg.Objects.ConfigMap(ctx, namespace, name)
	if err != nil {
		return nil, unlessOptional(optional, err)
	}
	return object.Data, nil
}

func (o *Options) secret(ctx context.Context, namespace, name string, optional *bool) (map[string]string, error) {
	object, err := o.cfg.Objects.Secret(ctx, namespace, name)
	if err != nil {
		return nil, unlessOptional(optional, err)
	}
	data := map[string]string{}
	for k, v := range object.Data {
		data[k] = string(v)
	}
	return data, nil
}

func unlessOptional(optional *bool, err error) error {
	if optional != nil && *optional && apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// field is the text of a field of the pod; more fields than in volumes, because it is asked for when the pod has its
// addresses.
func (o *Options) field(pod *v1.Pod, podIPs []string, path string) (string, error) {
	switch path {
	case "spec.nodeName":
		return cmp.Or(pod.Spec.NodeName, o.cfg.NodeName), nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		ips := o.cfg.HostIPs()
		if len(ips) == 0 {
			return "", errors.New("the node has no address yet")
		}
		if path == "status.hostIP" {
			return ips[0], nil
		}
		return strings.Join(ips, ","), nil
	case "status.podIP":
		if len(podIPs) == 0 {
			return "", nil
		}
		return podIPs[0], nil
	case "status.podIPs":
		return strings.Join(podIPs, ","), nil
	}
	return downward.Field(pod, path)
}

// keyValues puts variables in the order of their names, so that the same pod is always created alike.
func keyValues(env map[string]string) []*runtimeapi.KeyValue {
	var out []*runtimeapi.KeyValue
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, &runtimeapi.KeyValue{Key: k, Value: []byte(env[k])})
	}
	return out
}

package config

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// errObject is for a manifest with an object that pods refer to.
var errObject = errors.New("this is a ConfigMap or Secret, not a pod")

// parse reads a pod, or a list of pods, in YAML or JSON and completes it as the kubelet completes a static pod: the
// API's defaults, a UID from its content and origin, the node's name behind its own, namespace default, bound to the
// node, phase Pending. Of several YAML documents only the first counts, and unknown fields are ignored; the kubelet
// does both. source is "file" or "http" and origin the path or URL, with which every error begins.
func parse(data []byte, source, origin, nodeName string) ([]*v1.Pod, error) {
	data, err := yaml.ToJSON(data)
	if err != nil {
		return nil, fmt.Errorf("%s: this is neither YAML nor JSON: %s", origin, oneLine(err))
	}
	obj, kind, err := manifests().Decode(data, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: write a pod, with apiVersion: v1 and kind: Pod", origin, oneLine(err))
	}
	var pods []*v1.Pod
	switch o := obj.(type) {
	case *v1.Pod:
		pods = []*v1.Pod{o}
	case *v1.PodList:
		for i := range o.Items {
			pods = append(pods, &o.Items[i])
		}
	case *v1.ConfigMap, *v1.Secret:
		return nil, fmt.Errorf("%s: %w", origin, errObject)
	default:
		return nil, fmt.Errorf("%s: this is a %s: only pods can be run from a manifest", origin, kind.Kind)
	}
	for _, p := range pods {
		if err := complete(p, source, origin, nodeName); err != nil {
			return nil, fmt.Errorf("%s: %w", origin, err)
		}
	}
	return pods, nil
}

// manifests decodes objects of the API's core group, JSON only.
var manifests = sync.OnceValue(func() runtime.Decoder {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme).UniversalDeserializer()
})

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// complete makes a static pod from a manifest (applyDefaults in pkg/kubelet/config/common.go upstream).
func complete(p *v1.Pod, source, origin, nodeName string) error {
	p.TypeMeta = metav1.TypeMeta{}
	setDefaults(p)
	if p.UID == "" {
		// The UID hashes the pod and its origin, so that any edit makes another pod. The kubelet
		// hashes its own representation of the pod in memory instead of JSON, so its UIDs are other ones.
		content, err := json.Marshal(p)
		if err != nil {
			return fmt.Errorf("hashing the pod: %w", err)
		}
		h := fnv.New128a()
		_, _ = fmt.Fprintf(h, "%s%s %s %s", content, nodeName, source, origin) // a hash never errs
		p.UID = types.UID(hex.EncodeToString(h.Sum(nil)))
	}
	p.Name += "-" + strings.ToLower(nodeName)
	p.Namespace = cmp.Or(p.Namespace, metav1.NamespaceDefault)
	p.Spec.NodeName = nodeName
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, pod.ConfigHashAnnotation, string(p.UID))
	if source == pod.FileSource { // no taint of the node ends it
		p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{
			Operator: v1.TolerationOpExists,
			Effect:   v1.TaintEffectNoExecute,
		})
	}
	p.Status.Phase = v1.PodPending
	return validate(p)
}

// validate refuses pods that no part of the syncLoop could handle: without names that can be part of a path, or
// without containers. The API's other rules (pkg/apis/core/validation upstream) are not checked; a
// pod that breaks them fails later.
func validate(p *v1.Pod) error {
	var errs []string
	check := func(field, value string, rule func(string) []string) {
		for _, problem := range rule(value) {
			errs = append(errs, fmt.Sprintf("%s %q: %s", field, value, problem))
		}
	}
	check("metadata.name", p.Name, validation.IsDNS1123Subdomain)
	check("metadata.namespace", p.Namespace, validation.IsDNS1123Label)
	check("metadata.uid", string(p.UID), validation.IsDNS1123Label)
	for _, v := range p.Spec.Volumes {
		check("spec.volumes.name", v.Name, validation.IsDNS1123Label)
	}
	names := map[string]bool{}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		check("spec.containers.name", c.Name, validation.IsDNS1123Label)
		if names[c.Name] {
			errs = append(errs, fmt.Sprintf("spec.containers.name %q: more than one container has this name", c.Name))
		}
		names[c.Name] = true
		if c.Image == "" {
			errs = append(errs, fmt.Sprintf("container %q has no image", c.Name))
		}
	}
	if len(p.Spec.Containers) == 0 {
		errs = append(errs, "spec.containers is empty")
	}
	if len(errs) > 0 {
		return errors.New("invalid pod: " + strings.Join(errs, "; "))
	}
	return nil
}

// setDefaults sets the defaults that the API server sets on a pod (pkg/apis/core/v1/defaults.go
// upstream), where running the pod depends on it and the absence of a value does not mean the default already.
func setDefaults(p *v1.Pod) {
	s := &p.Spec
	s.DNSPolicy = cmp.Or(s.DNSPolicy, v1.DNSClusterFirst)
	s.RestartPolicy = cmp.Or(s.RestartPolicy, v1.RestartPolicyAlways)
	s.SecurityContext = cmp.Or(s.SecurityContext, &v1.PodSecurityContext{})
	s.TerminationGracePeriodSeconds = cmp.Or(s.TerminationGracePeriodSeconds,
		new(int64(v1.DefaultTerminationGracePeriodSeconds)))
	for i := range s.Volumes {
		if v := &s.Volumes[i].VolumeSource; *v == (v1.VolumeSource{}) {
			v.EmptyDir = &v1.EmptyDirVolumeSource{}
		}
	}
	for _, list := range [][]v1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			defaultContainer(&list[i], s.HostNetwork)
		}
	}
}

func defaultContainer(c *v1.Container, hostNetwork bool) {
	if c.ImagePullPolicy == "" {
		c.ImagePullPolicy = v1.PullIfNotPresent
		if latest(c.Image) {
			c.ImagePullPolicy = v1.PullAlways
		}
	}
	c.TerminationMessagePath = cmp.Or(c.TerminationMessagePath, v1.TerminationMessagePathDefault)
	c.TerminationMessagePolicy = cmp.Or(c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	for i := range c.Ports {
		port := &c.Ports[i]
		port.Protocol = cmp.Or(port.Protocol, v1.ProtocolTCP)
		if hostNetwork {
			port.HostPort = cmp.Or(port.HostPort, port.ContainerPort)
		}
	}
	if c.Resources.Limits != nil {
		requests := maps.Clone(c.Resources.Limits)
		maps.Copy(requests, c.Resources.Requests)
		c.Resources.Requests = requests
	}
	for _, p := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p == nil {
			continue
		}
		p.TimeoutSeconds = cmp.Or(p.TimeoutSeconds, 1)
		p.PeriodSeconds = cmp.Or(p.PeriodSeconds, 10)
		p.SuccessThreshold = cmp.Or(p.SuccessThreshold, 1)
		p.FailureThreshold = cmp.Or(p.FailureThreshold, 3)
		if p.GRPC != nil {
			p.GRPC.Service = cmp.Or(p.GRPC.Service, new(""))
		}
		if p.HTTPGet != nil {
			p.HTTPGet.Path = cmp.Or(p.HTTPGet.Path, "/")
			p.HTTPGet.Scheme = cmp.Or(p.HTTPGet.Scheme, v1.URISchemeHTTP)
		}
	}
}

// latest reports an image whose tag is latest, which it also is without tag and digest. The colon of a registry's
// port stands before a slash.
func latest(image string) bool {
	name, _, digest := strings.Cut(image, "@")
	_, tag, tagged := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	return tag == "latest" || !tagged && !digest
}

package config

import (
	"cmp"
	"maps"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// setDefaults does for a manifest what the API server does for a pod that is sent to it (pkg/apis/core/v1/defaults.go
// upstream), as far as running the pod depends on it.
func setDefaults(p *v1.Pod) {
	s := &p.Spec
	s.DNSPolicy = cmp.Or(s.DNSPolicy, v1.DNSClusterFirst)
	s.RestartPolicy = cmp.Or(s.RestartPolicy, v1.RestartPolicyAlways)
	s.SchedulerName = cmp.Or(s.SchedulerName, v1.DefaultSchedulerName)
	if s.SecurityContext == nil {
		s.SecurityContext = &v1.PodSecurityContext{}
	}
	s.TerminationGracePeriodSeconds = cmp.Or(s.TerminationGracePeriodSeconds, new(int64(v1.DefaultTerminationGracePeriodSeconds)))
	s.EnableServiceLinks = cmp.Or(s.EnableServiceLinks, new(v1.DefaultEnableServiceLinks))
	for i := range s.Volumes {
		defaultVolume(&s.Volumes[i].VolumeSource)
	}
	for _, list := range [][]v1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			defaultContainer(&list[i], s.HostNetwork)
		}
	}
}

func defaultVolume(v *v1.VolumeSource) {
	if reflect.ValueOf(*v).IsZero() {
		v.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	if v.Secret != nil {
		v.Secret.DefaultMode = cmp.Or(v.Secret.DefaultMode, new(v1.SecretVolumeSourceDefaultMode))
	}
	if v.ConfigMap != nil {
		v.ConfigMap.DefaultMode = cmp.Or(v.ConfigMap.DefaultMode, new(v1.ConfigMapVolumeSourceDefaultMode))
	}
	if v.HostPath != nil {
		v.HostPath.Type = cmp.Or(v.HostPath.Type, new(v1.HostPathUnset))
	}
	if v.DownwardAPI != nil {
		v.DownwardAPI.DefaultMode = cmp.Or(v.DownwardAPI.DefaultMode, new(v1.DownwardAPIVolumeSourceDefaultMode))
		defaultDownward(v.DownwardAPI.Items)
	}
	if v.Projected == nil {
		return
	}
	v.Projected.DefaultMode = cmp.Or(v.Projected.DefaultMode, new(v1.ProjectedVolumeSourceDefaultMode))
	for _, source := range v.Projected.Sources {
		if source.DownwardAPI != nil {
			defaultDownward(source.DownwardAPI.Items)
		}
		if source.ServiceAccountToken != nil {
			source.ServiceAccountToken.ExpirationSeconds = cmp.Or(source.ServiceAccountToken.ExpirationSeconds, new(int64(3600)))
		}
	}
}

func defaultDownward(items []v1.DownwardAPIVolumeFile) {
	for _, item := range items {
		defaultField(item.FieldRef)
	}
}

func defaultField(ref *v1.ObjectFieldSelector) {
	if ref != nil {
		ref.APIVersion = cmp.Or(ref.APIVersion, "v1")
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
	for _, e := range c.Env {
		if e.ValueFrom != nil {
			defaultField(e.ValueFrom.FieldRef)
		}
	}
	if c.Resources.Limits != nil {
		requests := maps.Clone(c.Resources.Limits)
		maps.Copy(requests, c.Resources.Requests)
		c.Resources.Requests = requests
	}
	for _, probe := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe != nil {
			defaultProbe(probe)
		}
	}
	if c.Lifecycle != nil {
		for _, h := range []*v1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
}

func defaultProbe(p *v1.Probe) {
	p.TimeoutSeconds = cmp.Or(p.TimeoutSeconds, 1)
	p.PeriodSeconds = cmp.Or(p.PeriodSeconds, 10)
	p.SuccessThreshold = cmp.Or(p.SuccessThreshold, 1)
	p.FailureThreshold = cmp.Or(p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		p.GRPC.Service = cmp.Or(p.GRPC.Service, new(""))
	}
}

func defaultHTTPGet(h *v1.HTTPGetAction) {
	if h != nil {
		h.Path = cmp.Or(h.Path, "/")
		h.Scheme = cmp.Or(h.Scheme, v1.URISchemeHTTP)
	}
}

// latest reports an image whose tag is latest, said or meant: neither tag nor digest means it. The colon of a registry's
// port stands before a slash.
func latest(image string) bool {
	name, _, digest := strings.Cut(image, "@")
	_, tag, tagged := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	return tag == "latest" || !tagged && !digest
}

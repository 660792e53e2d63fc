package config

import (
	"cmp"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// setDefaults does for a manifest what the API server does for a pod that is sent to it (pkg/apis/core/v1/defaults.go
// upstream), where running the pod depends on it and the absence of a value does not mean the default already.
func setDefaults(p *v1.Pod) {
	s := &p.Spec
	s.DNSPolicy = cmp.Or(s.DNSPolicy, v1.DNSClusterFirst)
	s.RestartPolicy = cmp.Or(s.RestartPolicy, v1.RestartPolicyAlways)
	if s.SecurityContext == nil {
		s.SecurityContext = &v1.PodSecurityContext{}
	}
	s.TerminationGracePeriodSeconds = cmp.Or(s.TerminationGracePeriodSeconds, new(int64(v1.DefaultTerminationGracePeriodSeconds)))
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

// latest reports an image whose tag is latest, which it also is without tag and digest. The colon of a registry's
// port stands before a slash.
func latest(image string) bool {
	name, _, digest := strings.Cut(image, "@")
	_, tag, tagged := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	return tag == "latest" || !tagged && !digest
}

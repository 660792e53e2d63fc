package config

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A checker gathers what is wrong with a manifest. It knows those of the API's rules (pkg/apis/core/validation upstream)
// whose breach would otherwise show much later, as an error of the runtime or of the API server about the mirror pod.
type checker struct{ errs []string }

// validate returns nil, or one error that names all that is wrong, each with what to do.
func validate(p *v1.Pod) error {
	var c checker
	meta, spec := field.NewPath("metadata"), field.NewPath("spec")
	c.name(meta.Child("name"), p.Name, validation.IsDNS1123Subdomain)
	c.name(meta.Child("namespace"), p.Namespace, validation.IsDNS1123Label)
	for _, err := range metavalidation.ValidateLabels(p.Labels, meta.Child("labels")) {
		c.errs = append(c.errs, err.Error())
	}

	s := &p.Spec
	c.oneOf(spec.Child("restartPolicy"), s.RestartPolicy, v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	c.oneOf(spec.Child("dnsPolicy"), s.DNSPolicy, v1.DNSClusterFirst, v1.DNSClusterFirstWithHostNet, v1.DNSDefault, v1.DNSNone)
	c.require(*s.TerminationGracePeriodSeconds >= 0, spec.Child("terminationGracePeriodSeconds"), "make it 0 or more")
	c.require(s.ActiveDeadlineSeconds == nil || *s.ActiveDeadlineSeconds > 0, spec.Child("activeDeadlineSeconds"), "make it 1 or more")
	c.require(len(s.EphemeralContainers) == 0, spec.Child("ephemeralContainers"), "remove them: only a running pod can be given some")
	c.require(len(s.Containers) > 0, spec.Child("containers"), "give the pod at least one")
	volumes, names := map[string]bool{}, map[string]bool{}
	for i, v := range s.Volumes {
		at := spec.Child("volumes").Index(i)
		c.unique(at, v.Name, volumes)
		c.require(count(v.VolumeSource) == 1, at, "keep one source: a volume has exactly one")
	}
	for i := range s.InitContainers {
		ctr, at := &s.InitContainers[i], spec.Child("initContainers").Index(i)
		c.container(at, ctr, names, volumes)
		sidecar := ctr.RestartPolicy != nil && *ctr.RestartPolicy == v1.ContainerRestartPolicyAlways
		plain := ctr.LivenessProbe == nil && ctr.ReadinessProbe == nil && ctr.StartupProbe == nil && ctr.Lifecycle == nil
		c.require(sidecar || plain, at, "remove its probes and lifecycle, or give it restartPolicy: Always")
	}
	for i := range s.Containers {
		c.container(spec.Child("containers").Index(i), &s.Containers[i], names, volumes)
	}
	if len(c.errs) == 0 {
		return nil
	}
	slices.Sort(c.errs) // resources come in no order
	return errors.New("invalid pod: " + strings.Join(slices.Compact(c.errs), "; "))
}

func (c *checker) require(ok bool, at *field.Path, remedy string) {
	if !ok {
		c.errs = append(c.errs, at.String()+": "+remedy)
	}
}

func (c *checker) name(at *field.Path, name string, rule func(string) []string) {
	c.require(name != "", at, "give it a name")
	if msgs := rule(name); name != "" && len(msgs) > 0 {
		c.require(false, at, fmt.Sprintf("change %q: %s", name, strings.Join(msgs, ", ")))
	}
}

func (c *checker) unique(at *field.Path, name string, names map[string]bool) {
	c.name(at.Child("name"), name, validation.IsDNS1123Label)
	c.require(!names[name], at.Child("name"), fmt.Sprintf("choose another name: %q is taken", name))
	names[name] = true
}

// oneOf checks a word. The words are strings of a type of their own.
func (c *checker) oneOf(at *field.Path, value any, words ...any) {
	c.require(slices.Contains(words, value), at, fmt.Sprintf("write one of %v, not %q", words, value))
}

// count returns how many fields of a volume's source, or of a handler, are set.
func count(of any) int {
	n := 0
	for _, f := range reflect.ValueOf(of).Fields() {
		if !f.IsNil() {
			n++
		}
	}
	return n
}

func (c *checker) container(at *field.Path, ctr *v1.Container, names, volumes map[string]bool) {
	c.unique(at, ctr.Name, names)
	c.require(ctr.Image != "" && ctr.Image == strings.TrimSpace(ctr.Image), at.Child("image"), "name an image, without spaces around it")
	c.oneOf(at.Child("imagePullPolicy"), ctr.ImagePullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	c.oneOf(at.Child("terminationMessagePolicy"), ctr.TerminationMessagePolicy,
		v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)
	for i, p := range ctr.Ports {
		port := at.Child("ports").Index(i)
		c.port(port.Child("containerPort"), intstr.FromInt32(p.ContainerPort))
		c.port(port.Child("hostPort"), intstr.FromInt32(cmp.Or(p.HostPort, 1)))
		c.oneOf(port.Child("protocol"), p.Protocol, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)
	}
	for i, e := range ctr.Env {
		env := at.Child("env").Index(i)
		c.name(env.Child("name"), e.Name, validation.IsRelaxedEnvVarName)
		c.require(e.ValueFrom == nil || e.Value == "" && count(*e.ValueFrom) == 1, env, "keep either the value or one valueFrom")
	}
	c.mounts(at.Child("volumeMounts"), ctr.VolumeMounts, volumes)
	for name, request := range ctr.Resources.Requests {
		limit, limited := ctr.Resources.Limits[name]
		c.require(request.Sign() >= 0 && (!limited || request.Cmp(limit) <= 0), at.Child("resources", "requests").Key(string(name)),
			"make it 0 or more, and at most the limit")
	}
	c.probe(at.Child("livenessProbe"), ctr.LivenessProbe, true)
	c.probe(at.Child("startupProbe"), ctr.StartupProbe, true)
	c.probe(at.Child("readinessProbe"), ctr.ReadinessProbe, false)
	if l := ctr.Lifecycle; l != nil {
		c.hook(at.Child("lifecycle", "postStart"), l.PostStart)
		c.hook(at.Child("lifecycle", "preStop"), l.PreStop)
	}
}

func (c *checker) mounts(at *field.Path, mounts []v1.VolumeMount, volumes map[string]bool) {
	paths := map[string]bool{}
	for i, m := range mounts {
		c.require(volumes[m.Name], at.Index(i).Child("name"), fmt.Sprintf("add a volume %q to the pod", m.Name))
		c.require(m.MountPath != "" && !paths[m.MountPath], at.Index(i).Child("mountPath"), "name a path that no other mount has")
		paths[m.MountPath] = true
		for _, sub := range []string{m.SubPath, m.SubPathExpr} {
			inside := !filepath.IsAbs(sub) && !slices.Contains(strings.Split(sub, "/"), "..")
			c.require(inside, at.Index(i).Child("subPath"), "stay inside the volume: no leading / and no ..")
		}
	}
}

func (c *checker) probe(at *field.Path, p *v1.Probe, once bool) {
	if p == nil {
		return
	}
	c.require(min(p.InitialDelaySeconds, p.TimeoutSeconds, p.PeriodSeconds, p.SuccessThreshold, p.FailureThreshold) >= 0, at,
		"make its numbers 0 or more")
	c.require(!once || p.SuccessThreshold == 1, at.Child("successThreshold"), "make it 1: only a readiness probe may have more")
	if p.GRPC != nil {
		c.port(at.Child("grpc", "port"), intstr.FromInt32(p.GRPC.Port))
	}
	c.handler(at, count(p.ProbeHandler), p.Exec, p.HTTPGet, p.TCPSocket)
}

func (c *checker) hook(at *field.Path, h *v1.LifecycleHandler) {
	if h != nil {
		c.handler(at, count(*h), h.Exec, h.HTTPGet, h.TCPSocket)
	}
}

func (c *checker) handler(at *field.Path, n int, exec *v1.ExecAction, get *v1.HTTPGetAction, tcp *v1.TCPSocketAction) {
	c.require(n == 1, at, "keep one thing to do: it has exactly one")
	c.require(exec == nil || len(exec.Command) > 0, at.Child("exec", "command"), "name a command")
	if get != nil {
		c.port(at.Child("httpGet", "port"), get.Port)
		c.oneOf(at.Child("httpGet", "scheme"), get.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)
	}
	if tcp != nil {
		c.port(at.Child("tcpSocket", "port"), tcp.Port)
	}
}

// port checks a port's number, or its name.
func (c *checker) port(at *field.Path, port intstr.IntOrString) {
	msgs := validation.IsValidPortNum(port.IntValue())
	if port.Type == intstr.String {
		msgs = validation.IsValidPortName(port.StrVal)
	}
	c.require(len(msgs) == 0, at, fmt.Sprintf("change %s: it %s", port.String(), strings.Join(msgs, ", ")))
}

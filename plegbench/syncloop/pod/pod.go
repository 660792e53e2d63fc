// Package pod holds the desired state: the pods that this node should run, with static pods and their mirrors kept
// apart. It also has the functions on pods that several parts of the syncLoop share.
package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// Annotations of the kubelet (pkg/kubelet/types/pod_update.go upstream).
const (
	ConfigSourceAnnotation    = "kubernetes.io/config.source"
	ConfigHashAnnotation      = "kubernetes.io/config.hash"
	ConfigFirstSeenAnnotation = "kubernetes.io/config.seen"
	ConfigMirrorAnnotation    = v1.MirrorPodAnnotationKey
)

// Names of the sources.
const (
	FileSource      = "file"
	HTTPSource      = "http"
	APIServerSource = "api"
)

// systemCriticalPriority is the least priority of pods that are never evicted (scheduling.SystemCriticalPriority
// upstream).
const systemCriticalPriority = 2_000_000_000

// FullName is name_namespace, which a static pod and its mirror have in common.
func FullName(p *v1.Pod) string { return p.Name + "_" + p.Namespace }

// Format formats a pod as the kubelet's log lines do: namespace/name.
func Format(p *v1.Pod) string { return p.Namespace + "/" + p.Name }

// IsTerminal reports a phase that a pod does not leave.
func IsTerminal(phase v1.PodPhase) bool { return phase == v1.PodFailed || phase == v1.PodSucceeded }

// IsMirror reports whether a pod is the mirror of a static pod at the API server.
func IsMirror(p *v1.Pod) bool {
	_, ok := p.Annotations[ConfigMirrorAnnotation]
	return ok
}

// IsStatic reports whether a pod comes from a source other than the API server.
func IsStatic(p *v1.Pod) bool {
	source, ok := p.Annotations[ConfigSourceAnnotation]
	return ok && source != APIServerSource
}

// IsCritical reports whether a pod is never evicted: static, mirror, or of system-critical priority.
func IsCritical(p *v1.Pod) bool {
	return IsStatic(p) || IsMirror(p) || p.Spec.Priority != nil && *p.Spec.Priority >= systemCriticalPriority
}

// IsSidecar reports whether an init container keeps running beside the regular ones.
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// Find returns the first element of a list that matches, or nil.
func Find[T any](in []T, match func(T) bool) *T {
	if i := slices.IndexFunc(in, match); i >= 0 {
		return &in[i]
	}
	return nil
}

// Container returns the container with that name in a list, or nil.
func Container(in []v1.Container, name string) *v1.Container {
	return Find(in, func(c v1.Container) bool { return c.Name == name })
}

// RestartPolicy is a container's own policy, or else its pod's, which is Always if not set.
func RestartPolicy(p *v1.Pod, c *v1.Container) v1.RestartPolicy {
	switch {
	case c.RestartPolicy != nil:
		return v1.RestartPolicy(*c.RestartPolicy)
	case p.Spec.RestartPolicy == "":
		return v1.RestartPolicyAlways
	}
	return p.Spec.RestartPolicy
}

// Restarts reports whether a container is started again after it exited with that code: if one of its rules matches the
// code, or else by its policy.
func Restarts(p *v1.Pod, c *v1.Container, exitCode int32) bool {
	for _, r := range c.RestartPolicyRules { // both actions of a rule start the container again
		in := r.ExitCodes != nil && r.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn
		if r.ExitCodes != nil && slices.Contains(r.ExitCodes.Values, exitCode) == in {
			return true
		}
	}
	policy := RestartPolicy(p, c)
	return policy != v1.RestartPolicyNever && (policy != v1.RestartPolicyOnFailure || exitCode != 0)
}

// NodeReference is the object of events about the node. It has no UID, as a kubelet's up to 1.36.
func NodeReference(name string) *v1.ObjectReference {
	return &v1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: name}
}

// Reference is the object of events about a container: its pod, and the place in the spec.
func Reference(p *v1.Pod, c *v1.Container) *v1.ObjectReference {
	place := "containers"
	if Container(p.Spec.InitContainers, c.Name) != nil {
		place = "initContainers"
	}
	return &v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: p.Namespace, Name: p.Name, UID: p.UID,
		ResourceVersion: p.ResourceVersion, FieldPath: "spec." + place + "{" + c.Name + "}",
	}
}

var reference = lazyregexp.New(`\$\$|\$\([^)]*\)`)

// Expand replaces variables in a text: $(NAME) by the value of NAME, if there is one, and $$ by a dollar sign.
func Expand(text string, values map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, known := values[found[2:len(found)-1]]; known {
			return value
		}
		return found
	})
}

// ExpandAll replaces variables in each word of a command. It is nil if there are no words.
func ExpandAll(words []string, values map[string]string) []string {
	var out []string
	for _, w := range words {
		out = append(out, Expand(w, values))
	}
	return out
}

// QOSClass is the class of a pod that its status has, or the one that its requests and limits make it
// (pkg/apis/core/v1/helper/qos upstream): BestEffort without any of CPU and memory, Guaranteed if every container
// limits both and its requests equal its limits, else Burstable. Resources of the pod as a whole are left out.
func QOSClass(p *v1.Pod) v1.PodQOSClass {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass
	}
	requests, limits := v1.ResourceList{}, v1.ResourceList{}
	guaranteed := true
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		add(requests, c.Resources.Requests)
		guaranteed = add(limits, c.Resources.Limits) == 2 && guaranteed
	}
	switch {
	case len(requests) == 0 && len(limits) == 0:
		return v1.PodQOSBestEffort
	case guaranteed && len(requests) == 2 &&
		requests.Cpu().Cmp(*limits.Cpu()) == 0 && requests.Memory().Cmp(*limits.Memory()) == 0:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

// add adds CPU and memory above zero to a sum, and returns how many of the two there are.
func add(sum, list v1.ResourceList) int {
	n := 0
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if q := list[name]; q.Sign() > 0 {
			n++
			total := sum[name]
			total.Add(q)
			sum[name] = total
		}
	}
	return n
}

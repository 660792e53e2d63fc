package pod

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// IsSidecar reports whether an init container keeps running beside the regular ones.
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// Container returns the container with that name in a list, or nil.
func Container(in []v1.Container, name string) *v1.Container {
	if i := slices.IndexFunc(in, func(c v1.Container) bool { return c.Name == name }); i >= 0 {
		return &in[i]
	}
	return nil
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
	if c.RestartPolicy != nil && slices.ContainsFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
		if r.ExitCodes == nil {
			return false
		}
		in := slices.Contains(r.ExitCodes.Values, exitCode)
		return r.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn && in ||
			r.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpNotIn && !in
	}) {
		return true // both actions of a rule start the container again
	}
	policy := RestartPolicy(p, c)
	return policy != v1.RestartPolicyNever && (policy != v1.RestartPolicyOnFailure || exitCode != 0)
}

// Reference is the object of events about a container: its pod, and the place in the spec.
func Reference(p *v1.Pod, c *v1.Container) *v1.ObjectReference {
	place := "containers"
	if Container(p.Spec.InitContainers, c.Name) != nil {
		place = "initContainers"
	}
	if slices.ContainsFunc(p.Spec.EphemeralContainers, func(e v1.EphemeralContainer) bool { return e.Name == c.Name }) {
		place = "ephemeralContainers"
	}
	return &v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: p.Namespace, Name: p.Name, UID: p.UID,
		ResourceVersion: p.ResourceVersion, FieldPath: "spec." + place + "{" + c.Name + "}",
	}
}

// Expand replaces variables in a text: $(NAME) by the value of NAME, if there is one, and $$ by a dollar sign.
func Expand(text string, values map[string]string) string {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(text, "$")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		name, rest, closed := strings.Cut(strings.TrimPrefix(after, "("), ")")
		closed = closed && strings.HasPrefix(after, "(")
		value, known := values[name]
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			text = after[1:]
		case closed && known:
			b.WriteString(value)
			text = rest
		case closed:
			b.WriteString("$(" + name + ")")
			text = rest
		default:
			b.WriteByte('$')
			text = after
		}
	}
}

// ExpandAll replaces variables in each word of a command. It is nil if there are no words.
func ExpandAll(words []string, values map[string]string) []string {
	var out []string
	for _, w := range words {
		out = append(out, Expand(w, values))
	}
	return out
}

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

// Container is the one with that name in a list, or nil.
func Container(in []v1.Container, name string) *v1.Container {
	if i := slices.IndexFunc(in, func(c v1.Container) bool { return c.Name == name }); i >= 0 {
		return &in[i]
	}
	return nil
}

// RestartPolicy is that of a container: its own, or else its pod's, which is Always if not set.
func RestartPolicy(p *v1.Pod, c *v1.Container) v1.RestartPolicy {
	switch {
	case c.RestartPolicy != nil:
		return v1.RestartPolicy(*c.RestartPolicy)
	case p.Spec.RestartPolicy == "":
		return v1.RestartPolicyAlways
	}
	return p.Spec.RestartPolicy
}

// Restarts reports whether a container is started again after it ended with that code: by the first of its own rules that
// matches the code, or else by its policy.
func Restarts(p *v1.Pod, c *v1.Container, exitCode int32) bool {
	if c.RestartPolicy != nil && slices.ContainsFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
		return matches(r.ExitCodes, exitCode)
	}) {
		return true // both actions that a rule can have start the container again
	}
	switch RestartPolicy(p, c) {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return exitCode != 0
	}
	return true
}

func matches(codes *v1.ContainerRestartRuleOnExitCodes, exitCode int32) bool {
	if codes == nil {
		return false
	}
	in := slices.Contains(codes.Values, exitCode)
	switch codes.Operator {
	case v1.ContainerRestartRuleOnExitCodesOpIn:
		return in
	case v1.ContainerRestartRuleOnExitCodesOpNotIn:
		return !in
	}
	return false
}

// Reference is what events about a container refer to: its pod, and the place in the spec.
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

// Expand puts variables into a text: $(NAME) is the value of NAME, or stays as it is if there is none; $$ is a dollar sign
// that begins nothing. The names without a value are returned too.
func Expand(text string, values map[string]string) (out string, unknown []string) {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(text, "$")
		b.WriteString(before)
		if !ok {
			return b.String(), unknown
		}
		name, rest, closed := strings.Cut(strings.TrimPrefix(after, "("), ")")
		switch value, known := values[name]; {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			text = after[1:]
		case !strings.HasPrefix(after, "(") || !closed:
			b.WriteByte('$')
			text = after
		case known:
			b.WriteString(value)
			text = rest
		default:
			b.WriteString("$(" + name + ")")
			unknown = append(unknown, name)
			text = rest
		}
	}
}

// ExpandAll puts variables into each word of a command. It is nil if there are no words.
func ExpandAll(words []string, values map[string]string) []string {
	var out []string
	for _, w := range words {
		expanded, _ := Expand(w, values)
		out = append(out, expanded)
	}
	return out
}

package kuberuntime

import (
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// expandAll replaces $(NAME) in a container's command or arguments by the environment's variable of that name. Names that are
// not there stay as they are, and $$ stands for a dollar sign: $$(NAME) is not replaced.
func expandAll(words []string, env []*runtimeapi.KeyValue) []string {
	if len(words) == 0 {
		return nil
	}
	values := map[string]string{}
	for _, kv := range env {
		values[kv.GetKey()] = string(kv.GetValue())
	}
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = expand(w, values)
	}
	return out
}

func expand(s string, values map[string]string) string {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(s, "$")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		name, rest, closed := strings.Cut(strings.TrimPrefix(after, "("), ")")
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			s = after[1:]
		case strings.HasPrefix(after, "(") && closed:
			if v, known := values[name]; known {
				b.WriteString(v)
			} else {
				b.WriteString("$(" + name + ")")
			}
			s = rest
		default:
			b.WriteByte('$')
			s = after
		}
	}
}

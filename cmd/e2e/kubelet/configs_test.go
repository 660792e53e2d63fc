//go:build e2e

package kubelet

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
)

// allowed are the pods that fare differently under a kubelet. Each uses what docs/syncloop-parts.md lists as left out.
var allowed = map[string]string{
	"last-words":     "termination messages from logs",
	"no-profile":     "of security contexts, seccomp profiles",
	"resource-field": "resource fields",
	"sysctl":         "admission by sysctls",
}

// allowedFields are the fields of configurations that differ from the kubelet's: how their paths begin, and why.
var allowedFields = []struct{ object, path, why string }{
	{"", "labels io.kdiag.syncloop", "it marks what the syncLoop made"},
	{"", "annotations kubernetes.io/config.seen", "a time"},
	{"", "logDirectory", "--log-dir has a folder for pods below it"},
	{"", "linux cgroupParent", "the syncLoop's pods are below /kdiag-syncloop"},
	{"", "linux securityContext namespaceOptions usernsOptions", "user namespaces are left out"},
	{"sandbox", "dnsConfig", "the runtime copies the node's resolv.conf"},
	{"sandbox", "linux resources", "left out: a runtime's pause container needs none"},
	{"sandbox", "linux securityContext runAs", "left out likewise"},
	{"sandbox", "linux securityContext supplementalGroups", "left out likewise"},
	{"container", "annotations io.kubernetes.container.hash", "of another form of the pod"},
	{"container", "annotations io.kubernetes.container.terminationMessagePolicy", "messages from logs are left out"},
	{"container", "annotations io.kubernetes.container.preStopHandler", "for pods that only the runtime knows, left out"},
	{"container", "annotations io.kubernetes.pod.terminationGracePeriod", "left out likewise"},
	{"container", "linux resources hugepageLimits", "huge pages are left out"},
	{"container", "linux resources memorySwapLimitInBytes", "swap is left out"},
	{"container", "linux securityContext seccomp", "seccomp profiles are left out"},
	{"container", "mounts /dev/termination-log hostPath", "its name is random"},
	{"container", "mounts /etc/hosts", "on the node's network the runtime provides it"},
}

// compareConfigs compares what the sandboxes and containers that both made were created with, field by field.
func (r *run) compareConfigs(t *testing.T, theirs *run) {
	t.Helper()
	want, got := theirs.fields(t), r.fields(t)
	for o, config := range want {
		all := maps.Clone(config)
		maps.Copy(all, got[o])
		for field := range all {
			if w, g := config[field], got[o][field]; got[o] != nil && w != g && !o.allows(field) {
				t.Errorf("%s %s: %s: kubelet %q, here %q", o.pod, o.container, field, w, g)
			}
		}
	}
}

// allows reports whether a field of the object's configuration may differ.
func (o object) allows(field string) bool {
	kind := "container"
	if o.container == "" {
		kind = "sandbox"
	}
	return strings.HasSuffix(field, " selinuxRelabel") || // asked for, without effect where there is no SELinux
		slices.ContainsFunc(allowedFields, func(a struct{ object, path, why string }) bool {
			return strings.HasPrefix(field, a.path) && (a.object == "" || a.object == kind)
		})
}

// fields returns the fields of the first configuration of each object, which has no uid, by their paths.
func (r *run) fields(t *testing.T) map[object]map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[object]map[string]string{}
	for pod, uids := range r.uids {
		for o, config := range r.configs {
			if o.uid != uids[0] {
				continue
			}
			config = strings.NewReplacer(o.uid, "UID", r.dir, "DIR").Replace(config)
			var v any
			e2etest.Must(t, json.Unmarshal([]byte(config), &v))
			flat := map[string]string{}
			flatten("", v, flat)
			out[object{pod: pod, container: o.container}] = flat
		}
	}
	return out
}

// flatten writes the scalars of a JSON value by their paths. Lists of objects are by name, key or path.
func flatten(at string, v any, into map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		for key, x := range v {
			flatten(strings.TrimSpace(at+" "+key), x, into)
		}
	case []any:
		for i, x := range v {
			key := fmt.Sprint(i)
			if m, ok := x.(map[string]any); ok {
				for _, by := range []string{"key", "containerPath", "name"} {
					if name, ok := m[by].(string); ok {
						key = name
					}
				}
			}
			flatten(at+" "+key, x, into)
		}
	default:
		into[at] = fmt.Sprint(v)
	}
}

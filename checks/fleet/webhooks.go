package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kdiag/kdiag/checks"
)

// A webhook holds the fields that are used of a webhook of admissionregistration.k8s.io.
type webhook struct {
	Name         string
	ClientConfig struct {
		URL     string
		Service *serviceRef
	}
	Rules []struct {
		APIGroups, APIVersions, Resources, Operations []string
		Scope                                         string
	}
	FailurePolicy     string
	TimeoutSeconds    int
	NamespaceSelector *metav1.LabelSelector
	ObjectSelector    *metav1.LabelSelector
	MatchConditions   []struct{}
}

// A heartbeat is how a kubelet shows that it lives: a request that a webhook may be asked about.
type heartbeat struct{ group, resource, sub, scope string }

var (
	statusPatch = heartbeat{"", "nodes", "status", "Cluster"}
	leaseUpdate = heartbeat{"coordination.k8s.io", "leases", "", "Namespaced"}
)

// checkWebhooks looks for webhooks without which kubelets cannot post their status or renew their leases.
func (c *Cluster) checkWebhooks(ctx context.Context, s *Snapshot) checks.Result {
	status, found := checks.StatusOK, []string(nil)
	for _, kind := range []string{"mutating", "validating"} {
		var list struct {
			Items []struct{ Webhooks []webhook }
		}
		path := "/apis/admissionregistration.k8s.io/v1/" + kind + "webhookconfigurations"
		if err := c.get(ctx, path, nil, &list); err != nil {
			return result(checks.StatusUnknown, "the %s webhooks cannot be read: %v", kind, err)
		}
		for _, config := range list.Items {
			for _, w := range config.Webhooks {
				asked := w.asked(s)
				if w.FailurePolicy == "Ignore" || len(asked) == 0 {
					continue
				}
				line, blocks := c.describe(ctx, kind, &w, asked)
				if blocks {
					status, found = checks.StatusCritical, slices.Insert(found, 0, line)
					continue
				}
				if found = append(found, line); status == checks.StatusOK {
					status = checks.StatusWarning
				}
			}
		}
	}
	if len(found) == 0 {
		return result(status, "no webhook can block the heartbeats of nodes")
	}
	more := ""
	if len(found) > shown {
		more = fmt.Sprintf("; and %d more", len(found)-shown)
	}
	return result(status, "%s%s", strings.Join(found[:min(len(found), shown)], "; "), more)
}

// describe returns a line of a webhook, and whether it blocks heartbeats now.
func (c *Cluster) describe(ctx context.Context, kind string, w *webhook, asked []string) (line string, blocks bool) {
	at, trouble := "at "+w.ClientConfig.URL, ""
	if ref := w.ClientConfig.Service; ref != nil {
		at = ref.String()
		var err error
		if trouble, err = c.unserved(ctx, *ref); err != nil {
			at += fmt.Sprintf(", whose endpoints cannot be read: %v", err)
		}
	}
	if len(w.MatchConditions) > 0 {
		at += ", except where its matchConditions exclude them"
	}
	line = fmt.Sprintf("%s webhook %s (failurePolicy Fail, timeout %ds) is asked about %s by %s",
		kind, w.Name, w.TimeoutSeconds, strings.Join(asked, " and "), at)
	if trouble != "" {
		return line + ": " + trouble, true
	}
	return line, false
}

// asked returns the heartbeats that a webhook is asked about, on one node at least.
func (w *webhook) asked(s *Snapshot) []string {
	var out []string
	leaseNamespace := labels.Set{v1.LabelMetadataName: v1.NamespaceNodeLease} // all that the server gives it
	onNode := func(n Node) bool { return selects(w.ObjectSelector, n.Labels) }
	// The selector of namespaces does not count for objects that are in none.
	if w.matches(statusPatch) && slices.ContainsFunc(s.Nodes, onNode) {
		out = append(out, "nodes/status")
	}
	if w.matches(leaseUpdate) && selects(w.NamespaceSelector, leaseNamespace) && selects(w.ObjectSelector, nil) {
		out = append(out, "leases")
	}
	return out
}

// matches compares as k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules does. A patch is an UPDATE.
func (w *webhook) matches(h heartbeat) bool {
	has := func(list []string, want string) bool {
		return slices.Contains(list, "*") || slices.Contains(list, want)
	}
	for _, r := range w.Rules {
		scope := r.Scope == "" || r.Scope == "*" || r.Scope == h.scope
		if !scope || !has(r.APIGroups, h.group) || !has(r.APIVersions, "v1") || !has(r.Operations, "UPDATE") {
			continue
		}
		for _, resource := range r.Resources {
			resource, sub, _ := strings.Cut(resource, "/")
			if (resource == "*" || resource == h.resource) && (sub == "*" || sub == h.sub) {
				return true
			}
		}
	}
	return false
}

// selects reports whether a selector, which may be absent, is one of these labels. The server has checked its form.
func selects(selector *metav1.LabelSelector, set labels.Set) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(set)
}

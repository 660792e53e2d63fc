package agent

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

const manifests = "../../deploy/kubernetes"

// decode reads manifests, whose objects have only fields of their types, and returns the agent's.
func decode(t *testing.T, manifests string) (objects int, agent *appsv1.DaemonSet) {
	t.Helper()
	i := strings.Index(manifests, "kind: PodMonitor\n")
	if i >= 0 && !strings.Contains(manifests[i:], "targetLabel: instance\n") {
		t.Error("the rules and the dashboard take instance for the node's name")
	}
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	all := strings.Split(manifests, "\n---\n")
	for _, doc := range all {
		object, _, err := strict.Decode([]byte(doc), nil, nil)
		if runtime.IsNotRegisteredError(err) && strings.Contains(doc, "kind: PodMonitor\n") { // Prometheus Operator's
			continue
		} else if err != nil {
			t.Errorf("%v:\n%s", err, doc)
		}
		if set, ok := object.(*appsv1.DaemonSet); ok {
			agent = set
		}
	}
	return len(all), agent
}

func TestManifests(t *testing.T) {
	var all []string
	for _, name := range []string{
		"namespace", "rbac", "daemonset", "components/own-node/policy", "components/podmonitor/podmonitor",
		"components/upload/rbac",
	} {
		data, err := os.ReadFile(manifests + "/" + name + ".yaml")
		must(t, err)
		all = append(all, string(data))
	}
	n, agent := decode(t, strings.Join(all, "\n---\n"))
	if n != 13 || agent == nil {
		t.Fatalf("%d objects", n)
	}
	const want = "kdiag agent --host-root=/host --data-dir=/var/lib/kdiag --listen=[$(POD_IP)]:9478 --publish " +
		"--node-name=$(NODE_NAME) --serve-captures --captures-token=/etc/kdiag/token"
	c := agent.Spec.Template.Spec.Containers[0]
	if diff := cmp.Diff(want, strings.Join(append(c.Command, c.Args...), " ")); diff != "" {
		t.Error(diff)
	}
}

// TestNodeProblemDetector has kdiag end before node-problem-detector 1.34 kills it, which would be no answer, and run
// from where the packages put it. A figure in a message must not make a transition, and an event.
func TestNodeProblemDetector(t *testing.T) {
	var got struct {
		PluginConfig struct {
			Interval string `json:"invoke_interval"`
			Timeout  string
			Change   *bool `json:"enable_message_change_based_condition_update"`
		}
		Conditions []struct{ Type string }
		Rules      []struct {
			Condition, Path, Timeout string
			Args                     []string
		}
	}
	text, err := os.ReadFile("../../deploy/node-problem-detector/kdiag.json")
	must(t, err)
	must(t, json.Unmarshal(text, &got))
	c, r := got.PluginConfig, got.Rules[0]
	if *c.Change || r.Condition != got.Conditions[0].Type || r.Condition == problemType || r.Path != "/usr/bin/kdiag" {
		t.Errorf("%+v", got)
	}
	var last time.Duration
	for _, text := range []string{strings.TrimPrefix(r.Args[2], "--timeout="), r.Timeout, c.Interval} {
		limit, err := time.ParseDuration(text)
		if must(t, err); limit <= last {
			t.Errorf("%s is not longer than %s", limit, last)
		}
		last = limit
	}
}

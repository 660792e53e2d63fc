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
	if i := strings.Index(manifests, "kind: PodMonitor\n"); i >= 0 && !strings.Contains(manifests[i:], "targetLabel: instance\n") {
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
	} {
		data, err := os.ReadFile(manifests + "/" + name + ".yaml")
		must(t, err)
		all = append(all, string(data))
	}
	n, agent := decode(t, strings.Join(all, "\n---\n"))
	if n != 11 || agent == nil {
		t.Fatalf("%d objects", n)
	}
	const want = "kdiag agent --host-root=/host --data-dir=/var/lib/kdiag --listen=[$(POD_IP)]:9478 --publish " +
		"--node-name=$(NODE_NAME) --serve-captures --captures-token=/etc/kdiag/token"
	c := agent.Spec.Template.Spec.Containers[0]
	if diff := cmp.Diff(want, strings.Join(append(c.Command, c.Args...), " ")); diff != "" {
		t.Error(diff)
	}
}

// TestNodeProblemDetector reads the plugin's configuration as node-problem-detector 1.34 documents it
// (pkg/custompluginmonitor/types). kdiag ends before node-problem-detector kills it, which would be no answer.
func TestNodeProblemDetector(t *testing.T) {
	type rule struct {
		Type, Condition, Reason, Path, Timeout string
		Args                                   []string
	}
	type condition struct{ Type, Reason, Message string }
	var got struct {
		Plugin       string
		PluginConfig struct {
			InvokeInterval string `json:"invoke_interval"`
			Timeout        string `json:"timeout"`
			MaxOutput      int    `json:"max_output_length"`
			Concurrency    int    `json:"concurrency"`
			// Else each figure in a message would make a transition of its time, and an event.
			MessageChange bool `json:"enable_message_change_based_condition_update"`
		}
		Source           string
		MetricsReporting bool
		Conditions       []condition
		Rules            []rule
	}
	file, err := os.Open("../../deploy/node-problem-detector/kdiag.json")
	must(t, err)
	defer file.Close()
	strict := json.NewDecoder(file)
	strict.DisallowUnknownFields()
	must(t, strict.Decode(&got))
	c, r := got.PluginConfig, got.Rules[0]
	if got.Plugin != "custom" || c.MaxOutput != 80 || c.MessageChange || len(got.Rules) != 1 || r.Type != "permanent" ||
		r.Condition != got.Conditions[0].Type || r.Condition == conditionType {
		t.Errorf("%+v", got)
	}
	limits := make([]time.Duration, 4)
	for i, text := range []string{strings.TrimPrefix(r.Args[2], "--timeout="), r.Timeout, c.Timeout, c.InvokeInterval} {
		if limits[i], err = time.ParseDuration(text); err != nil {
			t.Error(err)
		}
	}
	if limits[0] >= limits[1] || limits[1] > limits[2] || limits[2] >= limits[3] {
		t.Errorf("kdiag, rule, plugin and interval: %v", limits)
	}
}

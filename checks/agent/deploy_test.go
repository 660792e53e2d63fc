package agent

import (
	stdcmp "cmp"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/checks"
)

const (
	manifests = "../../deploy/kubernetes"
	recipes   = "../../deploy/recipes/"
)

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

// render executes a chart's templates with its values and others, with the few functions of Helm that they use.
func render(t *testing.T, dir string, others string) string {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile(dir + "/" + name)
		must(t, err)
		return string(text)
	}
	var values, meta map[string]any
	must(t, yaml.UnmarshalStrict([]byte(read("values.yaml")), &values))
	must(t, yaml.Unmarshal([]byte(others), &values))
	must(t, yaml.Unmarshal([]byte(read("Chart.yaml")), &meta))
	funcs := template.FuncMap{
		"default": func(otherwise, v string) string { return stdcmp.Or(v, otherwise) },
		"quote":   strconv.Quote,
		"nindent": func(n int, text string) string {
			indent := "\n" + strings.Repeat(" ", n)
			return indent + strings.ReplaceAll(text, "\n", indent)
		},
		"toYaml": func(v any) (string, error) {
			text, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(text), "\n"), err
		},
	}
	templates, err := template.New("").Option("missingkey=error").Funcs(funcs).ParseGlob(dir + "/templates/*.yaml")
	must(t, err)
	var docs []string
	for _, one := range templates.Templates() {
		var out strings.Builder
		must(t, one.Execute(&out, map[string]any{
			"Values": values, "Chart": map[string]any{"AppVersion": meta["appVersion"]},
			"Release": map[string]any{"Namespace": "kdiag"}, "Files": chartFiles(read),
		}))
		if strings.TrimSpace(out.String()) != "" {
			docs = append(docs, out.String())
		}
	}
	return strings.Join(docs, "\n---\n")
}

type chartFiles func(name string) string

func (read chartFiles) Get(name string) string { return read(name) }

// TestChart has the Helm chart install what kustomize installs, but the namespace, which helm install makes. All of it
// has only fields of its types.
func TestChart(t *testing.T) {
	byName := func(docs string) map[string]any {
		all := map[string]any{}
		for doc := range strings.SplitSeq(docs, "\n---\n") {
			var object map[string]any
			if err := yaml.UnmarshalStrict([]byte(doc), &object); err != nil {
				t.Fatalf("%v:\n%s", err, doc)
			}
			all[object["kind"].(string)+" "+object["metadata"].(map[string]any)["name"].(string)] = object
		}
		return all
	}
	var want []string
	for _, name := range []string{
		"namespace", "rbac", "daemonset", "components/own-node/policy", "components/podmonitor/podmonitor",
	} {
		text, err := os.ReadFile(manifests + "/" + name + ".yaml")
		must(t, err)
		want = append(want, string(text))
	}
	const command = "kdiag agent --host-root=/host --data-dir=/var/lib/kdiag --listen=[$(POD_IP)]:9478 --publish " +
		"--node-name=$(NODE_NAME) --serve-captures --captures-token=/etc/kdiag/token"
	_, installed := decode(t, strings.Join(want, "\n---\n"))
	run := installed.Spec.Template.Spec.Containers[0]
	if diff := cmp.Diff(command, strings.Join(append(run.Command, run.Args...), " ")); diff != "" {
		t.Error(diff)
	}
	kustomized := byName(strings.Join(want, "\n---\n"))
	delete(kustomized, "Namespace kdiag")
	rules, err := os.ReadFile("../../deploy/prometheus/rules.yaml")
	must(t, err)
	var spec any
	must(t, yaml.UnmarshalStrict(rules, &spec))
	const all = "{ownNode: true, podMonitor: {enabled: true, labels: {}}, " +
		"prometheusRule: {enabled: true, labels: {a: b}}, " +
		"networkPolicy: {enabled: true, from: [{podSelector: {}}]}}"
	got := byName(render(t, "../../deploy/helm/kdiag", all))
	rule := got["PrometheusRule kdiag"].(map[string]any)
	if diff := cmp.Diff(spec, rule["spec"]); diff != "" {
		t.Error(diff)
	}
	rule["metadata"].(map[string]any)["labels"] = map[string]any{"app.kubernetes.io/name": "kdiag"}
	alone, err := yaml.Marshal(rule)
	must(t, err)
	const file = "../../deploy/prometheus/prometheusrule.yaml"
	const why = "# rules.yaml for the Prometheus Operator, made of it: go test ./checks/agent -run TestChart -update\n"
	alone = append([]byte(why), alone...)
	if *update {
		must(t, os.WriteFile(file, alone, 0o644))
	}
	old, err := os.ReadFile(file)
	must(t, err)
	if diff := cmp.Diff(string(alone), string(old)); diff != "" {
		t.Error(diff)
	}
	delete(got, "PrometheusRule kdiag")
	delete(got, "NetworkPolicy kdiag")
	if diff := cmp.Diff(kustomized, got); diff != "" {
		t.Error(diff)
	}
	// What is not asked for is not there, and each value gets to its place.
	const some = "{image: {repository: r/k, tag: v1, pullPolicy: Always, pullSecrets: [{name: s}]}, " +
		"args: [--interval=1m], resourceQuota: false, priorityClassName: '', tolerations: []}"
	n, agent := decode(t, render(t, "../../deploy/helm/kdiag", some))
	pod := agent.Spec.Template.Spec
	c := pod.Containers[0]
	if n != 6 || c.Image != "r/k:v1" || c.ImagePullPolicy != v1.PullAlways || pod.ImagePullSecrets[0].Name != "s" ||
		c.Args[len(c.Args)-1] != "--interval=1m" || pod.PriorityClassName != "" || len(pod.Tolerations) > 0 {
		t.Errorf("%d objects, %+v", n, pod)
	}
}

// TestNodeProblemDetector has kdiag end before node-problem-detector 1.34 kills it, which would be no answer, and run
// from where the packages put it. A figure in a message must not make a transition, and an event.
func TestNodeProblemDetector(t *testing.T) {
	var got struct {
		PluginConfig struct {
			Interval string `json:"invoke_interval"`
			Change   *bool  `json:"enable_message_change_based_condition_update"`
		}
		Rules []struct {
			Condition, Path, Timeout string
			Args                     []string
		}
	}
	text, err := os.ReadFile("../../deploy/node-problem-detector/kdiag.json")
	must(t, err)
	must(t, json.Unmarshal(text, &got))
	c, r := got.PluginConfig, got.Rules[0]
	limits := [3]time.Duration{}
	for i, text := range []string{strings.TrimPrefix(r.Args[2], "--timeout="), r.Timeout, c.Interval} {
		limits[i], err = time.ParseDuration(text)
		must(t, err)
	}
	if *c.Change || r.Condition == problemType || r.Path != "/usr/bin/kdiag" || !slices.IsSorted(limits[:]) ||
		limits[0] == limits[1] {
		t.Errorf("%+v", got)
	}
}

// The fields of the objects of other projects that the recipes use. docs/recipes.md says where they are from.
type (
	object struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
	}
	nodeReadinessRule struct {
		object
		Spec struct {
			NodeSelector metav1.LabelSelector `json:"nodeSelector"`
			Conditions   []struct {
				Type           v1.NodeConditionType `json:"type"`
				RequiredStatus v1.ConditionStatus   `json:"requiredStatus"`
				DefaultStatus  v1.ConditionStatus   `json:"defaultStatus"`
			} `json:"conditions"`
			Taint           v1.Taint `json:"taint"`
			EnforcementMode string   `json:"enforcementMode"`
		} `json:"spec"`
	}
	machineHealthCheck struct {
		object
		Spec struct {
			ClusterName string               `json:"clusterName"`
			Selector    metav1.LabelSelector `json:"selector"`
			Checks      struct {
				UnhealthyNodeConditions []struct {
					Type           v1.NodeConditionType `json:"type"`
					Status         v1.ConditionStatus   `json:"status"`
					TimeoutSeconds int32                `json:"timeoutSeconds"`
				} `json:"unhealthyNodeConditions"`
			} `json:"checks"`
			Remediation struct {
				TriggerIf struct {
					UnhealthyLessThanOrEqualTo string `json:"unhealthyLessThanOrEqualTo"`
				} `json:"triggerIf"`
			} `json:"remediation"`
		} `json:"spec"`
	}
	nvsentinelValues struct {
		Global struct {
			KubernetesObjectMonitor struct {
				Enabled bool `json:"enabled"`
			} `json:"kubernetesObjectMonitor"`
		} `json:"global"`
		Monitor struct {
			Policies []struct {
				Name        string                      `json:"name"`
				Enabled     bool                        `json:"enabled"`
				Resource    metav1.GroupVersionKind     `json:"resource"`
				Predicate   struct{ Expression string } `json:"predicate"`
				HealthEvent struct {
					ComponentClass    string   `json:"componentClass"`
					IsFatal           bool     `json:"isFatal"`
					Message           string   `json:"message"`
					RecommendedAction string   `json:"recommendedAction"`
					ErrorCode         []string `json:"errorCode"`
				} `json:"healthEvent"`
			} `json:"policies"`
		} `json:"kubernetes-object-monitor"`
	}
)

// TestRecipes has each recipe use fields that its reader has, and conditions and actions that the agent publishes.
func TestRecipes(t *testing.T) {
	readers := map[string]any{
		"node-readiness.yaml": &nodeReadinessRule{},
		"cluster-api.yaml":    &machineHealthCheck{},
		"nvsentinel.yaml":     &nvsentinelValues{},
		"nodes.gotemplate":    nil, // TestNodesTemplate
	}
	files, err := os.ReadDir(recipes)
	if must(t, err); len(files) != len(readers) {
		t.Errorf("%d files for %d readers", len(files), len(readers))
	}
	for _, f := range files {
		text, err := os.ReadFile(recipes + f.Name())
		must(t, err)
		if into := readers[f.Name()]; into != nil {
			if err := yaml.UnmarshalStrict(text, into); err != nil {
				t.Errorf("%s: %v", f.Name(), err)
			}
		}
		types := regexp.MustCompile(`type:? (?:== )?"?(Kdiag\w+)`).FindAllSubmatch(text, -1)
		for _, m := range types {
			if string(m[1]) != repairType {
				t.Errorf("%s: condition %s", f.Name(), m[1])
			}
		}
		if len(types) == 0 {
			t.Errorf("%s names no condition", f.Name())
		}
	}
	// Every action that somebody has to do is in one policy.
	var acts []string
	for _, p := range readers["nvsentinel.yaml"].(*nvsentinelValues).Monitor.Policies {
		for _, m := range regexp.MustCompile(`"([A-Z]\w+)"`).FindAllStringSubmatch(p.Predicate.Expression, -1) {
			if m[1] != repairType && m[1] != string(v1.ConditionTrue) {
				acts = append(acts, m[1])
			}
		}
	}
	var want []string
	for _, a := range checks.Actions() {
		if a != checks.ActionNone && a != checks.ActionWait {
			want = append(want, string(a))
		}
	}
	if slices.Sort(acts); !slices.Equal(slices.Sorted(slices.Values(want)), acts) {
		t.Error(cmp.Diff(want, acts))
	}
}

// TestNodesTemplate runs the template as kubectl does, which reads the objects as JSON.
func TestNodesTemplate(t *testing.T) {
	var list v1.NodeList
	for _, c := range []v1.NodeCondition{
		{Type: repairType, Status: v1.ConditionTrue, Reason: string(checks.ActionReplaceNode)},
		{Type: repairType, Status: v1.ConditionTrue, Reason: string(checks.ActionRebootNode)},
		{Type: repairType, Status: v1.ConditionFalse, Reason: string(checks.ActionReplaceNode)},
		{Type: problemType, Status: v1.ConditionTrue, Reason: string(checks.ActionReplaceNode)},
	} {
		node := v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady}, c}}}
		node.Name = string(c.Type) + "-" + string(c.Status) + "-" + c.Reason
		list.Items = append(list.Items, node)
	}
	data, err := json.Marshal(list)
	must(t, err)
	var items map[string]any
	must(t, json.Unmarshal(data, &items))
	var out strings.Builder
	must(t, template.Must(template.ParseFiles(recipes+"nodes.gotemplate")).Execute(&out, items))
	if diff := cmp.Diff("KdiagRepair-True-ReplaceNode\n", out.String()); diff != "" {
		t.Error(diff)
	}
}

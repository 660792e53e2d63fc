package agent

import (
	stdcmp "cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/internal/testkit"
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
	read := func(name string) string { return testkit.Read(t, dir+"/"+name) }
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
		want = append(want, testkit.Read(t, manifests+"/"+name+".yaml"))
	}
	const command = "kdiag agent --host-root=/host --data-dir=/var/lib/kdiag --listen=[$(POD_IP)]:9478 --publish " +
		"--node-name=$(NODE_NAME) --serve-captures --captures-token=/etc/kdiag/token"
	_, installed := decode(t, strings.Join(want, "\n---\n"))
	run := installed.Spec.Template.Spec.Containers[0]
	equal(t, "the command", command, strings.Join(append(run.Command, run.Args...), " "))
	kustomized := byName(strings.Join(want, "\n---\n"))
	delete(kustomized, "Namespace kdiag")
	var spec any
	must(t, yaml.UnmarshalStrict([]byte(testkit.Read(t, "../../deploy/prometheus/rules.yaml")), &spec))
	const all = "{ownNode: true, podMonitor: {enabled: true, labels: {}}, " +
		"prometheusRule: {enabled: true, labels: {a: b}}, " +
		"networkPolicy: {enabled: true, from: [{podSelector: {}}]}}"
	got := byName(render(t, "../../deploy/helm/kdiag", all))
	rule := got["PrometheusRule kdiag"].(map[string]any)
	equal(t, "the rules", spec, rule["spec"])
	rule["metadata"].(map[string]any)["labels"] = map[string]any{"app.kubernetes.io/name": "kdiag"}
	alone, err := yaml.Marshal(rule)
	must(t, err)
	const file = "../../deploy/prometheus/prometheusrule.yaml"
	const why = "# rules.yaml for the Prometheus Operator, made of it: go test ./checks/agent -run TestChart -update\n"
	testkit.Golden(t, file, why+string(alone))
	delete(got, "PrometheusRule kdiag")
	delete(got, "NetworkPolicy kdiag")
	equal(t, "the chart", kustomized, got)
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
	must(t, json.Unmarshal([]byte(testkit.Read(t, "../../deploy/node-problem-detector/kdiag.json")), &got))
	c, r := got.PluginConfig, got.Rules[0]
	limits := [3]time.Duration{}
	for i, text := range []string{strings.TrimPrefix(r.Args[2], "--timeout="), r.Timeout, c.Interval} {
		var err error
		limits[i], err = time.ParseDuration(text)
		must(t, err)
	}
	if *c.Change || r.Condition == problemType || r.Path != "/usr/bin/kdiag" || !slices.IsSorted(limits[:]) ||
		limits[0] == limits[1] {
		t.Errorf("%+v", got)
	}
}

// recipeFields are those of the objects of other projects that the recipes use, with the kinds of their values.
// docs/recipes.md says where they are from.
var recipeFields = map[string]string{
	"node-readiness.yaml": `.apiVersion:string .kind:string .metadata.name:string
		.spec.conditions[].defaultStatus:string .spec.conditions[].requiredStatus:string .spec.conditions[].type:string
		.spec.enforcementMode:string .spec.nodeSelector.matchLabels.kubernetes.io/os:string
		.spec.taint.effect:string .spec.taint.key:string`,
	"cluster-api.yaml": `.apiVersion:string .kind:string .metadata.name:string .metadata.namespace:string
		.spec.checks.unhealthyNodeConditions[].status:string
		.spec.checks.unhealthyNodeConditions[].timeoutSeconds:float64
		.spec.checks.unhealthyNodeConditions[].type:string .spec.clusterName:string
		.spec.remediation.triggerIf.unhealthyLessThanOrEqualTo:string
		.spec.selector.matchExpressions[].key:string .spec.selector.matchExpressions[].operator:string`,
	"nvsentinel.yaml": `.global.kubernetesObjectMonitor.enabled:bool
		.kubernetes-object-monitor.policies[].enabled:bool
		.kubernetes-object-monitor.policies[].healthEvent.componentClass:string
		.kubernetes-object-monitor.policies[].healthEvent.errorCode[]:string
		.kubernetes-object-monitor.policies[].healthEvent.isFatal:bool
		.kubernetes-object-monitor.policies[].healthEvent.message:string
		.kubernetes-object-monitor.policies[].healthEvent.recommendedAction:string
		.kubernetes-object-monitor.policies[].name:string
		.kubernetes-object-monitor.policies[].predicate.expression:string
		.kubernetes-object-monitor.policies[].resource.group:string
		.kubernetes-object-monitor.policies[].resource.kind:string
		.kubernetes-object-monitor.policies[].resource.version:string`,
	"nodes.gotemplate": "", // TestNodesTemplate
}

// addFields adds the paths of all values below one.
func addFields(to map[string]bool, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			addFields(to, path+"."+name, inner)
		}
	case []any:
		for _, inner := range v {
			addFields(to, path+"[]", inner)
		}
	default:
		to[fmt.Sprintf("%s:%T", path, v)] = true
	}
}

// TestRecipes has each recipe use fields that its reader has, and conditions and actions that the agent publishes.
func TestRecipes(t *testing.T) {
	files, err := os.ReadDir(recipes)
	if must(t, err); len(files) != len(recipeFields) {
		t.Errorf("%d files, and fields of %d", len(files), len(recipeFields))
	}
	var acts []string
	for _, f := range files {
		text, used := testkit.Read(t, recipes+f.Name()), map[string]bool{}
		if strings.HasSuffix(f.Name(), ".yaml") {
			var recipe any
			must(t, yaml.UnmarshalStrict([]byte(text), &recipe))
			addFields(used, "", recipe)
		}
		equal(t, f.Name(), strings.Fields(recipeFields[f.Name()]), slices.Sorted(maps.Keys(used)), cmpopts.EquateEmpty())
		types := regexp.MustCompile(`type:? (?:== )?"?(Kdiag\w+)`).FindAllStringSubmatch(text, -1)
		for _, m := range types {
			equal(t, f.Name()+": a condition", repairType, m[1])
		}
		if len(types) == 0 {
			t.Errorf("%s names no condition", f.Name())
		}
		for _, m := range regexp.MustCompile(`"([A-Z]\w+)"`).FindAllStringSubmatch(text, -1) {
			if f.Name() == "nvsentinel.yaml" && m[1] != repairType && m[1] != string(v1.ConditionTrue) {
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
	slices.Sort(acts)
	equal(t, "actions, each in one policy", slices.Sorted(slices.Values(want)), acts)
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
	equal(t, "the nodes", "KdiagRepair-True-ReplaceNode\n", out.String())
}

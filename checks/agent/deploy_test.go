package agent

import (
	stdcmp "cmp"
	"encoding/json"
	"os"
	"path/filepath"
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/checks"
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

// TestRecipes has each recipe name the condition that the agent publishes for repairs, and NVSentinel's every action that
// somebody has to do.
func TestRecipes(t *testing.T) {
	files, err := filepath.Glob("../../deploy/recipes/*")
	must(t, err)
	for _, name := range files {
		text, err := os.ReadFile(name)
		must(t, err)
		types := regexp.MustCompile(`type:? (?:== )?"?(Kdiag\w+)`).FindAllSubmatch(text, -1)
		if len(types) == 0 || slices.ContainsFunc(types, func(m [][]byte) bool { return string(m[1]) != repairType }) {
			t.Errorf("%s: conditions %q", name, types)
		}
		for _, a := range checks.Actions() {
			lacks := a != checks.ActionNone && a != checks.ActionWait && !strings.Contains(string(text), `"`+string(a)+`"`)
			if filepath.Base(name) == "nvsentinel.yaml" && lacks {
				t.Errorf("%s: no policy of %s", name, a)
			}
		}
	}
}

package pod

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver/fake"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

func TestRestarts(t *testing.T) {
	never := new(v1.ContainerRestartPolicyNever)
	rule := func(op v1.ContainerRestartRuleOnExitCodesOperator) v1.Container {
		codes := &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: []int32{42}}
		return v1.Container{RestartPolicy: never, RestartPolicyRules: []v1.ContainerRestartRule{
			{Action: v1.ContainerRestartRuleActionRestart, ExitCodes: codes},
		}}
	}
	own := v1.Container{RestartPolicy: new(v1.ContainerRestartPolicyAlways)}
	for _, tt := range []struct {
		name string
		pod  v1.RestartPolicy
		c    v1.Container
		want [3]bool // after 0, 1 and 42
	}{
		{"not set", "", v1.Container{}, [3]bool{true, true, true}},
		{"never", v1.RestartPolicyNever, v1.Container{}, [3]bool{}},
		{"its own policy", v1.RestartPolicyNever, own, [3]bool{true, true, true}},
		{"in", "", rule(v1.ContainerRestartRuleOnExitCodesOpIn), [3]bool{false, false, true}},
		{"not in", "", rule(v1.ContainerRestartRuleOnExitCodesOpNotIn), [3]bool{true, true, false}},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: tt.pod}}
		got := [3]bool{Restarts(p, &tt.c, 0), Restarts(p, &tt.c, 1), Restarts(p, &tt.c, 42)}
		testkit.Equal(t, tt.name, tt.want, got)
	}
}

func TestExpand(t *testing.T) {
	values := map[string]string{"A": "1", "B": "$(A)", "": "none", "A b": "2", "A(": "odd", "E": ""}
	for text, want := range map[string]string{
		"": "", "$(A)": "1", "x$(A)y$(B)z": "x1y$(A)z", "$(NO)": "$(NO)", "$$(A)": "$(A)", "$$$(A)": "$1", "$(E)": "",
		"a$": "a$", "a$$b": "a$b", "$(A": "$(A", "$A": "$A", "$()": "none", "$(A b)": "2", "$(A()": "odd",
		"$($(A))": "$($(A))", "$é(A)": "$é(A)",
	} {
		testkit.Equal(t, text, want, Expand(text, values))
	}
	testkit.Equal(t, "command", []string{"1", "$(X)"}, ExpandAll([]string{"$(A)", "$(X)"}, values))
}

func TestQOSClass(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		out := v1.ResourceList{}
		for name, q := range map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: memory} {
			if q != "" {
				out[name] = resource.MustParse(q)
			}
		}
		return out
	}
	all := list("1", "1Gi")
	for _, tt := range []struct {
		name             string
		requests, limits v1.ResourceList // of the first container
		change           func(*v1.Pod)
		want             v1.PodQOSClass
	}{
		{"nothing", nil, nil, nil, v1.PodQOSBestEffort},
		{"requests", all, nil, nil, v1.PodQOSBurstable},
		{"equal", all, list("1000m", "1024Mi"), nil, v1.PodQOSGuaranteed},
		{"init container without", all, all, func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "i"}}
		}, v1.PodQOSBurstable},
		{"as it was", nil, nil, func(p *v1.Pod) { p.Status.QOSClass = v1.PodQOSGuaranteed }, v1.PodQOSGuaranteed},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{
			{Name: "app", Resources: v1.ResourceRequirements{Requests: tt.requests, Limits: tt.limits}},
		}}}
		if tt.change != nil {
			tt.change(p)
		}
		testkit.Equal(t, tt.name, tt.want, QOSClass(p))
	}
}

func made(name string, uid types.UID, annotations map[string]string) *v1.Pod {
	return looptest.Pod(name, func(p *v1.Pod) { p.UID, p.Annotations = uid, annotations })
}

func static(name string, uid types.UID) *v1.Pod {
	return made(name, uid, map[string]string{ConfigSourceAnnotation: FileSource, ConfigHashAnnotation: string(uid)})
}

func mirror(name string, uid types.UID, hash string) *v1.Pod {
	return made(name, uid, map[string]string{ConfigSourceAnnotation: APIServerSource, ConfigMirrorAnnotation: hash})
}

func uids(pods []*v1.Pod) string {
	var out []string
	for _, p := range pods {
		out = append(out, string(p.UID))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestManager(t *testing.T) {
	m := NewManager()
	// state compares pods, mirrors, orphaned mirrors, and what the UID of the mirror m is translated to.
	state := func(want string) {
		t.Helper()
		got := uids(m.Pods()) + "|" + uids(m.Mirrors()) + "|" + uids(m.OrphanedMirrors()) + "|" +
			string(m.TranslateUID("m"))
		testkit.Equal(t, "pods, mirrors, orphans, UID of m", want, got)
	}
	ofWeb := mirror("web", "m", "s")
	m.UpdatePod(ofWeb)
	state("|m|m|m")
	s := static("web", "s")
	m.UpdatePod(s)
	m.UpdatePod(made("bound", "b", map[string]string{ConfigSourceAnnotation: APIServerSource}))
	state("b s|m||s")
	p, _ := m.MirrorOf(s)
	testkit.Equal(t, "mirror of s", ofWeb, p)
	p, _ = m.PodOf(ofWeb)
	testkit.Equal(t, "pod of m", s, p)
	if _, ok := m.PodByUID("m"); ok {
		t.Error("a mirror is found by its UID")
	}
	p, _ = m.PodByUID("s")
	testkit.Equal(t, "pod s", s, p)
	testkit.Equal(t, "UID of s", types.UID("s"), m.TranslateUID("s"))
	// An edit of a manifest replaces the static pod by one with another UID; its mirror stays until it is replaced.
	m.RemovePod(s)
	state("b|m|m|m")
	m.UpdatePod(static("web", "s2"))
	state("b s2|m||s2")
	m.RemovePod(ofWeb)
	state("b s2|||m")
	if _, ok := m.MirrorOf(static("web", "s2")); ok {
		t.Error("the mirror is still known")
	}
}

func TestReconcileMirror(t *testing.T) {
	ending := mirror("web", "m", "s")
	ending.DeletionTimestamp = &metav1.Time{}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node-uid"}}
	gone := node.DeepCopy()
	gone.DeletionTimestamp = &metav1.Time{}
	for _, c := range []struct {
		name   string
		mirror *v1.Pod
		there  *v1.Pod // at the API server
		node   *v1.Node
		want   []string
	}{
		{"no mirror", nil, nil, node, []string{"create"}},
		{"good mirror", mirror("web", "m", "s"), mirror("web", "m", "s"), node, nil},
		{"being deleted", ending, ending, node, []string{"delete", "create"}},
		{"gone meanwhile", mirror("web", "m", "old"), nil, node, []string{"delete"}},
		{"exists already", nil, mirror("web", "m", "s"), node, []string{"create", "get"}},
		{"node deleted", nil, nil, gone, nil},
	} {
		client := fake.New()
		if c.there != nil {
			testkit.Must(t, client.Tracker().Add(c.there))
		}
		mirrors := NewMirrors(client, "n", func() *v1.Node { return c.node }, logr.Discard())
		mirrors.Reconcile(t.Context(), static("web", "s"), c.mirror)
		var got []string
		for _, a := range client.Actions() {
			got = append(got, a.GetVerb())
		}
		testkit.Equal(t, c.name, c.want, got)
	}
}

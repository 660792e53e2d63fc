package pod

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver/fake"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

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
		looptest.Equal(t, "pods, mirrors, orphans, UID of m", want, got)
	}
	ofWeb := mirror("web", "m", "s")
	m.UpdatePod(ofWeb)
	state("|m|m|m")
	s := static("web", "s")
	m.UpdatePod(s)
	m.UpdatePod(made("bound", "b", map[string]string{ConfigSourceAnnotation: APIServerSource}))
	state("b s|m||s")
	p, _ := m.MirrorOf(s)
	looptest.Equal(t, "mirror of s", ofWeb, p)
	p, _ = m.PodOf(ofWeb)
	looptest.Equal(t, "pod of m", s, p)
	if _, ok := m.PodByUID("m"); ok {
		t.Error("a mirror is found by its UID")
	}
	p, _ = m.PodByUID("s")
	looptest.Equal(t, "pod s", s, p)
	looptest.Equal(t, "UID of s", types.UID("s"), m.TranslateUID("s"))
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
			looptest.Must(t, client.Tracker().Add(c.there))
		}
		mirrors := NewMirrors(client, "n", func() *v1.Node { return c.node }, logr.Discard())
		mirrors.Reconcile(t.Context(), static("web", "s"), c.mirror)
		var got []string
		for _, a := range client.Actions() {
			got = append(got, a.GetVerb())
		}
		looptest.Equal(t, c.name, c.want, got)
	}
}

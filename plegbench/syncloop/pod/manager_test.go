package pod

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func made(name string, uid types.UID, annotations ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: uid, Annotations: map[string]string{}}}
	for i := 0; i < len(annotations); i += 2 {
		p.Annotations[annotations[i]] = annotations[i+1]
	}
	return p
}

func static(name string, uid types.UID) *v1.Pod {
	return made(name, uid, ConfigSourceAnnotation, FileSource, ConfigHashAnnotation, string(uid))
}

func mirror(name string, uid types.UID, hash string) *v1.Pod {
	return made(name, uid, ConfigSourceAnnotation, APIServerSource, ConfigMirrorAnnotation, hash)
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
	m.UpdatePod(mirror("web", "m", "s"))
	if orphans := m.OrphanedMirrors(); uids(orphans) != "m" {
		t.Errorf("orphans %v", orphans)
	}
	if got := m.TranslateUID("m"); got != "m" {
		t.Errorf("an orphaned mirror's UID became %q", got)
	}
	s := static("web", "s")
	m.UpdatePod(s)
	m.UpdatePod(static("alone", "a"))
	m.UpdatePod(made("bound", "b", ConfigSourceAnnotation, APIServerSource))
	if got := uids(m.Pods()) + "|" + uids(m.Mirrors()); got != "a b s|m" {
		t.Errorf("pods, mirrors: %s", got)
	}
	if p, ok := m.MirrorOf(s); !ok || p.UID != "m" {
		t.Errorf("mirror of s: %v", p)
	}
	if p, ok := m.PodOf(mirror("web", "m", "s")); !ok || p != s {
		t.Errorf("pod of m: %v", p)
	}
	if _, ok := m.PodByUID("m"); ok {
		t.Error("a mirror is found by its UID")
	}
	if p, ok := m.PodByUID("s"); !ok || p != s {
		t.Errorf("pod s: %v", p)
	}
	for uid, want := range map[types.UID]types.UID{"m": "s", "s": "s", "": "", "unknown": "unknown"} {
		if got := m.TranslateUID(uid); got != want {
			t.Errorf("UID %q became %q, want %q", uid, got, want)
		}
	}
	if orphans := m.OrphanedMirrors(); orphans != nil {
		t.Errorf("orphans %v", orphans)
	}
	// An edit of a manifest replaces the static pod by one with another UID; its mirror stays until it is replaced.
	m.RemovePod(s)
	if orphans := m.OrphanedMirrors(); uids(orphans) != "m" {
		t.Errorf("orphans %v after the removal", orphans)
	}
	m.UpdatePod(static("web", "s2"))
	if got := m.TranslateUID("m"); got != "s2" {
		t.Errorf("m became %q", got)
	}
	m.RemovePod(mirror("web", "m", "s"))
	if _, ok := m.MirrorOf(static("web", "s2")); ok || m.TranslateUID("m") != "m" {
		t.Error("the mirror is still known")
	}
}

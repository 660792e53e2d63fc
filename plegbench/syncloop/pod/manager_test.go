package pod

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	m.AddPod(mirror("web", "m", "s"))
	if diff := cmp.Diff([]string{"web_ns"}, m.OrphanedMirrorNames()); diff != "" {
		t.Error(diff)
	}
	if got := m.TranslateUID("m"); got != "m" {
		t.Errorf("an orphaned mirror's UID became %q", got)
	}
	s := static("web", "s")
	m.AddPod(s)
	m.AddPod(static("alone", "a"))
	m.AddPod(made("bound", "b", ConfigSourceAnnotation, APIServerSource))

	pods, mirrors := m.PodsAndMirrors()
	if got := uids(pods) + "|" + uids(mirrors) + "|" + uids(m.Pods()); got != "a b s|m|a b s" {
		t.Errorf("pods, mirrors, pods: %s", got)
	}
	if p, ok := m.MirrorOf(s); !ok || p.UID != "m" {
		t.Errorf("mirror of s: %v", p)
	}
	if p, ok := m.PodOf(mirror("web", "m", "s")); !ok || p != s {
		t.Errorf("pod of m: %v", p)
	}
	if _, ok := m.PodByUID("m"); ok {
		t.Error("a mirror is not found by its UID")
	}
	if p, ok := m.PodByUID("s"); !ok || p != s {
		t.Errorf("pod s: %v", p)
	}
	if p, ok := m.PodByFullName("web_ns"); !ok || p != s {
		t.Errorf("pod web_ns: %v", p)
	}
	for uid, want := range map[types.UID]types.UID{"m": "s", "s": "s", "": "", "unknown": "unknown"} {
		if got := m.TranslateUID(uid); got != want {
			t.Errorf("UID %q became %q, want %q", uid, got, want)
		}
	}
	if names := m.OrphanedMirrorNames(); names != nil {
		t.Errorf("orphans %v", names)
	}
}

// An edit of a manifest takes the old static pod away and brings one with another UID; its mirror stays until it is replaced.
func TestManagerEdit(t *testing.T) {
	m := NewManager()
	m.SetPods([]*v1.Pod{static("web", "s1"), mirror("web", "m1", "s1")})
	m.RemovePod(static("web", "s1"))
	if diff := cmp.Diff([]string{"web_ns"}, m.OrphanedMirrorNames()); diff != "" {
		t.Error(diff)
	}
	m.AddPod(static("web", "s2"))
	if got := m.TranslateUID("m1"); got != "s2" {
		t.Errorf("m1 became %q", got)
	}
	m.RemovePod(mirror("web", "m1", "s1"))
	if _, ok := m.MirrorOf(static("web", "s2")); ok {
		t.Error("the mirror is gone")
	}
	m.UpdatePod(mirror("web", "m2", "s2"))
	if got := m.TranslateUID("m2"); got != "s2" {
		t.Errorf("m2 became %q", got)
	}
	if got := m.TranslateUID("m1"); got != "m1" {
		t.Errorf("a removed mirror's UID became %q", got)
	}
	m.SetPods(nil)
	if pods, mirrors := m.PodsAndMirrors(); len(pods)+len(mirrors) > 0 {
		t.Errorf("%v %v remain", pods, mirrors)
	}
}

func TestIdentity(t *testing.T) {
	critical := made("p", "u")
	critical.Spec.Priority = new(int32(2_000_000_000))
	for _, c := range []struct {
		name string
		pod  *v1.Pod
		want [3]bool // mirror, static, critical
	}{
		{"bound", made("p", "u", ConfigSourceAnnotation, APIServerSource), [3]bool{}},
		{"no source", made("p", "u"), [3]bool{}},
		{"static", static("p", "u"), [3]bool{false, true, true}},
		{"mirror", mirror("p", "u", "h"), [3]bool{true, false, true}},
		{"priority", critical, [3]bool{false, false, true}},
		{"from a URL", made("p", "u", ConfigSourceAnnotation, HTTPSource), [3]bool{false, true, true}},
	} {
		if got := [3]bool{IsMirror(c.pod), IsStatic(c.pod), IsCritical(c.pod)}; got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := Format(made("p", "u")); got != "ns/p" {
		t.Errorf("formatted as %q", got)
	}
	seen := made("p", "u", ConfigFirstSeenAnnotation, "now")
	if seen.Annotations["kubernetes.io/config.seen"] != "now" {
		t.Errorf("annotations %v", seen.Annotations)
	}
}

package advisories_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/checks/advisories"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/internal/testkit"
)

func ids(list []advisories.Advisory) []string {
	var out []string
	for _, a := range list {
		out = append(out, a.ID)
	}
	return out
}

// TestRows checks every row beyond what Parse does: its causes exist, no version with the fix is affected, and each
// source is an address.
func TestRows(t *testing.T) {
	all := advisories.All()
	if len(all) < 30 {
		t.Errorf("%d advisories", len(all))
	}
	var components []string
	for _, a := range all {
		components = append(components, a.Component)
		if len(a.Title) > 90 || strings.HasSuffix(a.Title, ".") {
			t.Errorf("%s: the title is a sentence, or too long: %q", a.ID, a.Title)
		}
		for _, code := range a.Causes {
			if _, ok := causes.Doc(code); !ok {
				t.Errorf("%s: there is no cause %s", a.ID, code)
			}
		}
		affects := func(v string) bool {
			return slices.Contains(ids(advisories.Match(advisories.Versions{a.Component: v}, a.Causes...)), a.ID)
		}
		words := ""
		for _, r := range a.Affected {
			first := "0.1"
			for term := range strings.FieldsSeq(r) {
				if v := strings.TrimLeft(term, ">="); v != term {
					first = v
				} else if !strings.HasPrefix(term, "<") {
					words = "." + term
				}
			}
			if !affects(first + words) {
				t.Errorf("%s: %s is not in %q", a.ID, first+words, r)
			}
		}
		for _, v := range a.Fixed {
			if affects(v + words) {
				t.Errorf("%s: %s has the fix, and is in %q", a.ID, v, a.Affected)
			}
		}
		for _, s := range a.Sources {
			u, err := url.Parse(s)
			if err != nil || u.Scheme != "https" || u.Host == "" || len(u.Path) < 5 {
				t.Errorf("%s: source %q", a.ID, s)
			}
		}
		if len(a.Sources) == 0 || a.Thread() == a.ID {
			t.Errorf("%s names no thread", a.ID)
		}
	}
	want := []string{"containerd", "cri-o", "docker", "kubelet", "kernel", "systemd", "runc"}
	testkit.Equal(t, "components", want, slices.Compact(components))
}

// TestMatch has versions as runtimes, kubelets, kernels and packages write them.
func TestMatch(t *testing.T) {
	for _, c := range []struct{ component, version, code, want string }{
		{"containerd", "1.7.4", causes.InspectHang, "containerd-9103 ttrpc-168"}, // a range with both ends before one without
		{"containerd", "v1.7.3", causes.ShimStuck, "containerd-7496 containerd-13355"},
		{"containerd", "1.6.20~ds1-1+deb12u1", causes.ShimStuck, "containerd-7496 containerd-13355"},
		{"containerd", "2.3.3", causes.ShimStuck, ""},
		{"containerd", "2.0.0-rc.2", causes.ShimStuck, ""}, // a pre-release is not compared
		{"kubelet", "v1.21.3-eks-bc4871b", causes.CgroupFrozen, "kubernetes-104280"},
		{"kubelet", "v1.22.0", causes.CgroupFrozen, "kubernetes-104280"}, // a single version
		{"kubelet", "v1.22.1", causes.CgroupFrozen, ""},
		{"kernel", "5.4.217-126.408.amzn2.x86_64", causes.InspectHang, "amazon-eks-ami-1071"},
		{"kernel", "5.4.217-generic", causes.InspectHang, ""}, // the same numbers of another distribution
		{"kernel", "5.4.0-132-generic", causes.InspectHang, "containerd-7717"},
		{"kernel", "6.6.141.1-1.azl3", causes.KernelHung, "azurelinux-18443"},
		{"kernel", "unknown", causes.ShimStuck, ""},
		{"systemd", "239 (239-45.el8)", causes.SystemdWedged, ""},
		{"systemd", "systemd 245 (245.4-4ubuntu3.2)", causes.SystemdWedged, "systemd-8703"},
		{"systemd", "241", causes.SystemdWedged, "systemd-8703 systemd-11809"},
	} {
		found := advisories.Match(advisories.Versions{c.component: c.version}, c.code)
		testkit.Equal(t, c.component+" "+c.version+", "+c.code, c.want, strings.Join(ids(found), " "))
	}
	want := advisories.Versions{"containerd": "1.7.4", "kubelet": "v1.22.0", "kernel": "5.4.0"}
	testkit.Equal(t, "versions of a node", want, advisories.NodeVersions("containerd://1.7.4", "v1.22.0", "5.4.0"))
}

func TestFixedAfter(t *testing.T) {
	a, _ := advisories.Lookup("Containerd-7496")
	for have, want := range map[string]string{"1.6.20": "1.6.24", "v1.7.2": "1.7.4", "1.7.4": "", "?": ""} {
		testkit.Equal(t, "what fixes "+have, want, a.FixedAfter(have))
	}
}

// TestParse has lists that somebody may have written.
func TestParse(t *testing.T) {
	const row = "- {id: x-1, component: containerd, title: t, affected: [<1.7.4], causes: [ShimStuck], symptom: s, " +
		"fix: f, checked: 2027-01-02"
	for _, c := range []struct{ text, want string }{
		{row + "}", ""},
		{row + ", fixed: [1.7.4], seen: leftover}", ""},
		{row + "}\n" + row + "}", `row 2: id "x-1" is not one of its own`},
		{row + ", seen: '('}", "x-1: seen: error parsing regexp"},
		{row + ", fixed: [soon]}", `x-1: affected ["<1.7.4"], fixed ["soon"]: not ranges and versions`},
		{strings.Replace(row, "<1.7.4", "1.7.4", 1) + "}", "not ranges and versions"},
		{strings.Replace(row, "[ShimStuck]", "[]", 1) + "}", "x-1 is not complete"},
		{strings.Replace(row, "x-1", "x", 1) + "}", `row 1: id "x"`},
		{"", "it has no advisory"},
	} {
		all, err := advisories.Parse([]byte(c.text))
		testkit.Failed(t, c.text, err, c.want)
		if err == nil && advisories.Date(all) != "2027-01-02" {
			t.Errorf("%s: of %s", c.text, advisories.Date(all))
		}
	}
}

// FuzzParse reads lists, and uses what it could read.
func FuzzParse(f *testing.F) {
	f.Add([]byte("- {id: x-1, component: runc, title: t, affected: [<1 amzn2], causes: [A], symptom: s, fix: f, " +
		"checked: 2027-01-02}"))
	f.Add([]byte("- &a {id: x-1}\n- *a"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := advisories.Parse(text)
		for _, a := range all {
			a.Shows("x", a.Title, a.Thread(), a.FixedAfter("1.7.2"))
		}
		if (err == nil) != (len(all) > 0) {
			t.Error(err)
		}
	})
}

// FuzzMatch looks for versions that cannot be taken, and for one that is affected although it has the fix.
func FuzzMatch(f *testing.F) {
	for _, v := range []string{
		"1.7.2", "v1.7.2", "1.6.20~ds1-1+deb12u1", "5.4.217-126.408.amzn2.x86_64", "252 (252.22-1~deb12u1)", "239",
		"00.1", "1.-2", "18446744073709551616.1", "1.7.2-rc.1", "",
	} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		for _, a := range advisories.All() {
			have := advisories.Versions{a.Component: v}
			hit := slices.Contains(ids(advisories.Match(have, a.Causes...)), a.ID)
			if hit && len(a.Fixed) > 0 && a.FixedAfter(v) == "" {
				t.Errorf("%q is affected by %s, and comes after all its fixes", v, a.ID)
			}
		}
		advisories.Packaged(v)
	})
}

package signature

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// causes are the codes of kdiag explain.
func causes() []string {
	return strings.Fields(`RuntimeDown RuntimeHung RuntimeSlow RuntimeNotReady RuntimeUnsupported NetworkNotReady CNIHung ListHang InspectHang
		ImageServiceHung TooManyExited ListTooLarge RelistOverloaded KubeletDown KubeletCrashLooping KubeletStalled PLEGUnhealthy CertificateExpired
		APIServerUnreachable DiskFull InodesExhausted IOStall FilesystemHung MemoryPressure OOMKilled CPUStarved PIDsExhausted FilesExhausted
		InotifyExhausted TaskStuck ShimStuck CgroupFrozen SystemdWedged KernelHung CgroupDriverMismatch MountsExploded CgroupsLeaked ClockJumped`)
}

func TestCatalogueIsComplete(t *testing.T) {
	markers := []Marker{"", Start, Stop, Restart, Error, Warning, Recovery}
	seen := map[string]bool{}
	last := ""
	for _, s := range Catalogue() {
		if seen[s.Code] {
			t.Errorf("%s: twice", s.Code)
		}
		seen[s.Code] = true
		if place := string(s.Lane) + " " + s.Code; place < last {
			t.Errorf("%s after %s", place, last)
		} else {
			last = place
		}
		if !slices.Contains([]Lane{Kubelet, Runtime, Kernel, Node}, s.Lane) || !slices.Contains(markers, s.Marker) {
			t.Errorf("%s: lane %q, marker %q", s.Code, s.Lane, s.Marker)
		}
		for what, text := range map[string]string{"Title": s.Title, "Means": s.Means, "Versions": s.Versions} {
			if len(text) < 4 {
				t.Errorf("%s: %s says nothing: %q", s.Code, what, text)
			}
		}
		if !strings.HasSuffix(s.Means, ".") || strings.HasSuffix(s.Title, ".") || len(s.Title) > 60 {
			t.Errorf("%s: title %q, means %q", s.Code, s.Title, s.Means)
		}
		if len(s.Sources) == 0 || len(s.Literals) == 0 {
			t.Errorf("%s: %d sources, %d literals", s.Code, len(s.Sources), len(s.Literals))
		}
		for _, c := range s.Implies {
			if !slices.Contains(causes(), c) {
				t.Errorf("%s implies %s, which is no cause", s.Code, c)
			}
		}
		for _, l := range s.Literals {
			if len(l) < window {
				t.Errorf("%s: %q is shorter than %d bytes and would not be found", s.Code, l, window)
			}
		}
	}
	if !seen[PLEGNotHealthy] {
		t.Error("no PLEGNotHealthy")
	}
	if len(seen) > maxEntries {
		t.Errorf("%d signatures; the matcher has room for %d", len(seen), maxEntries)
	}
	if n := len(unique(entries())); n > maxLiterals {
		t.Errorf("%d literals; the matcher has room for %d", n, maxLiterals)
	}
}

// TestCatalogueIsOnesOwn wants each caller to be free to change its copy.
func TestCatalogueIsOnesOwn(t *testing.T) {
	a := Catalogue()
	a[0].Literals[0] = "changed"
	if Catalogue()[0].Literals[0] == "changed" {
		t.Error("a change shows in the next copy")
	}
}

// bearing builds the shortest record that a form describes.
func bearing(f form) string {
	var b strings.Builder
	if len(f.lead) > 0 {
		b.WriteString(f.lead[0])
	}
	if f.role && len(f.lead) == 0 {
		b.WriteString("kubelet.service: ")
	}
	if len(f.rpcs) > 0 {
		b.WriteString(f.rpcs[0] + " ")
	}
	b.WriteString(f.has)
	for _, s := range f.and {
		b.WriteString(" " + s)
	}
	if len(f.or) > 0 {
		b.WriteString(" " + f.or[0])
	}
	return b.String()
}

func codes(hits []Hit) []string {
	out := []string{}
	for _, h := range hits {
		out = append(out, h.Signature.Code)
	}
	return out
}

// TestEveryForm tries each form of each signature, and each text that rules it out.
func TestEveryForm(t *testing.T) {
	for _, e := range entries() {
		var others []string
		for _, s := range Catalogue() {
			if s.Code != e.Code {
				others = append(others, s.Code)
			}
		}
		m := NewMatcher(others...)
		for _, f := range e.forms {
			for _, record := range []string{bearing(f), "Mar 05 10:11:12 n systemd[1]: " + bearing(f), "x\n" + bearing(f) + "\n"} {
				if got := codes(m.Match([]byte(record), nil)); !cmp.Equal(got, []string{e.Code}) {
					t.Errorf("%s: %q bears %v", e.Code, record, got)
				}
			}
			for _, not := range f.not {
				record := []byte(bearing(f) + " " + not)
				if got := m.Match(record, nil); len(got) > 0 && !otherForm(e, f, string(record)) {
					t.Errorf("%s: %q is ruled out, yet bears it", e.Code, record)
				}
			}
			if len(f.rpcs) > 0 {
				record := "GetContainerEvents " + f.has
				if got := m.Match([]byte(record), nil); len(got) > 0 {
					t.Errorf("%s: %q bears it, whatever the call", e.Code, record)
				}
			}
			if f.role {
				record := strings.NewReplacer("kubelet.service", "foo.service").Replace(bearing(f))
				if len(f.lead) == 0 && len(m.Match([]byte(record), nil)) > 0 {
					t.Errorf("%s: %q bears it, whatever the unit", e.Code, record)
				}
			}
		}
	}
}

// otherForm reports whether another form of the entry has its literal in the record.
func otherForm(e entry, not form, record string) bool {
	return slices.ContainsFunc(e.forms, func(f form) bool {
		return !cmp.Equal(f, not, cmp.AllowUnexported(form{})) && strings.Contains(record, f.has)
	})
}

func TestLeave(t *testing.T) {
	m := NewMatcher(SyncLoopActive, PLEGNotHealthy)
	for _, s := range []string{`"SyncLoop ADD" source="api"`, "PLEG is not healthy: x"} {
		if m.Next([]byte(s)) >= 0 || len(m.Match([]byte(s), nil)) > 0 {
			t.Errorf("%q is found although its signature was left out", s)
		}
	}
	if got := codes(m.Match([]byte("[container runtime is down, PLEG is not healthy: x]"), nil)); !cmp.Equal(got, []string{RuntimeIsDown}) {
		t.Errorf("got %v", got)
	}
}

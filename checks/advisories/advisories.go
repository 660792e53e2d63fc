// Package advisories lists known bugs of runtimes, kernels, systemd and the kubelet that end in an unhealthy PLEG or a
// NotReady node, each with the threads that prove it. The list is advisories.yaml, where comments explain the fields.
package advisories

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

//go:embed advisories.yaml
var data []byte

// An Advisory is a known bug.
type Advisory struct {
	ID        string   `json:"id"`             // containerd-7496: project and number of the thread
	Component string   `json:"component"`      // containerd, runc, cri-o, kernel, systemd, kubelet, docker
	Title     string   `json:"title"`          // what happens, in a line
	Affected  []string `json:"affected"`       // ranges of versions: ">=1.6.0 <1.6.9"
	Fixed     []string `json:"fixed"`          // versions with the fix, one per branch; empty where there is none yet
	Causes    []string `json:"causes"`         // codes of the causes as which it shows
	Seen      string   `json:"seen,omitempty"` // an expression that such a cause's texts match besides
	Symptom   string   `json:"symptom"`        // what is seen on the node
	Fix       string   `json:"fix"`            // what to do about it
	Note      string   `json:"note,omitempty"` // what the sources leave open
	Sources   []string `json:"sources"`        // addresses of the threads
	Checked   string   `json:"checked"`        // the day on which they were read, 2006-01-02
}

var list = sync.OnceValue(func() []Advisory {
	all, err := Parse(data)
	if err != nil {
		panic("advisories.yaml: " + err.Error()) // it is a part of the program
	}
	return all
})

// rangeTerm is a term of a range: a sign with a version, or a word.
var rangeTerm = lazyregexp.New(`^(?:[<>]=?|=)\d+(?:[.-]\d+)*$|^[a-z][a-z0-9]*$`)

// Parse reads a list in the form of advisories.yaml. A row that could not be used is an error, which names it.
func Parse(text []byte) ([]Advisory, error) {
	var all []Advisory
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("it has no advisory")
	}
	seen := map[string]bool{}
	for i, a := range all {
		project, number, _ := strings.Cut(a.ID, "-")
		_, date := time.Parse(time.DateOnly, a.Checked)
		_, expression := regexp.Compile(a.Seen)
		fixed := slices.ContainsFunc(a.Fixed, func(v string) bool { return !rangeTerm.MatchString("<" + v) })
		terms := strings.Fields(strings.Join(a.Affected, " "))
		switch {
		case project == "" || number == "" || seen[a.ID]:
			return nil, fmt.Errorf("row %d: id %q is not one of its own, such as containerd-7496", i+1, a.ID)
		case a.Component == "" || a.Title == "" || a.Symptom == "" || a.Fix == "" || len(a.Causes) == 0:
			return nil, fmt.Errorf("%s is not complete", a.ID)
		case len(terms) == 0 || fixed || slices.ContainsFunc(terms, func(t string) bool { return !rangeTerm.MatchString(t) }):
			return nil, fmt.Errorf("%s: affected %q, fixed %q: not ranges and versions", a.ID, a.Affected, a.Fixed)
		case expression != nil:
			return nil, fmt.Errorf("%s: seen: %w", a.ID, expression)
		case date != nil:
			return nil, fmt.Errorf("%s: checked: %w", a.ID, date)
		}
		seen[a.ID] = true
	}
	return all, nil
}

// Date returns the day on which the last row of a list was checked, 2006-01-02.
func Date(rows []Advisory) string {
	newest := ""
	for _, a := range rows {
		newest = max(newest, a.Checked)
	}
	return newest
}

// added are the rows of a file that Add was given.
var added atomic.Pointer[[]Advisory]

// Add adds rows to those of the program, for all that this process judges from now on. A row replaces the one of its
// ID.
func Add(rows []Advisory) { added.Store(&rows) }

// All returns every advisory, by component and ID.
func All() []Advisory {
	rows := added.Load()
	if rows == nil {
		return slices.Clone(list())
	}
	all := slices.DeleteFunc(slices.Clone(list()), func(a Advisory) bool {
		return slices.ContainsFunc(*rows, func(b Advisory) bool { return strings.EqualFold(a.ID, b.ID) })
	})
	return slices.SortedStableFunc(slices.Values(append(all, *rows...)), func(a, b Advisory) int {
		return cmp.Compare(place(a.Component), place(b.Component))
	})
}

// place returns where a component stands in the program's list, the end for one that is not in it.
func place(component string) int {
	i := slices.IndexFunc(list(), func(a Advisory) bool { return a.Component == component })
	if i < 0 {
		return len(list())
	}
	return i
}

// Lookup returns the advisory of an ID, in any case.
func Lookup(id string) (Advisory, bool) {
	for _, a := range All() {
		if strings.EqualFold(a.ID, id) {
			return a, true
		}
	}
	return Advisory{}, false
}

// Thread names the thread as GitHub does: containerd#7496.
func (a Advisory) Thread() string {
	i := strings.LastIndexByte(a.ID, '-')
	return a.ID[:i] + "#" + a.ID[i+1:]
}

// FixedAfter returns the first version after v with the fix; empty where there is none.
func (a Advisory) FixedAfter(v string) string {
	i := slices.IndexFunc(a.Fixed, func(fixed string) bool { return within(v, "<"+fixed) })
	if i < 0 {
		return ""
	}
	return a.Fixed[i]
}

// Shows reports whether the texts about a cause hold what tells this bug from others with that cause.
func (a Advisory) Shows(texts ...string) bool {
	return slices.ContainsFunc(texts, regexp.MustCompile(a.Seen).MatchString)
}

// Versions are the versions of a node's components, by component: "containerd": "1.7.2".
type Versions map[string]string

// NodeVersions returns the versions of a node as its Node object has them: the runtime as containerd://1.7.2, the
// kubelet as v1.33.1, the kernel as uname -r prints it. Any may be empty.
func NodeVersions(runtime, kubelet, kernel string) Versions {
	name, v, _ := strings.Cut(runtime, "://")
	return Versions{strings.ToLower(name): v, "kubelet": kubelet, "kernel": kernel}
}

// Match returns the advisories that fit the versions of a node and show as one of the causes, by their codes. Those
// with the most terms in the range come first. A version that cannot be read, and that of a pre-release, fits none.
func Match(have Versions, codes ...string) []Advisory {
	terms := func(a Advisory) (most int) {
		for _, r := range a.Affected {
			if within(have[a.Component], r) {
				most = max(most, len(strings.Fields(r)))
			}
		}
		return most
	}
	all := slices.DeleteFunc(All(), func(a Advisory) bool {
		return !slices.ContainsFunc(codes, func(c string) bool { return slices.Contains(a.Causes, c) }) || terms(a) == 0
	})
	slices.SortStableFunc(all, func(a, b Advisory) int { return terms(b) - terms(a) })
	return all
}

var (
	inBrackets = lazyregexp.New(`^\d+ \((.*)\)`) // systemd 252 (252.22-1~deb12u1)
	numbers    = lazyregexp.New(`^[vV]?(\d+(?:[.-]\d+)*)(.*)`)
	preRelease = lazyregexp.New(`^[-~.+]?(?i:alpha|beta|rc|dev|pre)`)
	words      = lazyregexp.New(`[a-z0-9]+`)
)

// split returns the numbers of a version with dots between them, and what follows them, which is who built it. A dash
// before a number counts as a dot: the fourth number of 5.4.0-135-generic counts builds.
func split(v string) (dotted, rest string) {
	v = strings.TrimPrefix(v, "systemd ")
	if m := inBrackets.FindStringSubmatch(v); m != nil {
		v = m[1]
	}
	m := numbers.FindStringSubmatch(v)
	if m == nil {
		return "", v
	}
	return strings.ReplaceAll(m[1], "-", ".") + ".0", m[2] // ParseGeneric wants two numbers at least
}

// Packaged reports whether a version is a build of a distribution, which may have fixes of later versions.
func Packaged(v string) bool {
	dotted, rest := split(v)
	return dotted != "" && rest != ""
}

// within reports whether a version is in a range.
func within(v, span string) bool {
	dotted, rest := split(v)
	n, err := version.ParseGeneric(dotted)
	if err != nil || preRelease.MatchString(rest) {
		return false
	}
	return !slices.ContainsFunc(strings.Fields(span), func(term string) bool {
		other := strings.TrimLeft(term, "<=>")
		if other == term {
			return !slices.Contains(words.FindAllString(v, -1), term)
		}
		dotted, _ := split(other)
		sign, err := n.Compare(dotted)
		return err != nil || !strings.Contains(term, "<=>"[sign+1:sign+2])
	})
}

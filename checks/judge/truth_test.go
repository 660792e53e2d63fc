package judge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/internal/testkit"
)

var importFrom = flag.String("import", "", "pack the runs in this folder into testdata/truth")

// none stands for no cause.
const none = "none"

// A run is a fault that was made on a real node, and the facts of a kdiag bundle of that time. An end-to-end test
// writes one as NAME.json into the folder that KDIAG_TRUTH names:
//
//	{"fault": "disk full, containerd 2.3.4", "want": ["DiskFull"], "culprits": ["/data"], "facts": ...}
//
// want are the causes any of which may come first: one, or two where two faults were made at once; none on a healthy
// node. culprits are an id, a name or a pod of its subject, as far as the test knows them. facts are facts.json of the
// archive, as they are. The test judges them anew and keeps nothing that kdiag found then. testdata/truth has the runs
// as NAME.json.zst, where "go test ./checks/judge -run TestTruth -import /FOLDER -update" puts them. zstdcat shows one.
type run struct {
	Fault    string      `json:"fault"`
	Want     []string    `json:"want"`
	Culprits []string    `json:"culprits,omitempty"`
	Facts    facts.Input `json:"facts"`
}

// readRun reads a run, packed or not.
func readRun(path string) (run, error) {
	text, err := os.ReadFile(path)
	if err == nil && strings.HasSuffix(path, ".zst") {
		var z *zstd.Decoder
		if z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1)); err == nil {
			defer z.Close()
			text, err = z.DecodeAll(text, nil)
		}
	}
	var r run
	if err == nil {
		err = decode(text, &r)
	}
	for _, code := range r.Want {
		if d, ok := causes.Lookup(code); err == nil && (!ok || d.Code != code) {
			err = fmt.Errorf("%q is not a cause", code)
		}
	}
	if err != nil {
		return run{}, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// pack writes the runs of a folder into another one. The same run is always the same bytes.
func pack(from, to string) error {
	paths, _ := filepath.Glob(filepath.Join(from, "*.json")) // which is good
	if len(paths) == 0 {
		return fmt.Errorf("%s holds no run", from)
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		return err
	}
	defer z.Close()
	for _, path := range paths {
		r, err := readRun(path)
		if err != nil {
			return err
		}
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		packed := filepath.Join(to, filepath.Base(path)+".zst")
		if err := os.WriteFile(packed, z.EncodeAll(text, nil), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// A ruling is the first cause that is named of a fault, none for no cause.
type ruling struct {
	fault, want, got string
	confidence       float64
	right            bool
	healthy          bool              // the node is called so
	critical         bool              // a critical cause is named
	culprit          string            // the subject that is blamed though the fault has another; empty where it is right
	groups           map[string]string // the heading of a table to the row that it counts in
}

func rule(fault string, want, culprits []string, in *facts.Input) ruling {
	r := ruling{fault: fault, want: strings.Join(want, " or "), got: none, right: len(want) == 0}
	if named := Judge(in); len(named) > 0 {
		first := named[0]
		r.got, r.confidence = first.Code, first.Confidence
		r.critical = slices.ContainsFunc(named, func(c checks.Cause) bool { return c.Severity == checks.Critical })
		r.right = slices.Contains(want, first.Code) || len(want) == 0 && !r.critical
		if s := first.Subject; s != nil && len(culprits) > 0 && !slices.ContainsFunc(
			append(slices.Clone(first.Related), *s), func(s checks.Subject) bool { return isSubject(s, culprits) }) {
			r.culprit = cmp.Or(s.Label(), s.Kind)
		}
	}
	r.groups = map[string]string{
		"runtime": "not asked", "control groups": "not read", "wanted cause": "none: a healthy node",
	}
	if runtime := in.Runtime; runtime.Name != "" {
		parts := strings.SplitN(runtime.Version, ".", 3)
		r.groups["runtime"] = strings.TrimSpace(runtime.Name + " " + strings.Join(parts[:min(len(parts), 2)], "."))
	}
	if in.Node != nil && in.Node.Cgroups.Value.Version > 0 {
		r.groups["control groups"] = fmt.Sprintf("version %d", in.Node.Cgroups.Value.Version)
	}
	if len(want) > 0 {
		doc, _ := causes.Doc(want[0])
		r.groups["wanted cause"] = doc.Area
	}
	r.want, r.healthy = cmp.Or(r.want, none), NewReport(checks.Header{}, in).Status == checks.Healthy
	return r
}

// isSubject reports whether a subject has all the names, each an id, a name or a pod.
func isSubject(s checks.Subject, names []string) bool {
	own := []string{s.ID, s.Name, s.Pod}
	for _, p := range s.Processes {
		own = append(own, strconv.Itoa(p.PID))
	}
	return !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(own, name) })
}

// TestTruth judges the recorded cases and the runs, and compares how often the first cause is right with its
// confidence. docs/truth.md has the table, and every wrong one by name. It holds the promise of docs/faq.md: no fault
// is HEALTHY, and no control critical.
func TestTruth(t *testing.T) {
	const folder = "testdata/truth"
	if *importFrom != "" {
		must(t, os.MkdirAll(folder, 0o755), pack(*importFrom, folder))
	}
	var all []ruling
	recorded := gallery()
	for _, dir := range slices.Sorted(maps.Keys(recorded)) {
		var want []string
		if d, ok := causes.Lookup(strings.ReplaceAll(filepath.Base(dir), "_", "-")); ok {
			want = []string{d.Code}
		}
		if NewReport(checks.Header{}, recorded[dir]).Status != checks.Unknown {
			all = append(all, rule("recorded: "+filepath.Base(dir), want, nil, recorded[dir]))
		}
	}
	promised := promise(t)
	nodes, _ := scenarios()
	for _, s := range nodes {
		want, ok := promised[s.name]
		if control := strings.HasPrefix(s.name, "control: "); ok || control {
			r := rule("recorded: "+s.name, want, nil, node(t, s.lines))
			if r.want == anyEffect {
				r.right, r.want, r.groups["wanted cause"] = !r.healthy, "anything", "an effect, and no known cause"
			}
			all = append(all, r)
		}
		delete(promised, s.name)
	}
	cases := len(all)
	paths, _ := filepath.Glob(folder + "/*.zst") // which is good
	for _, path := range paths {
		r, err := readRun(path)
		must(t, err)
		all = append(all, rule("real: "+r.Fault, r.Want, r.Culprits, &r.Facts))
		name := strings.TrimSuffix(filepath.Base(path), ".json.zst")
		if want, ok := promised[name]; ok && !slices.Equal(want, r.Want) {
			t.Errorf("testdata/promise.txt: %s is %q, want %q", name, r.Want, want)
		}
		delete(promised, name)
	}
	for name := range promised {
		t.Errorf("testdata/promise.txt: there is no case %q", name)
	}
	controls := 0
	for _, r := range all {
		switch {
		case r.want != none && r.healthy:
			t.Errorf("%s: HEALTHY, it is %s", r.fault, r.want)
		case r.want == none && r.critical:
			t.Errorf("%s: %s is critical, and nothing is wrong", r.fault, r.got)
		case r.want == none:
			controls++
		}
	}
	if controls < 50 {
		t.Errorf("%d controls", controls)
	}
	testkit.Golden(t, "../../docs/truth.md", truthPage(t, all, cases))
}

// anyEffect stands for any finding: that the node is not HEALTHY is all that is wanted.
const anyEffect = "effect"

// promise reads testdata/promise.txt: the faults on which kdiag may never again say HEALTHY, by their cases.
func promise(t *testing.T) map[string][]string {
	_, rows, _ := strings.Cut(testkit.Read(t, "testdata/promise.txt"), "\n\n")
	promised := map[string][]string{}
	for row := range strings.Lines(rows) {
		f := strings.Split(strings.TrimSpace(row), " | ")
		if len(f) != 3 {
			t.Fatalf("testdata/promise.txt: %q", row)
		}
		promised[f[2]] = strings.Split(f[1], ", ")
	}
	return promised
}

// truthPage makes the page of all rulings, of which the first are of the recorded cases, and compares them with the
// goals.
func truthPage(t *testing.T, all []ruling, cases int) string {
	t.Helper()
	var doc, wrong bytes.Buffer
	fmt.Fprintf(&doc, `# How often the first cause is right

%d verdicts: %d recorded cases of [checks/causes](../checks/causes) and [checks/judge](../checks/judge), and %d real
faults. A verdict is right when the first cause is the fault that was made, and when nothing critical is named on a
node without a fault. The recorded cases were made with the program, one for each cause: they show that it still
recognises what it did, and say little about other faults, on which it is right less often. Among them are the faults
on which kdiag node once said HEALTHY ([list](../checks/judge/testdata/promise.txt)) and healthy nodes that look odd. A
real fault is made on a real node by an end-to-end test, and its facts, as kdiag bundle collects them, are judged anew
here. Blaming somebody else with a confidence above 0.5 fails the test, and so do HEALTHY on a node with a fault, and a
critical cause on one without.

`+"`KDIAG_TRUTH=FOLDER make e2e` writes the facts of the real faults into a folder. "+
		"`go test ./checks/judge -run TestTruth -import FOLDER\n-update` adds them and writes this page."+`

| confidence of the first cause | verdicts | right | goal |
|---|---|---|---|
`, len(all), cases, len(all)-cases)
	for _, band := range []struct {
		name            string
		low, high, goal float64 // the goal is a share of the verdicts
	}{
		{"0.8 to 1", 0.8, 1.01, 0.95},
		{"0.5 to 0.8", 0.5, 0.8, 0.7},
		{"below 0.5", 0.001, 0.5, 0},
		{"nothing named", 0, 0.001, 0},
	} {
		n, right := 0, 0
		for _, r := range all {
			switch {
			case r.confidence < band.low || r.confidence >= band.high:
				continue
			case r.right:
				right++
			default:
				fmt.Fprintf(&wrong, "- %s: %s (%.2f), it is %s\n", r.fault, r.got, r.confidence, r.want)
			}
			n++
		}
		share, goal := float64(right)/float64(max(n, 1)), "-"
		if n > 0 && share < band.goal {
			t.Errorf("with a confidence of %s, %d of %d are right", band.name, right, n)
		}
		if band.goal > 0 {
			goal = fmt.Sprintf("%.0f%%", 100*band.goal)
		}
		fmt.Fprintf(&doc, "| %s | %d | %d (%d%%) | %s |\n", band.name, n, right, int(100*share), goal)
	}
	for _, heading := range []string{"runtime", "control groups", "wanted cause"} {
		rows := map[string][2]int{}
		for _, r := range all {
			row := rows[r.groups[heading]]
			row[0]++
			if r.right {
				row[1]++
			}
			rows[r.groups[heading]] = row
		}
		fmt.Fprintf(&doc, "\n| %s | verdicts | right |\n|---|---|---|\n", heading)
		for _, name := range slices.Sorted(maps.Keys(rows)) {
			fmt.Fprintf(&doc, "| %s | %d | %d |\n", name, rows[name][0], rows[name][1])
		}
	}
	for _, r := range all {
		if r.culprit == "" {
			continue
		}
		fmt.Fprintf(&wrong, "- %s: %s (%.2f) blames %s\n", r.fault, r.got, r.confidence, r.culprit)
		if r.confidence > 0.5 {
			t.Errorf("%s: %s blames %s with a confidence of %.2f", r.fault, r.got, r.culprit, r.confidence)
		}
	}
	if wrong.Len() == 0 {
		wrong.WriteString("None.\n")
	}
	fmt.Fprintf(&doc, "\n## Wrong\n\n%s", wrong.String())
	return doc.String()
}

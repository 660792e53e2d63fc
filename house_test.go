// Package kdiag_test holds the rules of the house that no compiler checks: who may import whom, that every package
// says what it is, that lists are complete and nothing generated is stale. docs/architecture.md says why.
package kdiag_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/internal/testkit"
)

const module = "github.com/kdiag/kdiag"

type listed struct {
	ImportPath string
	Doc        string
	Imports    []string
	GoFiles    []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-tags=e2e", "-json=ImportPath,Doc,Imports,GoFiles",
		"./...").Output()
	testkit.Must(t, err)
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p listed
		testkit.Must(t, dec.Decode(&p))
		all = append(all, p)
	}
	return all
}

// under reports whether an import path is the package of ours at dir, or below it.
func under(path, dir string) bool {
	full := module + "/" + dir
	return path == full || strings.HasPrefix(path, full+"/")
}

// TestImports has what each package may import, and wants a comment on it.
func TestImports(t *testing.T) {
	// Outside packages that only some of our folders may import, by prefix.
	fenced := []struct{ prefix, in string }{
		{"github.com/spf13/cobra", "cmd"},
		{"github.com/spf13/pflag", "cmd"},
		{"github.com/charmbracelet/", "cmd/internal/render"},
		{"google.golang.org/grpc", "crictl cmd/e2e/nodebox"},
		{"google.golang.org/protobuf", "crictl"},
		{"k8s.io/cri-api", "cmd/e2e/nodebox crictl plegbench"},
		{"os/exec", "checks/host cmd/e2e cmd/internal/mcpcmd journal"},
		{"github.com/klauspost/compress", "checks/bundle checks/recorder journal"},
		{"github.com/godbus/", "checks/host"},
		{"github.com/coreos/go-systemd/", "checks/host cmd/internal/agentcmd crictl/kubeletconfig journal plegbench/syncloop"},
		{"github.com/pierrec/lz4", "journal/journalfile"},
		{"github.com/ulikunitz/xz", "journal"},
		{"github.com/fsnotify/fsnotify", "plegbench/syncloop/config"},
		{"github.com/prometheus/", "checks/agent checks/host checks/kubelet cmd/e2e/nodebox plegbench/syncloop"},
		{"github.com/go-logr/", "crictl/remote plegbench/syncloop cmd/internal/syncloopcmd"},
		{"k8s.io/api/", "checks/agent checks/fleet plegbench/syncloop"},
		{"k8s.io/apimachinery", "checks/advisories checks/agent checks/facts checks/fleet checks/upload plegbench/syncloop"},
		{
			"k8s.io/client-go",
			"checks/agent checks/fleet checks/kubelet plegbench/syncloop cmd/internal/syncloopcmd cmd/internal/cluster",
		},
		{"k8s.io/client-go/kubernetes", "plegbench/syncloop/apiserver/fake"},
		{"k8s.io/component-helpers", "plegbench/syncloop"},
		{"k8s.io/klog", "plegbench/syncloop cmd/internal/syncloopcmd"},
		{"k8s.io/kubelet", "checks/kubelet plegbench/syncloop"},
		{"github.com/containernetworking/", "checks/kubelet"},
		{"log/slog", "cmd/internal"},
	}
	// What packages of ours, with those below them, may import of ours, with what is below that. The longest matching
	// folder decides. The managers of the syncLoop do not know each other: they share the nouns, and the root wires them.
	allowed := []struct{ in, may string }{
		{"crictl", "crictl/deadline crictl/kubeletconfig crictl/proc"},
		{
			"internal/lazyregexp internal/testkit crictl/deadline crictl/fake crictl/proc crictl/safefile checks/units " +
				"journal/klog journal/signature plegbench/syncloop/apiserver plegbench/syncloop/container " +
				"plegbench/syncloop/pod plegbench/syncloop/metrics checks/advisories checks/redact",
			"",
		},
		{"crictl/kubeletconfig journal/journalfile", "crictl/safefile"},
		{"crictl/canary crictl/fault crictl/gc crictl/remote checks/kubelet plegbench cmd/e2e/nodebox", "crictl"},
		{"crictl/fake/faketest", "crictl/fake"},
		{"checks/host", "crictl/deadline crictl/proc crictl/safefile"},
		{"journal", "crictl/deadline crictl/safefile journal"},
		{"journal/textlog", "journal/klog"},
		{"plegbench/syncloop", "crictl/kubeletconfig crictl/remote plegbench/syncloop"},
		{"plegbench/syncloop/looptest", "internal/testkit"},
		{"plegbench/syncloop/reproduce", "crictl/fake crictl/fault crictl/remote plegbench/syncloop"},
		{
			"plegbench/syncloop/kuberuntime",
			"crictl/remote plegbench/syncloop/container plegbench/syncloop/metrics plegbench/syncloop/pod " +
				"plegbench/syncloop/volumemanager/source",
		},
		{
			"plegbench/syncloop/volumemanager",
			"plegbench/syncloop/container plegbench/syncloop/metrics plegbench/syncloop/pod " +
				"plegbench/syncloop/volumemanager/source",
		},
		{"checks", "checks/units plegbench"},
		{"checks/facts checks/causes checks/judge checks/agent", "checks crictl journal plegbench"},
		{"checks/stacks", "checks journal/textlog"},
		{"checks/capture checks/collect", "checks crictl journal"},
		{"checks/bundle", "checks crictl/safefile"},
		{"checks/upload", "checks crictl/deadline"},
		{"checks/recorder", "checks crictl/deadline crictl/safefile"},
		{"checks/incident", "checks"},
		{"checks/fleet", "checks journal plegbench/syncloop/apiserver"},
		{"checks/probes", "checks crictl"},
		{"cmd/kdiag", "cmd/internal/app cmd/internal/cli"},
		{"cmd/gendocs", "checks cmd/internal/app cmd/internal/cli cmd/internal/render journal/signature"},
		{"cmd/internal/cli", "crictl/deadline crictl/safefile"},
		{"cmd/internal/screen", "cmd/internal/cli"},
		{"cmd/internal/render", "checks crictl/gc journal plegbench"},
		{"cmd/internal/document", "checks cmd/internal/cli cmd/internal/render"},
		{"cmd/internal/connection", "checks cmd/internal/cli cmd/internal/render crictl plegbench"},
		{"cmd/internal/dumps", "checks cmd/internal/cli cmd/internal/connection crictl journal"},
		{
			"cmd/internal/archive",
			"checks cmd/internal/cli cmd/internal/document cmd/internal/dumps cmd/internal/render crictl/deadline " +
				"journal plegbench",
		},
		{"cmd/internal/cluster", "checks cmd/internal/cli cmd/internal/document cmd/internal/render"},
		{
			"cmd/internal/snapshot",
			"checks cmd/internal/cli cmd/internal/connection cmd/internal/document cmd/internal/render crictl " +
				"plegbench",
		},
		{
			"cmd/internal/diagnosis",
			"checks cmd/internal/archive cmd/internal/cli cmd/internal/connection cmd/internal/document " +
				"cmd/internal/dumps cmd/internal/render cmd/internal/screen crictl journal plegbench",
		},
		{"cmd/internal/app", "checks cmd/internal crictl/deadline"},
		{"cmd/e2e/e2etest", "checks cmd/e2e/nodebox cmd/internal/cli crictl"},
		{"cmd/e2e", "checks cmd/e2e cmd/internal/cli crictl journal plegbench"},
		{
			"cmd/internal",
			"checks cmd/internal/archive cmd/internal/cli cmd/internal/cluster cmd/internal/connection " +
				"cmd/internal/diagnosis cmd/internal/document cmd/internal/dumps cmd/internal/render " +
				"cmd/internal/screen cmd/internal/snapshot crictl journal plegbench",
		},
		{
			"plegbench/syncloop/config plegbench/syncloop/eviction plegbench/syncloop/images " +
				"plegbench/syncloop/nodestatus plegbench/syncloop/pleg plegbench/syncloop/podworkers " +
				"plegbench/syncloop/prober plegbench/syncloop/server plegbench/syncloop/stats " +
				"plegbench/syncloop/status",
			"crictl/remote plegbench/syncloop/container plegbench/syncloop/metrics plegbench/syncloop/pod",
		},
	}
	for _, p := range packages(t) {
		if len(p.Doc) < 20 && len(p.GoFiles) > 0 {
			t.Errorf("%s: the package comment is missing, or says nothing", p.ImportPath)
		}
		var rule []string
		longest := -1
		for _, a := range allowed {
			for in := range strings.FieldsSeq(a.in) {
				if under(p.ImportPath, in) && len(in) > longest {
					rule, longest = strings.Fields(a.may), len(in)
				}
			}
		}
		if longest < 0 && p.ImportPath != module {
			t.Errorf("%s: no rule says what it may import; add one", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			for _, f := range fenced {
				allowed := slices.ContainsFunc(strings.Fields(f.in), func(d string) bool { return under(p.ImportPath, d) })
				if strings.HasPrefix(imp, f.prefix) && !allowed {
					t.Errorf("%s imports %s, which only %v may", p.ImportPath, imp, f.in)
				}
			}
			allowed := under(imp, "internal/lazyregexp") ||
				slices.ContainsFunc(rule, func(d string) bool { return under(imp, d) })
			if strings.HasPrefix(imp, module+"/") && !allowed {
				t.Errorf("%s imports %s; it may import %v of ours", p.ImportPath, imp, rule)
			}
		}
	}
}

// TestTheProgramIsSmall keeps out what would make each command of kdiag start with every group of the Kubernetes API.
func TestTheProgramIsSmall(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/kdiag").Output()
	testkit.Must(t, err)
	few := []string{"authentication", "authorization", "coordination", "core"} // the groups of k8s.io/api that are needed
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		group, isGroup := strings.CutPrefix(path, "k8s.io/api/")
		if isGroup && !slices.Contains(few, filepath.Dir(group)) {
			t.Errorf("the program carries %s; it needs %v of k8s.io/api", path, few)
		}
		for _, heavy := range []string{"kubernetes", "informers", "applyconfigurations", "dynamic", "discovery"} {
			if strings.HasPrefix(path, "k8s.io/client-go/"+heavy) {
				t.Errorf("the program carries %s; plegbench/syncloop/apiserver takes its place", path)
			}
		}
	}
}

func TestRootFolders(t *testing.T) {
	entries, err := os.ReadDir(".")
	testkit.Must(t, err)
	// bin and dist are what make build and make snapshot leave.
	known := []string{
		"bin", "checks", "cmd", "crictl", "deploy", "dist", "docs", "internal", "journal", "plegbench",
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !slices.Contains(known, e.Name()) {
			t.Errorf("%s/ is none of the folders %v", e.Name(), known)
		}
	}
}

// goFiles parses every Go file of ours.
func goFiles(t *testing.T, visit func(name string, fset *token.FileSet, file *ast.File)) {
	t.Helper()
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(d.Name(), ".") && name != "."
		if d.IsDir() && (hidden || d.Name() == "testdata" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		visit(name, fset, file)
		return nil
	})
	testkit.Must(t, err)
}

func TestNamesAndSizes(t *testing.T) {
	const maxFile, maxFunc = 600, 100 // lines; docs/architecture.md
	empty := []string{"util", "utils", "common", "types", "helpers", "helper", "misc", "base"}
	goFiles(t, func(name string, fset *token.FileSet, file *ast.File) {
		if slices.Contains(empty, file.Name.Name) {
			t.Errorf("%s: package %s names nothing of the field", name, file.Name.Name)
		}
		test := strings.HasSuffix(name, "_test.go")
		if lines := fset.File(file.Pos()).LineCount(); lines > maxFile && !test {
			t.Errorf("%s has %d lines; split it along its nouns", name, lines)
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: init functions hide what runs; make it a value or a call", fset.Position(fn.Pos()))
			}
			lines := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line
			if lines > maxFunc && !test {
				t.Errorf("%s: %s has %d lines", fset.Position(fn.Pos()), fn.Name.Name, lines)
			}
		}
	})
}

// TestTagsOfTests keeps apart what needs a node and what does not: a test named TestEndToEnd is behind the tag
// e2e, as everything below cmd/e2e is, and no test is skipped.
func TestTagsOfTests(t *testing.T) {
	skips := regexp.MustCompile(`\bt\.Skip(f|Now)?\(`)
	goFiles(t, func(name string, _ *token.FileSet, file *ast.File) {
		text := testkit.Read(t, name)
		tag, _, _ := strings.Cut(text, "\n")
		tagged := tag == "//go:build e2e" || tag == "//go:build apiserver"
		if strings.HasPrefix(name, "cmd/e2e/") && !tagged {
			t.Errorf("%s begins with %q, want //go:build e2e", name, tag)
		}
		if skip := skips.FindString(text); skip != "" {
			t.Errorf("%s: %s: a test that lacks something must fail, and is behind the tag e2e", name, skip)
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasSuffix(name, "_test.go") || !strings.HasPrefix(fn.Name.Name, "Test") ||
				fn.Name.Name == "TestMain" {
				continue
			}
			if strings.HasPrefix(fn.Name.Name, "TestEndToEnd") != tagged {
				t.Errorf("%s: %s: tests behind the tag e2e, and they alone, are named TestEndToEnd", name, fn.Name.Name)
			}
		}
	})
}

// TestSecurityIsTested wants each test that docs/security.md names.
func TestSecurityIsTested(t *testing.T) {
	page := testkit.Read(t, "docs/security.md")
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w+)`").FindAllStringSubmatch(page, -1) {
		named[m[1]] = true
	}
	goFiles(t, func(name string, _ *token.FileSet, file *ast.File) {
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && strings.HasSuffix(name, "_test.go") {
				delete(named, fn.Name.Name)
			}
		}
	})
	for name := range named {
		t.Errorf("docs/security.md names the test %s, which does not exist", name)
	}
}

// TestCausesAreDocumented wants a section of docs/causes.md for each cause that the judge can name, in its order.
func TestCausesAreDocumented(t *testing.T) {
	page := testkit.Read(t, "docs/causes.md")
	heads := regexp.MustCompile(`(?m)^## (\w+)`).FindAllStringSubmatch(page, -1)
	var documented []string
	for _, h := range heads {
		documented = append(documented, h[1])
	}
	var defined []string
	for _, d := range causes.Docs() {
		defined = append(defined, d.Code)
	}
	testkit.Equal(t, "docs/causes.md, which make generate writes", defined, documented)
}

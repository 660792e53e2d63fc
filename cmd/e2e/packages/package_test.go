//go:build e2e

package packages

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

func TestMain(m *testing.M) { nodebox.MainOnline(m) }

// nfpm is what goreleaser makes packages with.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0"

// A packager makes packages as .goreleaser.yaml describes them, of a program that is there already.
type packager struct {
	dir    string
	config map[string]any
}

func newPackager(t *testing.T) packager {
	t.Helper()
	text := e2etest.Read(t, "../../../.goreleaser.yaml")
	var releases struct {
		Packages []map[string]any `json:"nfpms"`
	}
	e2etest.Must(t, yaml.Unmarshal([]byte(text), &releases))
	p := packager{t.TempDir(), releases.Packages[0]}
	completions := filepath.Join(p.dir, "completions")
	e2etest.Must(t, os.Mkdir(completions, 0o755))
	for _, shell := range []string{"bash", "zsh", "fish"} {
		o := e2etest.Kdiag(t.Context(), t, "completion", shell)
		e2etest.Must(t, os.WriteFile(filepath.Join(completions, "kdiag."+shell), []byte(o.Stdout), 0o644))
	}
	for _, key := range []string{"package_name", "file_name_template", "formats", "mtime", "umask"} {
		delete(p.config, key)
	}
	contents := p.config["contents"].([]any)
	for _, c := range contents {
		file := c.(map[string]any)
		if src, ok := file["src"].(string); ok { // a folder has none
			file["src"] = strings.Replace(src, "bin/completions", completions, 1)
		}
	}
	p.config["contents"] = append(contents, map[string]any{
		"src": e2etest.Program(t), "dst": "/usr/bin/kdiag", "file_info": map[string]any{"mode": 0o755},
	})
	p.config["name"], p.config["arch"], p.config["platform"] = "kdiag", runtime.GOARCH, "linux"
	return p
}

// make makes a package of a format and version, and returns its path.
func (p packager) make(t *testing.T, format, version string) string {
	t.Helper()
	p.config["version"] = version
	text, err := yaml.Marshal(p.config)
	e2etest.Must(t, err)
	config, path := filepath.Join(p.dir, "nfpm.yaml"), filepath.Join(p.dir, "kdiag_"+version+"."+format)
	e2etest.Must(t, os.WriteFile(config, text, 0o644))
	cmd := exec.CommandContext(t.Context(), "go", "run", nfpm, "package", "-f", config, "-p", format, "-t", path)
	cmd.Dir = "../../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return path
}

// TestEndToEndPackage installs, upgrades, removes and purges the packages on a Debian with systemd.
func TestEndToEndPackage(t *testing.T) {
	n := e2etest.Node{Box: nodebox.TestBox(t)}
	n.Box.Boot(t)
	// The node gets the machine's rpm, which in Debian cannot know what else is installed: hence --nodeps.
	rpm := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", "tar -ch /usr/bin/rpm /usr/lib/rpm "+
		"$(ldd /usr/bin/rpm | grep -o '/[^ ]*') | tar -x --skip-old-files -C "+n.Box.Root())
	if out, err := rpm.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", rpm, err, out)
	}
	p := newPackager(t)
	for _, f := range []format{
		{"deb", "dpkg -i", "dpkg -r kdiag", "dpkg -P kdiag", "kdiag-agent"},
		{
			"rpm", "rpm -U --nodeps", "rpm -e --nodeps kdiag",
			"rm -r /var/lib/kdiag /etc/default/kdiag-agent.rpmsave", "kdiag-agent.rpmsave",
		},
	} {
		t.Run(f.name, func(t *testing.T) { checkPackage(t, n, p, f) })
	}
}

// A format is a kind of package, how it is installed or upgraded, removed, and removed with what it recorded, and the
// name under which a removal keeps changed settings.
type format struct{ name, install, remove, purge, kept string }

func checkPackage(t *testing.T, n e2etest.Node, p packager, f format) {
	before := ours(t, n.Box.Root())
	run := func(command string) {
		t.Helper()
		if out := n.Sh(t, command); strings.Contains(out, "scriptlet failed") { // of which rpm only warns
			t.Errorf("%s:\n%s", command, out)
		}
	}
	install := func(version string) {
		t.Helper()
		path := "/tmp/package." + f.name
		e2etest.Must(t, n.Box.CopyIn(p.make(t, f.name, version), path))
		run(f.install + " " + path + " && rm " + path)
	}

	install("1.0.0")
	n.Sh(t, "kdiag pleg --simulate healthy && test -s /usr/share/man/man1/kdiag-pleg.1.gz")
	n.Sh(t, "bash -c '. /usr/share/bash-completion/completions/kdiag && complete -p kdiag'")
	got := n.Sh(t, "systemctl is-enabled kdiag-agent; systemctl is-active kdiag-agent || true")
	if got != "disabled\ninactive" {
		t.Errorf("the agent after installation: %q", got)
	}
	const setting = `KDIAG_AGENT_ARGS="--listen 127.0.0.1:`
	n.Sh(t, "echo '"+setting+strconv.Itoa(e2etest.FreePort(t))+`"' >> /etc/default/kdiag-agent`)
	n.Sh(t, "systemctl enable --now kdiag-agent")
	first := n.Sh(t, "systemctl show -p MainPID --value kdiag-agent")

	install("1.1.0")
	second := n.Sh(t, "systemctl show -p MainPID --value kdiag-agent")
	if first == second || second == "0" {
		t.Errorf("the agent was process %s before the upgrade, and %s after it", first, second)
	}
	n.Sh(t, "systemctl is-active kdiag-agent && kdiag history | grep NetworkNotReady")
	n.Sh(t, "grep -F '"+setting+"' /etc/default/kdiag-agent")

	run(f.remove)
	n.Sh(t, "! pidof kdiag && ! test -e /usr/bin/kdiag && test -d /var/lib/kdiag")
	n.Sh(t, "grep -F '"+setting+"' /etc/default/"+f.kept)
	run(f.purge)
	for name := range ours(t, n.Box.Root()) {
		if !before[name] {
			t.Errorf("%s is left after purging", name)
		}
	}
}

// ours returns the files in a tree that are kdiag's by their name, by path.
func ours(t *testing.T, root string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	e2etest.Must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name, _ := filepath.Rel(root, path); {
		case err != nil || name == "proc" || name == "sys" || name == "run":
			return filepath.SkipDir
		case strings.Contains(d.Name(), "kdiag"):
			found[name] = true
		}
		return nil
	}))
	return found
}

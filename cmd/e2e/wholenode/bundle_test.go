//go:build e2e

package wholenode

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

func TestMain(m *testing.M) { nodebox.Main(m) }

// The secrets that tests plant where a bundle must not have them from.
const (
	inNetwork     = "n3tw0rk-Passw0rd-4711"
	inLink        = "root:$6$shadow-4712"
	inEnvironment = "env-t0ken-4713"
	inArguments   = "arg-t0ken-4714"
	inJournal     = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiI0NzE1In0.c2lnbmF0dXJlLTQ3MTU"
	inConfig      = "registry-Passw0rd-4716"
	inKubelet     = "kubelet-t0ken-4717"
)

// openBundle opens an archive and returns the text of its files by path.
func openBundle(t *testing.T, path string) (*bundle.Bundle, map[string]string) {
	t.Helper()
	return e2etest.OpenBundle(t, e2etest.Read(t, path))
}

// holdsNone fails the test where a file of an archive holds a secret, as it is or encoded.
func holdsNone(t *testing.T, files map[string]string, secrets ...string) {
	t.Helper()
	for name, text := range files {
		for _, s := range secrets {
			for _, form := range []string{s, base64.StdEncoding.EncodeToString([]byte(s))} {
				if i := strings.Index(text, form); i >= 0 {
					t.Errorf("%s holds %q: %q", name, s, text[max(0, i-80):i+len(form)])
				}
			}
		}
	}
}

// why returns why an archive lacks something.
func why(b *bundle.Bundle, what string) string {
	i := slices.IndexFunc(b.Manifest.NotCollected, func(m bundle.Missing) bool { return m.What == what })
	if i < 0 {
		return ""
	}
	return b.Manifest.NotCollected[i].Why
}

// TestEndToEndBundle packs the evidence of a real containerd with a stopped shim and a pending update. The verdict out
// of the archive must be the one in it.
func TestEndToEndBundle(t *testing.T) {
	c := nodebox.Start(t, nodebox.Options{Network: true})
	pods := c.RunPods(t, nodebox.Pods{Count: 3, Containers: 1, State: crictl.ContainerRunning})
	network := filepath.Join(c.Dir(), "cni/net.d")
	secret := filepath.Join(t.TempDir(), "shadow")
	e2etest.Must(t, os.WriteFile(secret, []byte(inLink), 0o600))
	e2etest.Must(t, os.WriteFile(filepath.Join(network, "50-x.conf"),
		[]byte(`{"cniVersion":"0.4.0","name":"x","type":"bridge","password":"`+inNetwork+`"}`), 0o600))
	e2etest.Must(t, os.Symlink(secret, filepath.Join(network, "60-link.conf")))
	e2etest.Must(t, os.Symlink("50-x.conf", filepath.Join(network, "70-own.conf")))
	stranger := exec.Command("sleep", "1000.4714")
	stranger.Args[0] = "sleep-" + inArguments
	stranger.Env = []string{"TOKEN=" + inEnvironment}
	e2etest.Must(t, stranger.Start())
	t.Cleanup(func() { _ = stranger.Process.Kill(); _ = stranger.Wait() })

	release, err := c.Wedge(t.Context(), pods[0].ID, pods[0].Containers[0].ID)
	e2etest.Must(t, err)
	path := filepath.Join(t.TempDir(), "wedged.tar.zst")
	out := e2etest.Kdiag(t.Context(), t, "bundle", "-r", c.Endpoint(), path)
	t.Logf("%s%s", out.Stdout, out.Stderr)
	e2etest.Must(t, release())
	if out.Code != 0 || !strings.Contains(out.Stdout, "WRITTEN  "+path) || !strings.Contains(out.Stdout, "UNHEALTHY") {
		t.Errorf("exit code %d", out.Code)
	}
	b, files := openBundle(t, path)
	holdsNone(t, files, inNetwork, inLink, inEnvironment, inArguments)
	there := e2etest.Outcome{Stdout: files[bundle.ReportName]}.Report(t)
	here := e2etest.Kdiag(t.Context(), t, "node", "--from", path, "-o", "json").Report(t)
	if !slices.Contains(e2etest.Codes(there), "ShimStuck") { // on a busy machine not ListHang
		t.Errorf("causes on the node: %v", e2etest.Codes(there))
	}
	verdict := func(r *checks.Report) (all []string) {
		for _, c := range r.Causes {
			all = append(all, c.Code+": "+c.Summary)
		}
		return append(all, string(r.Status))
	}
	if diff := cmp.Diff(verdict(there), verdict(here)); diff != "" {
		t.Errorf("(-on the node +out of the archive):\n%s", diff)
	}
	for _, name := range []string{
		bundle.ReportName, bundle.FactsName, "relist.json", "host/processes.txt", "host/mounts", "host/meminfo",
		"host/disks", "config/runtime.toml", "config/cni/50-x.conf", "config/cni/70-own.conf", "versions", "kdiag.log",
		bundle.SourcesName,
	} {
		if files[name] == "" {
			t.Errorf("%s is missing: %s", name, why(b, name))
		}
	}
	if got := why(b, "config/cni/60-link.conf"); !strings.Contains(got, "not followed out of its folder") {
		t.Errorf("a link out of the folder: %q", got)
	}
	if got := why(b, bundle.ExitedName); !strings.Contains(got, "no list") {
		t.Errorf("the census: %q", got)
	}
	if table := files["host/processes.txt"]; !strings.Contains(table, "T  ") || !strings.Contains(table, pods[0].ID) {
		t.Error("the table of processes lacks the shim that is stopped")
	}
	if !slices.ContainsFunc(b.Names(bundle.StacksDir), func(n string) bool {
		return strings.Contains(n, "runtime-") && strings.Contains(files[n], "goroutine 1 [")
	}) {
		t.Errorf("no dump of the runtime: %v %v", b.Names(bundle.StacksDir), b.Manifest.NotCollected)
	}
}

// packNode packs a whole node, with systemd, a journal and a kubelet.
func packNode(t *testing.T, n e2etest.Node) {
	const kubelet, runtime = "var/lib/kubelet/config.yaml", "etc/containerd/config.toml"
	read := func(name string) string { return e2etest.Read(t, filepath.Join(n.Box.Root(), name)) }
	before := read(runtime)
	n.Write(t, kubelet, read(kubelet)+"staticPodURLHeader: {Authorization: [\"Bearer "+inKubelet+"\"]}\n")
	n.Write(t, runtime, "imports = [\n  \"/etc/containerd/conf.d/*.toml\",\n]\n"+before)
	n.Write(t, "etc/containerd/conf.d/mirror.toml", "version = 2\n"+
		"[plugins.\"io.containerd.grpc.v1.cri\".registry.configs.\"r.example\".auth]\npassword = \""+inConfig+"\"\n")
	defer n.Write(t, runtime, before)
	n.Sh(t, "systemd-run -q --wait -u crio.service echo 'Authorization: Bearer "+inJournal+"'")
	n.Sh(t, "systemd-run -q --wait -u stranger.service echo 'not for a bundle'")
	t.Log(n.Sh(t, "cd; kdiag bundle x.tar.zst && COLUMNS=100 kdiag bundle --list x.tar.zst"))
	path := filepath.Join(n.Box.Root(), "root/x.tar.zst")
	b, files := openBundle(t, path)
	holdsNone(t, files, inJournal, inConfig, inKubelet, "not for a bundle")
	for name, want := range map[string]string{
		"logs/kubelet.export":          "_SYSTEMD_UNIT=kubelet.service",
		"logs/runtime.export":          "_SYSTEMD_UNIT=containerd.service",
		"units":                        "kubelet.service",
		"config/kubelet.yaml":          "staticPodURLHeader",
		"config/runtime.d/mirror.toml": "password",
		"host/processes.txt":           "syncloop --config /var/lib/kubelet/config.yaml",
		"versions":                     "Debian",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s lacks %q: %s\n%.500s", name, want, why(b, name), files[name])
		}
	}
	out := e2etest.Kdiag(t.Context(), t, "journal", "--from", path, "-o", "json")
	if !strings.Contains(out.Stdout, `"lines"`) {
		t.Errorf("the logs cannot be read: %s%s", out.Stdout, out.Stderr)
	}
}

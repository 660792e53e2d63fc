package collect

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/internal/testkit"
)

var must, equal = testkit.Must, testkit.Equal

// TestReadFile follows links of a configuration below its own folder and nowhere else, and opens nothing that blocks.
func TestReadFile(t *testing.T) {
	tree := testkit.NewTree(t)
	tree.Write("etc/cni/net.d/a.conf", "a", "etc/shadow", "secret", "etc/cni/net.d/..data/b.conf", "b")
	for link, target := range map[string]string{
		"etc/cni/net.d/volume.conf":   "..data/b.conf",
		"etc/cni/net.d/up.conf":       "../../shadow",
		"etc/cni/net.d/absolute.conf": "/etc/shadow",
		"etc/cni/net.d/proc.conf":     "/proc/self/environ",
		"etc/cni/net.d/folder":        "/etc",
		"current":                     "/etc/cni", // of the root
	} {
		tree.Link(link, target)
	}
	must(t, unix.Mkfifo(tree.Path("etc/cni/net.d/fifo.conf"), 0o600))
	const refused = "not followed out of its folder"
	for name, want := range map[string]string{
		"/etc/cni/net.d/a.conf": "a", "/etc/cni/net.d/volume.conf": "b", "/current/net.d/a.conf": "a",
		"/etc/cni/net.d/up.conf": refused, "/etc/cni/net.d/absolute.conf": refused, "/etc/cni/net.d/proc.conf": refused,
		"/etc/cni/net.d/folder": refused, "/etc/cni/net.d/fifo.conf": "is not a regular file",
		"/etc/cni": "is not a regular file", "/etc/cni/net.d/none.conf": "does not exist", "relative.conf": "does not exist",
	} {
		text, err := readFile(crictl.SeenBy(tree.Root, 0), name, 10)
		if got := string(text); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
}

// TestImported finds the files that containerd's configuration imports.
func TestImported(t *testing.T) {
	tree := testkit.NewTree(t)
	tree.Write("etc/containerd/conf.d/b.toml", "", "etc/containerd/conf.d/a.toml", "", "etc/x/c.toml", "", "etc/x/d", "")
	for text, want := range map[string][]string{
		"version = 2":    nil,
		"imports = []\n": nil,
		"version = 2\n  imports = [\n  \"/etc/containerd/conf.d/*.toml\", 'c/../../x/*.toml',\n]\n[grpc]\n": {
			"/etc/containerd/conf.d/a.toml", "/etc/containerd/conf.d/b.toml", "/etc/x/c.toml",
		},
		"# imports = [\"/etc/x/d\"]": nil,
	} {
		got := imported(&daemon{files: crictl.SeenBy(tree.Root, 0), config: "/etc/containerd/config.toml"}, text)
		equal(t, text, want, got)
	}
}

// TestTail keeps the newest of a log, whole records, in bounded memory.
func TestTail(t *testing.T) {
	tl := &tail{}
	record := strings.Repeat("x", 1000)
	const records = 40_000
	for i := range records {
		tl.write([]byte(record[:999] + string(rune('a'+i%26))))
	}
	text, err := io.ReadAll(tl.reader())
	must(t, err)
	kept := len(text)
	if kept+tl.dropped != records*1000 || kept > mostLog+2*pieceOf || kept < mostLog/2 || kept%1000 != 0 {
		t.Errorf("%d bytes kept, %d dropped", kept, tl.dropped)
	}
	packed := 0
	for _, p := range tl.pieces {
		packed += len(p.packed)
	}
	if last := text[len(text)-1]; last != byte('a'+(records-1)%26) || packed > mostLog/4 {
		t.Errorf("the last record ends with %c; %d bytes in memory", last, packed)
	}
}

// slowly is a text that takes a second to redact.
type slowly struct{}

func (slowly) Read([]byte) (int, error) {
	time.Sleep(time.Second)
	return 0, nil
}

// TestRunLeavesBehind collects the other parts where one hangs, fails, panics or is too large.
func TestRunLeavesBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var archive bytes.Buffer
		w, err := bundle.NewWriter(&archive, bundle.Options{
			Redactor: redact.New(redact.Standard, nil), Now: time.Now,
		})
		must(t, err)
		forever := make(chan struct{})
		one := func(id string, required bool, collect func(context.Context, *Input, *files) error) part {
			return part{id: id, paths: []string{id}, limit: time.Second, most: 10, required: required, collect: collect}
		}
		began := time.Now()
		ctx := testkit.Within(t, 5*time.Second)
		failed, err := run(ctx, Input{Progress: func(string) {}}, w, []part{
			one("hangs", true, func(context.Context, *Input, *files) error { <-forever; return nil }),
			one("panics", true, func(context.Context, *Input, *files) error { panic("no") }),
			one("absent", true, func(context.Context, *Input, *files) error { return absence("there is none") }),
			one("fails", false, func(context.Context, *Input, *files) error { return errors.New("permission denied") }),
			one("large", true, func(_ context.Context, _ *Input, to *files) error {
				to.add("large", "", redact.Text, strings.NewReader("0123456789more"))
				return nil
			}),
			one("slow", false, func(_ context.Context, _ *Input, to *files) error {
				to.add("slow", "", redact.Text, slowly{})
				return nil
			}),
		})
		must(t, err)
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("it took %v", took)
		}
		equal(t, "failed", []string{"hangs", "panics"}, failed)
		m, err := w.Close(checks.Header{})
		must(t, err)
		lacks := map[string]string{}
		for _, l := range m.NotCollected {
			lacks[l.What] = l.Why
		}
		want := map[string]string{
			"hangs": "no answer in 1s; left behind", "absent": "there is none",
			"panics": "internal error: no", "fails": "permission denied",
			"large": "the rest: the part has reached its largest size",
			"slow":  "the time for the whole bundle was up",
		}
		equal(t, "not collected", want, lacks)
		if len(m.Files) != 1 || m.Files[0].Path != "large" || m.Files[0].Bytes != 10 {
			t.Errorf("files: %v", m.Files)
		}
		close(forever)
		time.Sleep(time.Minute) // lets the part that was left behind end
	})
}

// TestDocs compares the parts with their table in docs/bundle.md.
func TestDocs(t *testing.T) {
	text := testkit.Read(t, "../../docs/bundle.md")
	at := 0
	for _, p := range parts() {
		i := strings.Index(text[at:], "\n| "+p.id+" |")
		if i < 0 {
			t.Errorf("docs/bundle.md has no row for %s after those before it", p.id)
			continue
		}
		at += i + 1
		row, _, _ := strings.Cut(text[at:], "\n")
		for _, want := range append(slices.Clone(p.paths), " "+units.Duration(p.limit)[:1]+" s |") {
			if !strings.Contains(row, want) {
				t.Errorf("docs/bundle.md, %s: no %q in %q", p.id, want, row)
			}
		}
	}
}

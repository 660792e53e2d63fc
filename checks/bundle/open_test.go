package bundle

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/internal/testkit"
)

var must, equal = testkit.Must, testkit.Equal

// pack writes an archive of files, each a path and its content.
func pack(t testing.TB, opts Options, files ...[2]string) ([]byte, *Manifest) {
	t.Helper()
	var out bytes.Buffer
	w, err := newWriter(&out, opts)
	must(t, err)
	for _, f := range files {
		format := redact.Text
		if strings.HasSuffix(f[0], ".json") {
			format = redact.JSON
		}
		must(t, w.Add(f[0], "where "+f[0]+" was", format, strings.NewReader(f[1])))
	}
	w.Lacks("kernel log", "needs root")
	m, err := w.Close(checks.Header{Host: "node-7", GeneratedAt: at(), Status: checks.Healthy})
	must(t, err)
	return out.Bytes(), m
}

// opened opens an archive until the end of the test.
func opened(t testing.TB, archive []byte) *Bundle {
	t.Helper()
	b, err := Open(t.Context(), bytes.NewReader(archive))
	must(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// contents reads all files of a bundle.
func contents(t testing.TB, b *Bundle) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range b.Names("") {
		f, err := b.File(name)
		must(t, err)
		text, err := io.ReadAll(f)
		must(t, err)
		all[name] = string(text)
	}
	return all
}

// TestRoundTrip reads what was packed, of many sizes.
func TestRoundTrip(t *testing.T) {
	want := map[string]string{
		"facts.json": "{}", "logs/kubelet.export": strings.Repeat("a line of a log\n", 200_000),
		"logs/kubelet.export.x": "another", "empty": "", "just": noise(mostChunk),
	}
	var files [][2]string
	for name, text := range want {
		files = append(files, [2]string{name, text})
	}
	for _, format := range []string{Zst, Tgz} {
		packed, m := pack(t, Options{Format: format}, files...)
		b := opened(t, packed)
		if diff := cmp.Diff(m, &b.Manifest); diff != "" || !b.Intact {
			t.Error(diff)
		}
		equal(t, "the files", want, contents(t, b))
		equal(t, "the logs", []string{"logs/kubelet.export", "logs/kubelet.export.x"}, b.Names(LogsDir))
	}
}

// TestCut cuts an archive at many places: what is before the cut is read, and the cut is named.
func TestCut(t *testing.T) {
	files := [][2]string{{"facts.json", "{}"}, {"log", noise(50_000)}, {"last", "end"}}
	for _, format := range []string{Zst, Tgz} {
		packed, m := pack(t, Options{Format: format}, files...)
		whole := 0
		for cut := 401; cut < len(packed)-60; cut += 97 {
			b, err := Open(t.Context(), bytes.NewReader(packed[:cut]))
			must(t, err)
			got := contents(t, b)
			if got["facts.json"] != "{}" || len(got) < whole || !strings.HasPrefix(files[1][1], got["log"]) ||
				b.Intact || len(b.Manifest.Problems) == 0 {
				t.Errorf("%s at %d: %d files, problems %q", format, cut, len(got), b.Manifest.Problems)
			}
			whole = len(got)
			_ = b.Close()
		}
		equal(t, "files shortly before the end", len(m.Files), whole)
	}
}

// An evil archive has entries that no Writer writes.
func evil(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out)
	must(t, err)
	w := tar.NewWriter(z)
	for _, h := range entries {
		if h.Mode = 0o777; h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		must(t, w.WriteHeader(&h))
		_, err := io.CopyN(w, zeros{}, h.Size)
		must(t, err)
	}
	must(t, w.Close(), z.Close())
	return out.Bytes()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestHostile(t *testing.T) {
	reg := func(name string) tar.Header { return tar.Header{Name: name} }
	var many []tar.Header
	for i := range 12 {
		many = append(many, reg(strings.Repeat("x", i+1)))
	}
	z, _ := zstd.NewWriter(nil, zstd.WithWindowSize(64<<20), zstd.WithSingleSegment(false))
	wide := z.EncodeAll(make([]byte, 65<<20), nil)
	link := tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "/etc/shadow"}
	above := tar.Header{Name: "../x/", Typeflag: tar.TypeDir}
	for name, tt := range map[string]struct {
		archive []byte
		want    string
	}{
		"absolute":     {evil(t, reg("/etc/passwd")), `"/etc/passwd" is not a path of a file below it`},
		"long":         {evil(t, reg(strings.Repeat("x", 300))), "a path in it is longer than 255 bytes"},
		"symlink":      {evil(t, link), `"a" is neither a file nor a folder`},
		"folder above": {evil(t, above), `"../x/" is not a path of a file below it`},
		"twice":        {evil(t, reg("a"), reg("a")), `"a" is in it twice`},
		"many":         {evil(t, many...), "it has more than 10 entries"},
		"large":        {evil(t, tar.Header{Name: "a", Size: 101 << 20}), "it unpacks to more than 100 MiB"},
		"bomb":         {evil(t, tar.Header{Name: "a", Size: 90 << 20}), "it unpacks to more than 1000 times its size"},
		"wide window":  {wide, "it needs more than 8 MiB of memory to unpack"},
		"no file":      {evil(t), "it holds no file"},
		"text":         {[]byte("kdiag"), "it is neither a .tar.zst nor a .tgz"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := open(t.Context(), bytes.NewReader(tt.archive), 10, 100<<20)
			if err == nil {
				t.Fatalf("read: %v", b.Manifest)
			}
			equal(t, "the error", tt.want, err.Error())
		})
	}
}

// TestForged compares files with a manifest that does not fit them.
func TestForged(t *testing.T) {
	packed, _ := pack(t, Options{}, [2]string{"a", "one"}, [2]string{"b", "two"}, [2]string{"c", "three"})
	d, _ := zstd.NewReader(nil)
	unpacked, err := d.DecodeAll(packed, nil)
	must(t, err)
	forged := strings.NewReplacer("two", "TWO", `"path": "c"`, `"path": "d"`).Replace(string(unpacked))
	z, _ := zstd.NewWriter(nil)
	b := opened(t, z.EncodeAll([]byte(forged), nil))
	want := []string{"b is not as it was packed", "c is not as it was packed", "d is not as it was packed"}
	if diff := cmp.Diff(want, b.Manifest.Problems); diff != "" || b.Intact || len(contents(t, b)) != 3 {
		t.Error(diff)
	}
}

func TestDefaultName(t *testing.T) {
	equal(t, "a name", "kdiag-node-7-..-x-20261123T031200Z.tar.zst", DefaultName("node_7/../x", at(), Zst))
}

// FuzzOpen reads archives of any bytes, compressed or not yet.
func FuzzOpen(f *testing.F) {
	packed, _ := pack(f, Options{}, [2]string{"facts.json", "{}"}, [2]string{"logs/x", "text"})
	d, _ := zstd.NewReader(nil)
	unpacked, _ := d.DecodeAll(packed, nil)
	f.Add(packed)
	f.Add(unpacked)
	f.Add(evil(f, tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "b"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		var compressed bytes.Buffer
		g := gzip.NewWriter(&compressed)
		_, _ = g.Write(data)
		_ = g.Close()
		for _, archive := range [][]byte{data, compressed.Bytes()} {
			b, err := open(t.Context(), bytes.NewReader(archive), 100, 8<<20)
			if err != nil {
				continue
			}
			if len(contents(t, b)) != len(b.Names("")) || len(b.Manifest.Problems) == 0 && !b.Intact {
				t.Error("not whole, and nothing says so")
			}
			_ = b.Close()
		}
	})
}

func at() time.Time { return time.Date(2026, 11, 23, 3, 12, 0, 0, time.UTC) }

// newWriter begins an archive with the usual redaction.
func newWriter(w io.Writer, opts Options) (*Writer, error) {
	opts.Now, opts.Redactor = at, redact.New(redact.Standard, nil)
	return NewWriter(w, opts)
}

// noise is text that hardly compresses.
func noise(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 \n"
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return string(b)
}

// TestMaxBytes fills archives of many sizes: what fits is there, the rest is named, the size is kept.
func TestMaxBytes(t *testing.T) {
	for _, size := range []int64{11 << 10, 40 << 10, 512 << 10, 1 << 20, 5 << 19} {
		packed, m := pack(t, Options{MaxBytes: size}, [2]string{"facts.json", "{}"},
			[2]string{"large.json", noise(3 << 20)}, [2]string{"large", noise(2 << 20)}, [2]string{"later", "small"})
		if int64(len(packed)) > size || int64(len(packed)) < min(size, 2<<20)*2/5 && size > 40<<10 {
			t.Errorf("%d bytes, at most %d", len(packed), size)
		}
		b := opened(t, packed)
		got := contents(t, b)
		if got["facts.json"] != "{}" || got["later"] != "small" || !b.Intact {
			t.Errorf("at most %d: small files are missing: %v", size, b.Names(""))
		}
		if got["large.json"] != "" { // it is whole or not there
			t.Errorf("at most %d: large.json is cut", size)
		}
		missing, cut := m.NotCollected[1], ""
		for _, f := range m.Files {
			cut += f.Cut
		}
		whole := cut == "" && len(got["large"]) == 2<<20
		if whole != (size > 2<<20) || !whole && cut != tooLarge && missing != (Missing{"large", tooLarge}) {
			t.Errorf("at most %d: cut %q, missing %v", size, cut, missing)
		}
	}
}

// A fullDisk has room for so many bytes more.
type fullDisk struct {
	bytes.Buffer
	room int
}

func (d *fullDisk) Write(b []byte) (int, error) {
	n, _ := d.Buffer.Write(b[:min(len(b), d.room)])
	if d.room -= n; n < len(b) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

// TestFullDisk reads what was written to a disk before it was full.
func TestFullDisk(t *testing.T) {
	out := &fullDisk{room: 5000}
	w, _ := newWriter(out, Options{})
	text := noise(10_000)
	first := w.Add("a", "x", redact.Text, strings.NewReader("one"))
	second := w.Add("b", "x", redact.Text, strings.NewReader(text))
	third := w.Add("c", "x", redact.Text, strings.NewReader("three"))
	m, err := w.Close(checks.Header{})
	if first != nil || !errors.Is(second, syscall.ENOSPC) || !errors.Is(third, syscall.ENOSPC) ||
		!errors.Is(err, syscall.ENOSPC) || len(m.Files) != 1 || !strings.Contains(m.NotCollected[0].Why, "no space") {
		t.Error(first, second, third, err, m)
	}
	b := opened(t, out.Bytes())
	got := contents(t, b)
	if got["a"] != "one" || !strings.HasPrefix(text, got["b"]) || b.Intact {
		t.Errorf("read %.100q", got)
	}
}

// TestSources adds what fails and names that are bad.
func TestSources(t *testing.T) {
	broken := errors.New("input/output error")
	var out bytes.Buffer
	w, _ := newWriter(&out, Options{})
	for _, name := range []string{"a", "a", "../up", ManifestName} {
		must(t, w.Add(name, "x", redact.Text, strings.NewReader("x")))
	}
	must(t, w.Add("partly", "x", redact.Text, io.MultiReader(strings.NewReader("some"), iotest.ErrReader(broken))))
	m, err := w.Close(checks.Header{})
	must(t, err)
	const there, bad = "the archive has a file of this name already", "its name does not fit into the archive"
	equal(t, "not collected", []Missing{{"a", there}, {"../up", bad}, {ManifestName, there}}, m.NotCollected)
	if last := m.Files[len(m.Files)-1]; len(m.Files) != 2 || last.Path != "partly" || last.Cut != broken.Error() {
		t.Errorf("%+v", m.Files)
	}
}

// TestStrict checks that the manifest has pseudonyms too, of names however short.
func TestStrict(t *testing.T) {
	var out bytes.Buffer
	w, _ := NewWriter(&out, Options{Redactor: redact.New(redact.Strict, []string{"vm"}), Now: at})
	w.Lacks("the node", "no route to 10.1.2.3")
	m, err := w.Close(checks.Header{Host: "vm"})
	if err != nil || m.Host == "vm" || m.Host == "" || m.Kind != KindManifest ||
		strings.Contains(m.NotCollected[0].Why, "10.1") {
		t.Error(m, err)
	}
}

// TestRoom leaves room on a disk, and does not call a large one full that has gigabytes left.
func TestRoom(t *testing.T) {
	const mib, gib, block = 1 << 20, 1 << 30, 4096
	for _, tt := range []struct{ size, free, want int64 }{
		{0, 0, 100 * mib}, // a file system that has no size
		{4000 * gib, 11 * gib, 100 * mib},
		{4000 * gib, gib, 0},
		{10 * gib, 612 * mib, 50 * mib},
		{100 * mib, 25 * mib, 10 * mib},
		{100 * mib, 5 * mib, 0},
	} {
		st := unix.Statfs_t{Bsize: block, Blocks: uint64(tt.size / block), Bavail: uint64(tt.free / block)}
		got, err := room(&st, 100*mib)
		if got>>10 != tt.want>>10 || (err == nil) != (tt.want > 0) {
			t.Errorf("%d free of %d: %d, %v, want %d", tt.free, tt.size, got, err, tt.want)
		}
	}
}

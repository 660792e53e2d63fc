package bundle

import (
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
	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/redact"
)

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
		switch {
		case size > 2<<20:
			if cut != "" || len(got["large"]) != 2<<20 {
				t.Errorf("at most %d: %q", size, cut)
			}
		case got["large"] == "":
			if missing != (Missing{"large", tooLarge}) {
				t.Errorf("at most %d: %v", size, missing)
			}
		case cut != tooLarge:
			t.Errorf("at most %d: %q", size, cut)
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
	if diff := cmp.Diff([]Missing{{"a", there}, {"../up", bad}, {ManifestName, there}}, m.NotCollected); diff != "" {
		t.Error(diff)
	}
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

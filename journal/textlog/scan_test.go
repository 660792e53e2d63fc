package textlog

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/kdiag/kdiag/internal/testkit"
)

const line = "E0703 19:59:01.292918 1946644 kubelet.go:1879] skipping pod synchronization - PLEG is not healthy: " +
	"pleg was last seen active 3m36.4s ago; threshold is 3m0s\n"

const needle = "PLEG is not healthy"

// search selects the records that contain a text, as a matcher of signatures does with many texts.
func search() Options {
	return Options{Next: func(b []byte) int { return bytes.Index(b, []byte(needle)) }, Longest: len(needle)}
}

// scan returns all records of a text.
func scan(t testing.TB, in io.Reader, opts Options) (all []Record, st Stats) {
	t.Helper()
	st, err := Scan(t.Context(), in, opts, func(r *Record) bool {
		kept := *r
		kept.Raw, kept.Message = bytes.Clone(r.Raw), bytes.Clone(r.Message)
		all = append(all, kept)
		return true
	})
	must(t, err)
	return all, st
}

var must = testkit.Must

// TestDamagedCompression reads packed text of which the end is missing.
func TestDamagedCompression(t *testing.T) {
	text := line + strings.Repeat("I0703 00:00:00.000001 1946644 kubelet_getters.go:170] nothing\n", 1<<16)
	for format, pack := range map[string]func(io.Writer) (io.WriteCloser, error){
		"gzip": func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil },
		"zstd": func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w, zstd.WithWindowSize(64<<10)) },
		"xz":   func(w io.Writer) (io.WriteCloser, error) { return xz.NewWriter(w) },
	} {
		var packed bytes.Buffer
		w, err := pack(&packed)
		must(t, err)
		_, err = io.WriteString(w, text)
		must(t, err, w.Close())
		found, st := scan(t, io.LimitReader(&packed, int64(packed.Len()*3/4)), search())
		if len(found) != 1 || st.Bytes < 1<<20 || st.Bytes >= 4<<20 || len(st.Truncated) != 1 ||
			st.Truncated[0].Bytes != -1 || st.Compression != format {
			t.Errorf("%s: %d records, %+v", format, len(found), st)
		}
	}
}

// TestOddText reads bytes that are not text, split lines, and lines between records.
func TestOddText(t *testing.T) {
	junk := make([]byte, 3000)
	for i := range junk {
		junk[i] = byte(i * 7 % 256)
	}
	const cri = "2023-07-03T19:59:01.1Z "
	const docker = `","stream":"stderr","time":"2023-07-03T19:59:01.1Z"}` + "\n"
	for _, tt := range []struct {
		name, in string
		all      bool
		want     string // PLEG records, records, lines that are not parsed, ranges that are cut, the year of a head
	}{
		{"bytes", line + string(junk) + "\n\x00\x00\x00\x00" + line, true, "2 2 13 1 0"},
		{
			"prose",
			"some prose\n\n" + needle + ": x\n-- Reboot --\n" + line + "goroutine 1 [running]:\nmain()\n\n...\nz\n",
			false, "2 2 2 0 0",
		},
		{
			"the head of klog",
			"Log file created at: 2021/03/04 05:06:07\nRunning on machine: h1\nBinary: Built with gc go1.15\n" + line,
			true, "1 1 0 0 2021",
		},
		{
			"the head of a newer journalctl",
			"-- Journal begins at Mon 2019-02-11 09:26:20 CET, ends at Tue 2019-02-12 09:26:20 CET. --\n" + line,
			true, "1 1 0 0 2019",
		},
		{
			"docker splits a line",
			`{"log":"E0703 19:59:01.292918 1 k.go:1] PLEG is not ` + docker + `{"log":"x\n","stream":"stdout"}` + "\n" +
				`{"log":"healthy: x\n` + docker,
			false, "1 1 0 0 0",
		},
		{
			"CRI splits a line",
			cri + "stderr P E0703 19:59:01.2 1 k.go:1] PLEG is not \n" + cri + "stdout F x\n" +
				cri + "stderr F healthy\n",
			false, "1 1 0 0 0",
		},
		{
			"the end of a split line is missing",
			cri + "stderr P E0703 19:59:01.292918 1 k.go:1] PLEG is not healthy: x\n" + cri + "stdout F other\n",
			false, "1 1 0 0 0",
		},
	} {
		opts := search()
		opts.All = tt.all
		pleg := 0
		records, st := scan(t, strings.NewReader(tt.in), opts)
		for _, r := range records {
			pleg += bytes.Count(r.Message, []byte(needle))
		}
		got := fmt.Sprint(pleg, len(records), st.Unparsed, len(st.Truncated), st.HeaderYear)
		testkit.Equal(t, tt.name, tt.want, got)
	}
}

func TestFiles(t *testing.T) {
	tree := testkit.NewTree(t)
	for _, name := range []string{
		"kubelet.log", "kubelet.log.1", "kubelet.log.2.gz", "kubelet.log.10.gz", "syslog", "syslog-20261119.gz",
		"syslog-20261120", "k.log.INFO.20261121-120000.123", "k.log.INFO.20261120-120000.99", "c/0.log",
		"c/0.log.20261120-100000", "journal/a.journal", "readme.md", ".hidden", "wtmp-20261120", "x.tar.gz",
	} {
		tree.Write(name, line)
	}
	tree.Link("k.INFO", "k.log.INFO.20261121-120000.123")
	must(t, syscall.Mkfifo(tree.Path("pipe.log"), 0o644))
	tree.Link("link.log", "pipe.log")
	got, err := Files(tree.Root)
	must(t, err)
	for i := range got {
		got[i], _ = filepath.Rel(tree.Root, got[i])
	}
	want := []string{
		"c/0.log.20261120-100000", "c/0.log",
		"k.log.INFO.20261120-120000.99", "k.log.INFO.20261121-120000.123",
		"kubelet.log.10.gz", "kubelet.log.2.gz", "kubelet.log.1", "kubelet.log",
		"syslog-20261119.gz", "syslog-20261120", "syslog",
	}
	testkit.Equal(t, "files", want, got)
	if _, err := Files(tree.Root + "/none"); err == nil {
		t.Error("no error for a directory that is not there")
	}
}

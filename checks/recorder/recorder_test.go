package recorder

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/internal/testkit"
	"golang.org/x/sys/unix"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// appender makes a recorder that ends with the test.
func appender(t testing.TB, dir string) *Recorder {
	t.Helper()
	r, err := Open(dir, 0)
	must(t, err)
	t.Cleanup(func() { finish(t, r) })
	return r
}

var must, equal = testkit.Must, testkit.Equal

func finish(t testing.TB, r *Recorder) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, r.Close(ctx))
}

// write opens a folder, appends numbers, and closes it.
func write(t testing.TB, dir string, numbers ...int) {
	t.Helper()
	r := appender(t, dir)
	for _, n := range numbers {
		r.Append(noon.Add(time.Duration(n)*time.Second), KindSample, n)
	}
	finish(t, r)
}

// read returns the data of all records.
func read(t testing.TB, dir string) (data []string, damaged []Damage) {
	t.Helper()
	damaged, err := Read(t.Context(), dir, func(r Record) { data = append(data, string(r.Data)) })
	must(t, err)
	return data, damaged
}

func segmentPath(dir string, n int) string {
	return filepath.Join(dir, segmentsDir, fmt.Sprintf(segmentName, n))
}

func TestRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "kdiag")
	r := appender(t, dir)
	r.Append(noon, KindStart, Start{BootID: "b", Version: "v", IntervalSeconds: 30})
	r.Append(noon, KindSample, func() {})                        // not JSON
	r.Append(noon, KindSample, strings.Repeat("x", maxRecord))   // too large
	r.Append(noon.In(time.FixedZone("", 3600)), KindSample, nil) // kept in UTC
	finish(t, r)
	r.Append(noon, KindSample, "closed")
	finish(t, r) // again
	var got []Record
	_, err := Read(t.Context(), dir, func(r Record) { got = append(got, r) })
	must(t, err)
	want := []Record{
		{noon, KindStart, json.RawMessage(`{"bootID":"b","version":"v","intervalSeconds":30}`)},
		{noon, KindSample, json.RawMessage("null")},
	}
	if diff := cmp.Diff(want, got); diff != "" || r.Lost() != 3 {
		t.Errorf("%d lost, want 3; read (-want +got):\n%s", r.Lost(), diff)
	}
	for path, mode := range map[string]os.FileMode{
		dir: 0o700 | os.ModeDir, filepath.Join(dir, segmentsDir): 0o700 | os.ModeDir, segmentPath(dir, 1): 0o600,
	} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, mode)
		}
	}
	f := frame(r.pack, []byte(`{"at":"2026-11-23T06:00:00Z","data":0,"kind":""}`+"\n")) // the least
	if cap(r.queue)*len(f) < maxQueued {
		t.Errorf("the queue has room for %d frames of %d bytes", cap(r.queue), len(f))
	}
}

// TestProblem has an agent at work when a file takes the place of its folder, and then an empty folder. Records wait,
// and are lost when too many do; those that waited are written once there is a folder, which is locked as the first
// was.
func TestProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, noise := t.TempDir(), make([]byte, 100<<10)
		segments := filepath.Join(dir, segmentsDir)
		r := appender(t, dir)
		must(t, os.Remove(segments), os.WriteFile(segments, nil, 0o600))
		n := 0
		for ; r.Lost() == 0; n++ {
			_, _ = rand.Read(noise) // does not compress
			r.Append(noon, KindSample, noise)
		}
		synctest.Wait()
		if !strings.Contains(r.Problem(), "not a directory") {
			t.Errorf("problem: %q", r.Problem())
		}
		if room, err := r.Room(t.Context(), 1<<20); room != 0 || err == nil {
			t.Errorf("room: %d, %v", room, err)
		}
		must(t, os.Remove(segments), os.Mkdir(segments, 0o700))
		time.Sleep(retryAfter)
		synctest.Wait()
		if got, damaged := read(t, dir); len(got) != n-1 || len(damaged) > 0 || r.Problem() != "" {
			t.Errorf("%d records, want %d; damaged: %v; problem: %q", len(got), n-1, damaged, r.Problem())
		}
		if _, err := Open(dir, 0); !errors.Is(err, ErrInUse) {
			t.Errorf("a second opened with %v, want ErrInUse", err)
		}
		finish(t, r)
		write(t, dir)
	})
}

// threeRecords returns a segment with three records, and where each ends.
func threeRecords(t *testing.T, dir string) (path string, text []byte, ends []int) {
	path = segmentPath(dir, 1)
	for n := range 3 {
		write(t, dir, n)
		text = []byte(testkit.Read(t, path))
		ends = append(ends, len(text))
	}
	return path, text, ends
}

// TestCut cuts the last record at every byte. Those before it are read, and so is what is written behind it.
func TestCut(t *testing.T) {
	dir := t.TempDir()
	path, text, ends := threeRecords(t, dir)
	for cut := ends[1]; cut < len(text); cut++ {
		must(t, os.WriteFile(path, text[:cut], 0o600))
		write(t, dir, 3)
		got, damaged := read(t, dir)
		want := []Damage{
			{"records/00000001.zst", noon.Add(time.Second), noon.Add(3 * time.Second), int64(cut - ends[1]), nil},
		}
		if cut == ends[1] {
			want = nil
		}
		equal(t, fmt.Sprint("records, cut at ", cut), []string{"0", "1", "3"}, got)
		equal(t, fmt.Sprint("damages, cut at ", cut), want, damaged)
	}
	must(t, os.Truncate(path, int64(ends[1])+1))
	if got, damaged := read(t, dir); len(got) != 2 || len(damaged) != 1 || !damaged[0].To.IsZero() {
		t.Errorf("read %s, damaged %v", got, damaged)
	}
}

// TestFlip flips a bit in each byte of a segment: no more than the record that it is in is lost, and that is reported.
func TestFlip(t *testing.T) {
	dir := t.TempDir()
	path, text, ends := threeRecords(t, dir)
	synctest.Test(t, func(t *testing.T) { // Read waits for the end of what an agent may be writing
		for i := range text {
			text[i] ^= 1 << (i % 8)
			must(t, os.WriteFile(path, text, 0o600))
			text[i] ^= 1 << (i % 8)
			hit, _ := slices.BinarySearch(ends, i+1)
			got, damaged := read(t, dir)
			want := slices.Delete([]string{"0", "1", "2"}, hit, hit+1)
			if !slices.Equal(got, want) || len(damaged) != 1 {
				t.Fatalf("byte %d: read %s, damaged %v; want %s", i, got, damaged, want)
			}
		}
	})
}

// TestTail has an agent write the second half of a record after a reader has read the first.
func TestTail(t *testing.T) {
	dir, seen := t.TempDir(), 0
	path, text, ends := threeRecords(t, dir)
	must(t, os.Truncate(path, int64(ends[1])+9))
	damaged, err := Read(t.Context(), dir, func(Record) {
		must(t, os.WriteFile(path, text, 0o600))
		seen++
	})
	if seen != 3 || len(damaged) > 0 || err != nil {
		t.Errorf("read %d of 3, damaged %v, %v", seen, damaged, err)
	}
}

// TestBound appends far more than there is room for. The newest records stay, and the segments never exceed their
// share.
func TestBound(t *testing.T) {
	dir := t.TempDir()
	r := appender(t, dir)
	noise := make([]byte, 100<<10) // does not compress
	for n := range 60 {
		_, _ = rand.Read(noise)
		r.Append(noon, KindSample, map[string]any{"noise": noise, "n": n})
		testkit.Eventually(t, "written", func() bool { return r.queued.Load() == 0 })
		files, _ := filepath.Glob(filepath.Join(dir, segmentsDir, "*"))
		last, err := os.Stat(files[len(files)-1])
		if must(t, err); len(files)*maxSegment > minBytes/4 || last.Size() > maxSegment {
			t.Fatalf("after record %d: %v", n, files)
		}
	}
	got, damaged := read(t, dir)
	if len(got) < 10 || len(damaged) > 0 || !strings.HasPrefix(got[len(got)-1], `{"n":59,`) || r.Lost() > 0 {
		t.Errorf("%d records, %d damages, %d lost", len(got), len(damaged), r.Lost())
	}
}

func TestRoom(t *testing.T) {
	dir := t.TempDir()
	r := appender(t, dir)
	if got, err := r.Room(t.Context(), 1<<40); got != minBytes*3/4 || err != nil {
		t.Errorf("room: %d, %v", got, err)
	}
	captures := filepath.Join(dir, CapturesDir)
	must(t, os.WriteFile(captures+"/x", nil, 0o600), os.Truncate(captures+"/x", 2<<20))
	// No archive is removed where there is room for another, though not for the largest that could be.
	if got, err := r.Room(t.Context(), minBytes/2); got != minBytes/2 || err != nil {
		t.Errorf("room beside 2 MiB: %d, %v", got, err)
	}
	must(t, os.Remove(captures+"/x"))
	for i, name := range []string{"c", "a", "b"} { // the oldest first
		must(t, os.WriteFile(filepath.Join(captures, name), make([]byte, 2<<20), 0o600))
		must(t, os.Chtimes(filepath.Join(captures, name), noon, noon.Add(time.Duration(i)*time.Hour)))
	}
	sent := filepath.Join(captures, "b"+checks.CaptureSent) // goes before the older ones
	must(t, os.WriteFile(sent, nil, 0o600))
	if got, err := r.Room(t.Context(), 3<<20); got != 3<<20 || err != nil {
		t.Errorf("room for 3 MiB: %d, %v", got, err)
	}
	left, err := filepath.Glob(captures + "/*")
	if diff := cmp.Diff([]string{captures + "/a"}, left); diff != "" || err != nil {
		t.Errorf("left: %v\n%s", err, diff)
	}
}

// TestHostile reads what a hostile disk may have in place of segments.
func TestHostile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, 1)
	secret := filepath.Join(t.TempDir(), "secret")
	good := []byte(testkit.Read(t, segmentPath(dir, 1)))
	pack := appender(t, t.TempDir()).pack
	bad := append(frame(pack, bytes.Repeat([]byte(" "), 100<<20)), frame(pack, []byte("null"))...)
	must(
		t,
		os.WriteFile(secret, good, 0o600),
		os.Symlink(secret, segmentPath(dir, 2)),
		unix.Mkfifo(segmentPath(dir, 3), 0o600),
		os.Mkdir(segmentPath(dir, 4), 0o700),
		os.WriteFile(segmentPath(dir, 5), nil, 0o600),
		os.Truncate(segmentPath(dir, 5), 1<<40),
		os.WriteFile(segmentPath(dir, 6), append(slices.Clone(bad), good...), 0o600),
		os.WriteFile(filepath.Join(dir, segmentsDir, "7.zst"), good, 0o600),
	)
	got, damaged := read(t, dir)
	var in []string
	for _, d := range damaged {
		in = append(in, fmt.Sprintf("%s %d %t", filepath.Base(d.File), d.Bytes, d.Err != nil))
	}
	want := []string{
		"00000002.zst 0 true", "00000003.zst 0 true", "00000004.zst 0 true", "00000005.zst 0 true",
		fmt.Sprintf("00000006.zst %d false", len(bad)),
	}
	if diff := cmp.Diff(want, in); diff != "" || !slices.Equal(got, []string{"1", "1"}) {
		t.Errorf("read %s, damaged:\n%s", got, diff)
	}
}

// FuzzRead reads any bytes, and a record behind them, which must be found.
func FuzzRead(f *testing.F) {
	r := appender(f, f.TempDir())
	good := frame(r.pack, []byte(`{"at":"2026-11-23T12:00:00Z","kind":"sample","data":"behind"}`))
	for _, seed := range []string{"", marker, string(good), string(good[:len(good)-1]), string(good[:20]) + string(good)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		must(t, os.Mkdir(filepath.Join(dir, segmentsDir), 0o700))
		must(t, os.WriteFile(segmentPath(dir, 1), append(text[:min(len(text), maxSegment/2)], good...), 0o600))
		data, damaged := read(t, dir)
		if len(data) == 0 || data[len(data)-1] != `"behind"` || len(data) == 1 && len(damaged) != min(1, len(text)) {
			t.Errorf("read %s, damaged %v", data, damaged)
		}
	})
}

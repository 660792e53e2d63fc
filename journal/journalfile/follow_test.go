package journalfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// following runs Follow and sends each message it hands over.
func following(t *testing.T, dir string, since uint64) (_ <-chan string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	lines, done := make(chan string, 1000), make(chan error, 1)
	go func() {
		done <- Follow(ctx, []string{dir}, Query{Since: since}, func(e *Entry) bool {
			lines <- string(e.Message)
			return true
		})
	}()
	return lines, func() {
		t.Helper()
		if cancel(); !errors.Is(<-done, context.Canceled) {
			t.Error("Follow did not end with its context")
		}
	}
}

func expect(t *testing.T, lines <-chan string, want ...string) {
	t.Helper()
	var got []string
	for range want {
		select {
		case l := <-lines:
			got = append(got, l)
		case <-time.After(5 * time.Minute):
			t.Fatalf("waiting for more than %q", got)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

func (w *builder) log(i int) {
	w.entry(t0+uint64(i)*1e6, 1, fmt.Sprintf("MESSAGE=record %d", i), "_SYSTEMD_UNIT=kubelet.service")
}

// successor begins the file that follows w in the same journal.
func (w *builder) successor() *builder {
	n := newBuilder(w.compact, true, w.pack)
	n.seqnum = w.seqnum
	n.b[24] = w.b[24] + 1 // another file id
	return n
}

func TestFollow(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "system.journal")
	w := newBuilder(true, true, objZSTD)
	w.log(0)
	w.log(1)
	w.save(t, path)
	lines, stop := following(t, dir, t0+1)
	expect(t, lines, "record 1")

	w.log(2)
	w.save(t, path)
	expect(t, lines, "record 2")

	for i := 3; i < 200; i++ { // the file grows
		w.log(i)
	}
	w.save(t, path)
	for i := 3; i < 200; i++ {
		expect(t, lines, fmt.Sprintf("record %d", i))
	}

	// Rotation as journald does it: the last records, the new name, then the state, then the successor.
	w.log(200)
	w.save(t, path)
	old := filepath.Join(dir, "system@1.journal")
	must(t, os.Rename(path, old))
	w.b[16] = byte(archived)
	w.save(t, old)
	next := w.successor()
	next.log(201)
	next.save(t, path)
	expect(t, lines, "record 200", "record 201")
	next.log(202)
	next.save(t, path)
	expect(t, lines, "record 202")
	stop()
}

// What systemd writes is handed over while it writes it.
func TestFollowRemote(t *testing.T) {
	need(t, journalRemote)
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), journalRemote, "-o", filepath.Join(dir, "x.journal"), "-")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	must(t, err)
	lines, stop := following(t, dir, 1)
	for range 10 {
		var b bytes.Buffer
		var texts []string
		for i := range 30 {
			texts = append(texts, fmt.Sprintf("%s %d", strings.Repeat("x", i*100), i))
			exportEntry(&b, i, 7, "MESSAGE="+texts[i])
		}
		if _, err := in.Write(b.Bytes()); err != nil {
			t.Fatal(err)
		}
		expect(t, lines, texts...)
	}
	stop()
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Errorf("%v: %v", cmd.Args, err)
	}
}

// A file that another process cuts is given up; its successor is followed.
func TestFollowTruncated(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "system.journal")
	w := newBuilder(true, true, 0)
	w.log(0)
	w.log(1)
	w.save(t, path)
	lines, stop := following(t, dir, t0-1)
	expect(t, lines, "record 0", "record 1")
	must(t, errors.Join(os.Truncate(path, 100), os.Remove(path)))
	next := w.successor()
	next.log(2)
	next.save(t, path)
	expect(t, lines, "record 2")
	stop()
}

func TestFollowNothing(t *testing.T) {
	none := []string{filepath.Join(t.TempDir(), "none")}
	if err := Follow(t.Context(), none, Query{}, func(*Entry) bool { return true }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want %v", err, os.ErrNotExist)
	}
}

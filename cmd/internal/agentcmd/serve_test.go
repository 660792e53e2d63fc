package agentcmd

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/agent"
	"github.com/kdiag/kdiag/checks/recorder"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl/deadline"
)

// TestCaptures lists and sends archives, and nothing else of the disk.
func TestCaptures(t *testing.T) {
	const name = "20261123T140512Z-RuntimeHung.tar.zst"
	dir := t.TempDir()
	folder := filepath.Join(dir, recorder.CapturesDir)
	must(t, os.Mkdir(folder, 0o700))
	for file, text := range map[string]string{
		filepath.Join(folder, name): "archive", filepath.Join(folder, name+".part"): "half",
		filepath.Join(folder, "notes.txt"): "hidden", filepath.Join(dir, "20261123T140512Z-Out.tar.zst"): "hidden",
		filepath.Join(dir, "secret"): "hidden",
	} {
		must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	must(t, os.Mkdir(filepath.Join(folder, "20261123T140513Z-Folder.tar.zst"), 0o700))
	must(t, os.Symlink("../secret", filepath.Join(folder, "20261123T140514Z-Link.tar.zst")))
	get := func(path, from, token string) (int, string) {
		s := &service{env: cli.System(), metrics: agent.NewMetrics("v1", false)}
		s.opts = &options{dataDir: dir, serveCaptures: true, capturesToken: filepath.Join(dir, "token")}
		req, w := httptest.NewRequest("GET", "/captures/"+path, nil), httptest.NewRecorder()
		req.RemoteAddr = from
		req.Header.Set(checks.CapturesToken, token)
		s.handler().ServeHTTP(w, req)
		return w.Code, w.Body.String()
	}
	const here = "127.0.0.1:1"
	_, body := get("", here, "")
	var list checks.CaptureList
	must(t, json.Unmarshal([]byte(body), &list))
	want := []checks.Capture{{
		Name: name, At: time.Date(2026, 11, 23, 14, 5, 12, 0, time.UTC), Cause: "RuntimeHung", Bytes: 7,
	}}
	if diff := cmp.Diff(want, list.Captures); diff != "" || list.Kind != checks.KindCaptureList {
		t.Error(diff, list.Header)
	}
	if code, got := get(name, here, ""); code != 200 || got != "archive" {
		t.Errorf("the archive: %d %s", code, got)
	}
	for _, path := range []string{
		name + ".part", "notes.txt", "20261123T140513Z-Folder.tar.zst", "20261123T140514Z-Link.tar.zst",
		"../20261123T140512Z-Out.tar.zst", "..%2f20261123T140512Z-Out.tar.zst", "../../../../../../etc/passwd",
		"..%2f..%2f..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/secret", "x/../../secret", "20261123T140512Z-..%2fsecret.tar.zst",
		"20261123T140512Z-%00.tar.zst", "//etc/passwd", name + "/", ".", "..", "20261123T140515Z-None.tar.zst",
	} {
		code, got := get(path, here, "")
		if code == 200 || strings.Contains(got, "hidden") || strings.Contains(got, "root:") {
			t.Errorf("%s: %d %s", path, code, got)
		}
	}
	for _, tt := range []struct {
		from, file, sent string
		want             int
	}{
		{"[::1]:1", "", "", 200},
		{"192.0.2.1:1", "secret\n", "secret", 200},
		{"192.0.2.1:1", "secret\n", "guessed", 401},
		{"192.0.2.1:1", "\n", "", 401},
	} {
		must(t, os.WriteFile(filepath.Join(dir, "token"), []byte(tt.file), 0o600))
		for _, path := range []string{"", name} {
			if code, got := get(path, tt.from, tt.sent); code != tt.want {
				t.Errorf("%+v: %q answers %d: %s", tt, path, code, got)
			}
		}
	}
}

// TestOnDisk asks twice for the pages of a disk that hangs. Each request ends, and the disk is read once.
func TestOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var guard deadline.Guard
		var reads atomic.Int32
		answers := make(chan struct{})
		for range 2 {
			_, err := onDisk(t.Context(), &guard, "listing", func(context.Context) (int, error) {
				reads.Add(1)
				<-answers
				return 0, nil
			})
			if !errors.Is(err, deadline.ErrAbandoned) {
				t.Errorf("%v, want an error of a disk that hangs", err)
			}
		}
		if n := reads.Load(); n != 1 {
			t.Errorf("the disk was read %d times", n)
		}
		close(answers)
	})
}

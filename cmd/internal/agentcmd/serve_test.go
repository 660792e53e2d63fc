package agentcmd

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/agent"
	"github.com/kdiag/kdiag/checks/recorder"
	"github.com/kdiag/kdiag/cmd/internal/cli"
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
	serve := func(opts *options) func(string) string {
		s := &service{env: cli.System(), opts: opts, metrics: agent.NewMetrics("v1")}
		server := httptest.NewServer(s.handler())
		t.Cleanup(server.Close)
		return func(path string) string { // as it is: a client would clean it
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			must(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, "GET "+path+" HTTP/1.0\r\n\r\n")
			must(t, err)
			answer, err := io.ReadAll(conn)
			must(t, err)
			return string(answer)
		}
	}
	get := serve(&options{dataDir: dir, serveCaptures: true})
	_, body, _ := strings.Cut(get("/captures/"), "\r\n\r\n")
	var list checks.CaptureList
	must(t, json.Unmarshal([]byte(body), &list))
	want := []checks.Capture{{
		Name: name, At: time.Date(2026, 11, 23, 14, 5, 12, 0, time.UTC), Cause: "RuntimeHung", Bytes: 7,
	}}
	if diff := cmp.Diff(want, list.Captures); diff != "" || list.Kind != checks.KindCaptureList {
		t.Error(diff, list.Header)
	}
	if got := get("/captures/" + name); !strings.HasSuffix(got, "\r\n\r\narchive") ||
		!strings.Contains(got, "Content-Length: 7\r\n") {
		t.Errorf("the archive: %s", got)
	}
	for _, path := range []string{
		name + ".part", "notes.txt", "20261123T140513Z-Folder.tar.zst", "20261123T140514Z-Link.tar.zst",
		"../20261123T140512Z-Out.tar.zst", "..%2f20261123T140512Z-Out.tar.zst", "../../../../../../etc/passwd",
		"..%2f..%2f..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/secret", "x/../../secret", "20261123T140512Z-..%2fsecret.tar.zst",
		"20261123T140512Z-%00.tar.zst", "//etc/passwd", name + "/", ".", "..", "20261123T140515Z-None.tar.zst",
	} {
		got := get("/captures/" + path)
		if strings.HasPrefix(got, "HTTP/1.0 200") || strings.Contains(got, "hidden") || strings.Contains(got, "root:") {
			t.Errorf("%s: %s", path, got)
		}
	}
	token := filepath.Join(dir, "token")
	for _, tt := range []struct{ from, file, sent, want string }{
		{"127.0.0.1:1", "", "", "200"}, {"[::1]:1", "", "", "200"},
		{"192.0.2.1:1", "secret\n", "secret", "200"},
		{"192.0.2.1:1", "secret\n", "guessed", "401"}, {"192.0.2.1:1", "secret\n", "", "401"},
		{"192.0.2.1:1", "\n", "", "401"}, {"192.0.2.1:1", "", "", "401"},
	} {
		must(t, os.WriteFile(token, []byte(tt.file), 0o600))
		s := &service{env: cli.System(), opts: &options{dataDir: dir, serveCaptures: true, capturesToken: token}}
		s.metrics = agent.NewMetrics("v1")
		for _, path := range []string{"/captures/", "/captures/" + name} {
			req, w := httptest.NewRequest("GET", path, nil), httptest.NewRecorder()
			req.RemoteAddr = tt.from
			req.Header.Set(checks.CapturesToken, tt.sent)
			if s.handler().ServeHTTP(w, req); fmt.Sprint(w.Code) != tt.want {
				t.Errorf("%+v: %s answers %d: %s", tt, path, w.Code, w.Body)
			}
		}
	}
}

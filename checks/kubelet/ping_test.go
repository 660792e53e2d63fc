package kubelet

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAskPing asks for a kubelet that is not among the processes: on a host without its files, with its files and nobody at its
// port, and with somebody there.
func TestAskPing(t *testing.T) {
	root := t.TempDir()
	if h, err := AskPing(t.Context(), root); !errors.Is(err, ErrNoNode) {
		t.Fatalf("on a host without a kubelet's files: %+v, %v", h, err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	setUp := func(config string) {
		t.Helper()
		path := filepath.Join(root, "var/lib/kubelet/config.yaml")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	setUp("kind: KubeletConfiguration\nhealthzPort: " + port + "\n")
	if h, err := AskPing(t.Context(), root); err != nil || h.Ping == nil || h.Ping.Status != http.StatusOK {
		t.Errorf("with somebody at its port: %+v, %v", h.Ping, err)
	}
	setUp("healthzPort: 1\n")
	unit := filepath.Join(root, "etc/systemd/system/kubelet.service")
	if err := errors.Join(os.MkdirAll(filepath.Dir(unit), 0o755), os.WriteFile(unit, []byte("[Service]\nExecStart=kubelet --healthz-port="+port+"\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if h, err := AskPing(t.Context(), root); err != nil || h.Ping == nil || h.Ping.Status != http.StatusOK {
		t.Errorf("with the port in its unit: %+v, %v", h.Ping, err)
	}
	if err := os.Remove(unit); err != nil {
		t.Fatal(err)
	}
	setUp("healthzPort: " + port + "\n")
	server.Close()
	if h, err := AskPing(t.Context(), root); err != nil || h.Ping == nil || h.Ping.Status != 0 || !strings.Contains(h.Ping.Err, "refused") {
		t.Errorf("with nobody at its port: %+v, %v", h.Ping, err)
	}
	setUp("healthzPort: 0\n")
	if h, err := AskPing(t.Context(), root); err != nil || h.Ping != nil {
		t.Errorf("with its port turned off: %+v, %v", h.Ping, err)
	}
	setUp("healthzPort: [\n")
	if h, err := AskPing(t.Context(), root); err != nil || h.Ping == nil || h.Ping.URL != "http://127.0.0.1:10248/healthz" {
		t.Errorf("with a configuration that nobody can read: %+v, %v", h.Ping, err)
	}
}

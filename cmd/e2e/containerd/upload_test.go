//go:build e2e

package containerd

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/upload/uploadtest"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

// TestEndToEndUpload makes the runtime hang in turn as a whole and for one pod, and kills the agent, as a node that is
// destroyed does, when its archive has arrived at the store, a minute after the onset at the latest. The first request
// stalls in one. The log has how long after onset and fault each archive was there (docs/bench).
func TestEndToEndUpload(t *testing.T) {
	c := e2etest.StartContainerd(t, nodebox.Options{Network: true, RootSize: 1 << 30})
	pods := e2etest.RunPods(t, c, nodebox.Pods{Count: 3, Containers: 2, State: crictl.ContainerRunning})
	hangs := []struct {
		cause  string
		stalls bool // the store, at first
		begin  func() (end func() error)
	}{
		{"RuntimeHung", false, func() func() error {
			e2etest.Must(t, c.Pause(t.Context()))
			return c.Resume
		}},
		{"ListHang", true, func() func() error {
			end, err := c.Wedge(t.Context(), pods[1].ID, pods[1].Containers[0].ID)
			e2etest.Must(t, err)
			return end
		}},
	}
	for _, h := range hangs {
		t.Run(h.cause, func(t *testing.T) { uploads(t, c, h.cause, h.begin, h.stalls) })
	}
}

func uploads(t *testing.T, c *nodebox.Containerd, cause string, begin func() func() error, stalls bool) {
	const object = "/evidence/node.tar.zst"
	store := &uploadtest.Store{Fault: func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if n > 0 || !stalls {
			return false
		}
		if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_, _ = io.Copy(io.Discard, conn) // until the agent gives it up
		}
		return true
	}}
	server := httptest.NewTLSServer(store)
	defer server.Close()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	e2etest.Must(t, os.WriteFile(ca, pem.EncodeToMemory(block), 0o600))
	address := filepath.Join(dir, "url")
	url := uploadtest.Presign(http.MethodPut, server.URL+object, time.Now(), time.Hour)
	e2etest.Must(t, os.WriteFile(address, []byte(url+"\n"), 0o600))
	listen := fmt.Sprintf("127.0.0.1:%d", e2etest.FreePort(t))
	agent := e2etest.Start(t, nil, "agent", "-r", c.Endpoint(), "--data-dir", dir, "--listen", listen, "--interval", "5s",
		"--upload", "@"+address, "--upload-ca", ca)
	e2etest.Eventually(t, "a look", func() bool {
		answer, err := http.Get("http://" + listen + "/report")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	fault := time.Now()
	end := begin()
	var got uploadtest.Object
	e2etest.Eventually(t, "the archive", func() (ok bool) {
		got, ok = store.Object(object)
		return ok || time.Since(fault) > 65*time.Second // the onset is at most a look after the fault
	})
	e2etest.Must(t, agent.Process.Kill())
	agent.Wait()
	e2etest.Must(t, end())
	b, err := bundle.Open(t.Context(), bytes.NewReader(got.Data))
	if err != nil || !b.Intact {
		t.Fatalf("the archive of %d bytes: %v", len(got.Data), err)
	}
	e2etest.Must(t, b.Close())
	h := e2etest.Decode[checks.History](t, e2etest.Kdiag(t.Context(), t, "history", "--data-dir", dir, "-o", "json"))
	for _, tr := range h.Transitions {
		if tr.Cause == cause {
			t.Logf("FIGURES %s: %d bytes, %.1f s after the onset, %.1f s after the fault; %s, noticed %.1f s after it",
				cause, len(got.Data), got.At.Sub(tr.At).Seconds(), got.At.Sub(fault).Seconds(), tr.To,
				tr.Noticed.Sub(tr.At).Seconds())
			return
		}
	}
	t.Errorf("no onset of %s: %+v", cause, h.Transitions)
}

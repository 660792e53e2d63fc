//go:build e2e

package containerd

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/upload/uploadtest"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

// TestEndToEndUpload freezes the runtime, and kills the agent, as a node that is destroyed does, when its archive has
// arrived at the store, a minute after the onset at the latest. The log has how long after the fault it was there.
func TestEndToEndUpload(t *testing.T) {
	c, dir := nodebox.Start(t, nodebox.Options{Network: true}), t.TempDir()
	store := &uploadtest.Store{}
	server := httptest.NewTLSServer(store)
	defer server.Close()
	ca := &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	e2etest.Must(t, os.WriteFile(dir+"/ca.pem", pem.EncodeToMemory(ca), 0o600))
	const object = "/evidence/node.tar.zst"
	url := uploadtest.Presign(http.MethodPut, server.URL+object, time.Now(), time.Hour)
	e2etest.Must(t, os.WriteFile(dir+"/url", []byte(url+"\n"), 0o600))
	agent := e2etest.Start(t, nil, "agent", "-r", c.Endpoint(), "--data-dir", dir, "--listen", "", "--interval", "5s",
		"--textfile-dir", dir, "--upload", "@"+dir+"/url", "--upload-ca", dir+"/ca.pem")
	e2etest.Eventually(t, "a look", func() bool {
		_, err := os.Stat(dir + "/kdiag.prom")
		return err == nil
	})
	fault := time.Now()
	e2etest.Must(t, c.Pause(t.Context()))
	var got uploadtest.Object
	e2etest.Eventually(t, "the archive", func() (ok bool) {
		got, ok = store.Object(object)
		return ok || time.Since(fault) > 65*time.Second // the onset is at most a look after the fault
	})
	e2etest.Must(t, agent.Process.Kill())
	agent.Wait()
	e2etest.Must(t, c.Resume())
	_, files := e2etest.OpenBundle(t, string(got.Data))
	if !strings.Contains(files[bundle.ReportName], "RuntimeHung") {
		t.Errorf("the archive has another cause:\n%.2000s", files[bundle.ReportName])
	}
	t.Logf("FIGURES %d bytes, %.1f s after the fault", len(got.Data), got.At.Sub(fault).Seconds())
}

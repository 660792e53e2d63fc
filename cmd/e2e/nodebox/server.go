//go:build e2e

package nodebox

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A Server is a program that serves HTTP on a port of this machine: host:port.
type Server string

// StartServer starts a program of Prometheus on a free port, and ends it with the test.
func StartServer(tb testing.TB, name string, args ...string) Server {
	tb.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must(tb, err)
	s := Server(free.Addr().String())
	must(tb, free.Close())
	cmd := exec.CommandContext(tb.Context(), name, append(args, "--web.listen-address="+string(s))...)
	var log bytes.Buffer
	cmd.Stderr = &log
	must(tb, cmd.Start())
	tb.Cleanup(func() {
		_ = cmd.Wait() // the end of the test killed it
		if tb.Failed() {
			tb.Logf("%s:\n%s", name, log.String())
		}
	})
	return s
}

// Await waits until a page is as wanted, and fails the test when it is not so within two minutes.
func (s Server) Await(tb testing.TB, path string, wanted func(page string) bool) {
	tb.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		var page []byte
		resp, err := http.Get("http://" + string(s) + path)
		if err == nil {
			page, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}
		if err == nil && wanted(string(page)) {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("%s is not as wanted: %v\n%s", path, err, page)
		}
	}
}

// StartPrometheus starts a Prometheus with a file of rules, that scrapes a target each two
// seconds: a scrape that fails on a busy machine sets an alert back.
func StartPrometheus(tb testing.TB, rules, target string, args ...string) Server {
	tb.Helper()
	dir := tb.TempDir()
	rules, err := filepath.Abs(rules)
	must(tb, err)
	must(tb, os.WriteFile(dir+"/prometheus.yml", fmt.Appendf(nil, `
global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs: [{job_name: kdiag-agent, static_configs: [{targets: [%q]}]}]
`, rules, target), 0o644))
	return StartServer(tb, "prometheus", append(args, "--config.file="+dir+"/prometheus.yml",
		"--storage.tsdb.path="+dir+"/data")...)
}

// Finds wants a query to return something.
func (s Server) Finds(tb testing.TB, query string) {
	tb.Helper()
	s.Await(tb, "/api/v1/query?query="+url.QueryEscape(query), func(page string) bool {
		return strings.Contains(page, `"metric":`)
	})
}

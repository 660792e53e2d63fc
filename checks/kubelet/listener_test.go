package kubelet

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// TestMain lets the test's binary be another process, which listens until its standard input ends.
func TestMain(m *testing.M) {
	if address := os.Getenv("KDIAG_TEST_LISTEN"); address != "" {
		l, err := net.Listen("tcp", address)
		if err != nil {
			os.Exit(1)
		}
		fmt.Println(l.Addr())
		go func() { _ = http.Serve(l, answer(200, "ok")) }()
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// listens starts a process that answers 200 on a port of the loopback, and returns its address and number.
func listens(t *testing.T, address string) (string, int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "KDIAG_TEST_LISTEN="+address)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	var at string
	_, err = fmt.Fscan(out, &at)
	must(t, err)
	return at, cmd.Process.Pid
}

// TestPortHeldByAStranger checks that the 200 of another process is not taken for the kubelet's health, and that no
// token is sent to it.
func TestPortHeldByAStranger(t *testing.T) {
	n := newNode(t, newIssuer(t))
	n.given.Token = "secret"
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::]:0"} {
		at, pid := listens(t, address)
		_, port, err := net.SplitHostPort(at)
		must(t, err)
		s := n.settings
		s.HealthzAddress, s.Address = "127.0.0.1:"+port, "0.0.0.0:"+port
		got, err := AskHealth(t.Context(), "/", s, n.given)
		must(t, err)
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		must(t, err)
		name := strings.TrimSpace(string(comm))
		equal(t, []Holder{{s.HealthzAddress, name, pid}, {s.Address, name, pid}}, got.Holders)
		want := fmt.Sprintf("%s (pid %d) listens at %s, not the kubelet", name, pid, s.HealthzAddress)
		equal(t, Answer{URL: "http://" + s.HealthzAddress + "/healthz", Err: want}, *got.Ping)
		if got.SyncLoop != nil || !strings.Contains(got.Missing, "not the kubelet") {
			t.Errorf("%s: the server was asked: %+v", address, got)
		}
	}
	own, err := AskHealth(t.Context(), "/", n.settings, n.given)
	must(t, err)
	equal(t, 0, len(own.Holders))
	equal(t, 200, own.Ping.Status)
}

// TestPortHeldByANamesake has the kubelet's port be held by another process of its name: one that starts, and a pod's.
func TestPortHeldByANamesake(t *testing.T) {
	for mounts, want := range map[string][]Holder{
		"mnt:[1]": nil, "mnt:[2]": {{Address: "127.0.0.1:10248", Name: "kubelet", PID: 900}},
	} {
		h := newTree(t)
		h.process("812", "kubelet", "kubelet")
		h.process("900", "kubelet", "kubelet")
		h.file("proc/812/net/tcp", "  sl  local_address\n"+
			"  0: 0100007F:2808 00000000:0000 0A 0:0 0:0 0 0 0 77\n", "proc/812/fd/1", "")
		h.link("socket:[77]", "proc/900/fd/3")
		h.link("mnt:[1]", "proc/812/ns/mnt")
		h.link(mounts, "proc/900/ns/mnt")
		equal(t, want, holders(t.Context(), h.root, Settings{PID: 812, HealthzAddress: "127.0.0.1:10248"}))
	}
}

// TestRefusedOnce checks that a kubelet which refuses the node's certificate has one request and one connection
// to log.
func TestRefusedOnce(t *testing.T) {
	i := newIssuer(t)
	n := newNode(t, i)
	certificate, key := i.node()
	n.settings.CertDir = "/pki"
	n.file("pki/kubelet-client-current.pem", certificate+key)
	var mu sync.Mutex
	var asked []string
	n.allow = func(r *http.Request) int {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.Path)
		return http.StatusForbidden
	}
	got, err := AskHealth(t.Context(), n.root, n.settings, Credentials{})
	must(t, err)
	n.server.Close()
	equal(t, []string{"/healthz/syncloop"}, asked)
	equal(t, int32(1), n.connections.Load())
	equal(t, "the kubelet's server refuses the node certificate (403)", got.Missing)
}

//go:build e2e

package node

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

// A testNode is a whole node, with a kubelet.
type testNode struct{ e2etest.Node }

// kdiag runs kdiag in the node, which has to end in time.
func (n testNode) kdiag(t *testing.T, command string) e2etest.Outcome {
	t.Helper()
	const limits = " --timeout 40s --rpc-timeout 8s" // nothing but a busy machine makes this runtime slow
	o := outcome(t, n.Sh(t, "timeout 120 kdiag "+command+limits+
		" -o json 2> /run/kdiag.err; code=$?; echo; echo $code"))
	if testing.Verbose() {
		t.Log(n.Sh(t, "kdiag "+command+limits+" --color never || true")) // what a person would read
	}
	o.Stderr = n.Sh(t, "cat /run/kdiag.err")
	return o
}

// outcome splits standard output from the exit code in the line after it.
func outcome(t *testing.T, out string) e2etest.Outcome {
	t.Helper()
	end := strings.LastIndex(out, "\n")
	code, err := strconv.Atoi(out[end+1:])
	e2etest.Must(t, err)
	return e2etest.Outcome{Code: code, Stdout: out[:end+1]}
}

// ofTheKernel are causes that other tests on the machine can make real at any time: a node in a box shares its kernel,
// its disk and its CPUs.
var ofTheKernel = []string{
	"OOMKilled", "KernelHung", "IOStall", "CPUStarved", "MemoryPressure", "DiskFull", "InodesExhausted",
	"CgroupsLeaked", "ClockJumped", "RuntimeSlow", "RelistOverloaded",
}

// own removes the causes that need not be this node's.
func own(r *checks.Report) *checks.Report {
	r.Causes = slices.DeleteFunc(r.Causes, func(c checks.Cause) bool { return slices.Contains(ofTheKernel, c.Code) })
	return r
}

// blames checks that a report has one cause first, that this is critical, and its first step and its subject, by name
// or by id; which may be empty.
func blames(t *testing.T, o e2etest.Outcome, code, step, subject string) checks.Cause {
	t.Helper()
	r := o.Report(t)
	e2etest.Record(t, r, code)
	if r = own(r); len(r.Causes) == 0 || r.Causes[0].Code != code {
		t.Fatalf("%s\n%s\ncauses %v, want %s first", o.Stdout, o.Stderr, e2etest.Codes(r), code)
	}
	c := r.Causes[0]
	if c.Severity != checks.Critical || r.Status != checks.Unhealthy || o.Code != 1 {
		t.Errorf("%s is %s, status %s, exit code %d; want critical, unhealthy, 1", code, c.Severity, r.Status, o.Code)
	}
	if len(c.NextSteps) == 0 || !strings.HasPrefix(c.NextSteps[0].Command, step) {
		t.Errorf("next steps %+v, want first %q", c.NextSteps, step)
	}
	if s := c.Subject; subject != "" && (s == nil || s.Name != subject && s.ID != subject) {
		t.Errorf("subject %+v, want %s", s, subject)
	}
	return c
}

// both runs a check on the answers of kdiag node and kdiag pleg, and the steps that only read between the two. It
// returns the causes that the first names.
func (n testNode) both(t *testing.T, check func(t *testing.T, o e2etest.Outcome)) (causes []checks.Cause) {
	t.Helper()
	for _, command := range []string{"node", "pleg"} {
		t.Run(command, func(t *testing.T) {
			o := n.kdiag(t, command)
			check(t, o)
			if command == "node" {
				causes = own(o.Report(t)).Causes
				n.steps().Check(t, causes...)
			}
		})
	}
	return causes
}

// steps runs next steps in the node.
func (n testNode) steps() e2etest.Steps {
	return e2etest.Steps{
		Exec: func(argv ...string) ([]byte, error) { return n.Box.Exec(context.Background(), argv...) },
		Ask:  []string{"kdiag", "node", "-o", "json"},
	}
}

// wantStatus checks what one check found, and a part of its summary.
func wantStatus(t *testing.T, o e2etest.Outcome, id string, want checks.Status, words string) {
	t.Helper()
	if got := status(t, o, id); got.Status != want || !strings.Contains(got.Summary, words) {
		t.Errorf("%s is %s: %s; want %s %s", id, got.Status, got.Summary, want, words)
	}
}

// TestEndToEndNodeBox breaks a whole node, with systemd and a kubelet, in one way after the other.
func TestEndToEndNodeBox(t *testing.T) {
	t.Parallel() // it waits for systemd
	n := testNode{e2etest.BootNode(t)}
	t.Run("healthy", n.testHealthy)
	t.Run("runtime stopped", n.testRuntimeStopped)
	t.Run("runtime killed", n.testRuntimeKilled)
	t.Run("folder in the socket's place", n.testFolderAtSocket)
	t.Run("kubelet frozen", n.testKubeletFrozen)
	t.Run("from a pod", n.testFromPod)
	t.Run("kubelet stopped", n.testKubeletStopped)
	t.Run("API server refused", n.testAPIServerRefused)
	t.Run("certificate expired", n.testCertificateExpired)
	t.Run("message bus frozen", n.testBusFrozen)
	t.Run("systemd frozen", n.testSystemdFrozen)
	t.Run("kubelet crashing", n.testKubeletCrashing) // the last: its restarts stay in the log
}

func (n testNode) testHealthy(t *testing.T) {
	o := n.kdiag(t, "node")
	r := own(o.Report(t))
	if len(r.Causes) != 0 || len(r.Problems) != 0 {
		t.Errorf("causes %v, problems %q\n%s", e2etest.Codes(r), r.Problems, o.Stdout)
	}
	for _, id := range []string{
		"systemd.answer", "systemd.units", "runtime.unit", "runtime.status", "kubelet.unit", "kubelet.healthz",
		"kubelet.server", "kubelet.metrics", "kubelet.cni", "host.processes", "host.mounts", "journal.kubelet",
		"kubelet.cgroupdriver",
	} {
		wantStatus(t, o, id, checks.StatusOK, "")
	}
	// The box shares its disk, so how fast that is does not matter; but the writes were timed.
	if got := status(t, o, "host.writes"); got.Status == checks.StatusUnknown || got.Status == checks.StatusSkipped {
		t.Errorf("host.writes is %s: %s", got.Status, got.Summary)
	}
	if r := own(n.kdiag(t, "pleg").Report(t)); len(r.Causes) != 0 {
		t.Errorf("kdiag pleg: causes %v", e2etest.Codes(r))
	}
}

func (n testNode) testRuntimeStopped(t *testing.T) {
	n.Sh(t, "systemctl stop containerd")
	defer n.Sh(t, "systemctl start containerd")
	causes := n.both(t, func(t *testing.T, o e2etest.Outcome) {
		c := blames(t, o, "RuntimeDown", "systemctl status --no-pager containerd", "containerd.service")
		if !strings.Contains(c.Summary, "containerd.service is inactive") {
			t.Error(c.Summary)
		}
	})
	n.steps().Repair(t, causes[0], "systemctl restart containerd")
}

// testFolderAtSocket has the runtime start in vain, until somebody removes the folder.
func (n testNode) testFolderAtSocket(t *testing.T) {
	const socket = "/run/containerd/containerd.sock"
	n.Sh(t, "systemctl stop containerd; rm -f "+socket+"; mkdir "+socket+"; systemctl start --no-block containerd")
	defer n.Sh(t, "rmdir "+socket+" || true; systemctl reset-failed containerd; systemctl start containerd")
	c := blames(t, n.kdiag(t, "node"), "RuntimeDown", "ls -ld "+socket, "")
	n.steps().Check(t, c)
	n.steps().Repair(t, c, "rmdir "+socket)
}

// testRuntimeKilled kills a runtime that systemd starts again: it is well, and its restarts are counted.
func (n testNode) testRuntimeKilled(t *testing.T) {
	for i := range 4 {
		n.Sh(t, "systemctl kill -s KILL containerd")
		n.Await(t, fmt.Sprintf("systemctl show -p NRestarts --value containerd | grep -x %d && "+
			"systemctl is-active containerd", i+1))
	}
	o := n.kdiag(t, "node")
	wantStatus(t, o, "runtime.unit", checks.StatusWarning, "restarted 4 times")
	if r := o.Report(t); slices.Contains(e2etest.Codes(r), "RuntimeDown") {
		t.Errorf("causes %v of a runtime that is up", e2etest.Codes(r))
	}
}

func (n testNode) testKubeletFrozen(t *testing.T) {
	pid := n.Sh(t, "systemctl show -p MainPID --value kubelet")
	n.Sh(t, "systemctl kill -s STOP kubelet")
	defer n.Sh(t, "systemctl kill -s CONT kubelet")
	causes := n.both(t, func(t *testing.T, o e2etest.Outcome) {
		c := blames(t, o, "KubeletStalled", "grep -E 'State|TracerPid' /proc/"+pid+"/status", "kubelet.service")
		if p := c.Subject.Processes; len(p) != 1 || strconv.Itoa(p[0].PID) != pid || p[0].State != "stopped" {
			t.Errorf("processes %+v, want the stopped one, %s", p, pid)
		}
		if steps := c.NextSteps; len(steps) < 2 || steps[1].Command != "kill -CONT "+pid {
			t.Errorf("next steps %+v, want to continue it", steps)
		}
	})
	n.steps().Repair(t, causes[0], "kill -CONT")
}

// inPod is how a privileged pod with hostPID sees a node: another root, with the host's under /host.
const inPod = `unshare --mount sh -c '
	mkdir -p /run/pod && mount -t tmpfs pod /run/pod && cd /run/pod && mkdir host proc tmp &&
	mount --rbind / host && mount -t proc proc proc && cp /usr/local/bin/kdiag . &&
	chroot . /kdiag node --host-root /host -o json; code=$?; echo; echo $code'`

// testFromPod asks from a privileged pod, while all is well and while the kubelet is stopped.
func (n testNode) testFromPod(t *testing.T) {
	o := outcome(t, n.Sh(t, inPod))
	if r := own(o.Report(t)); len(r.Causes) != 0 {
		t.Errorf("causes %v of a node that is well\n%s", e2etest.Codes(r), o.Stdout)
	}
	for _, id := range []string{
		"systemd.answer", "runtime.status", "kubelet.unit", "kubelet.server", "kubelet.cni", "host.mounts",
		"journal.kubelet",
	} {
		wantStatus(t, o, id, checks.StatusOK, "")
	}
	n.Sh(t, "systemctl kill -s STOP kubelet")
	defer n.Sh(t, "systemctl kill -s CONT kubelet")
	blames(t, outcome(t, n.Sh(t, inPod)), "KubeletStalled", "grep", "")
}

func (n testNode) testKubeletStopped(t *testing.T) {
	n.Sh(t, "systemctl stop kubelet")
	defer n.Sh(t, "systemctl start kubelet")
	causes := n.both(t, func(t *testing.T, o e2etest.Outcome) {
		blames(t, o, "KubeletDown", "systemctl status --no-pager kubelet", "kubelet.service")
		wantStatus(t, o, "kubelet.healthz", checks.StatusWarning, "connection refused")
	})
	n.steps().Repair(t, causes[0], "systemctl start kubelet")
}

// testKubeletCrashing lets the kubelet end at each start, for ever, and then until systemd gives up.
func (n testNode) testKubeletCrashing(t *testing.T) {
	n.Sh(t, "sleep 1; journalctl --quiet --rotate --vacuum-time=1s") // forgets the API server's outage
	n.Write(t, "etc/default/kubelet", "KUBELET_ARGS=--config /var/lib/kubelet/none.yaml\n")
	defer n.Sh(t, "rm /etc/default/kubelet /etc/systemd/system/kubelet.service.d/limit.conf; systemctl daemon-reload; "+
		"systemctl reset-failed kubelet; systemctl start kubelet")
	n.Sh(t, "systemctl restart kubelet || true")
	n.Await(t, "test $(systemctl show -p NRestarts --value kubelet) -ge 4")
	n.both(t, func(t *testing.T, o e2etest.Outcome) {
		blames(t, o, "KubeletCrashLooping", "systemctl status --no-pager kubelet", "")
	})
	n.Write(t, "etc/systemd/system/kubelet.service.d/limit.conf",
		"[Unit]\nStartLimitIntervalSec=60\nStartLimitBurst=3\n")
	n.Sh(t, "systemctl daemon-reload")
	n.Await(t, "systemctl is-failed kubelet")
	wantChain(t, own(n.kdiag(t, "node").Report(t)), "KubeletCrashLooping", "KubeletDown")
}

// wantChain checks that a report has two causes, and the first is the root of the second.
func wantChain(t *testing.T, r *checks.Report, root, consequence string) {
	t.Helper()
	if got := e2etest.Codes(r); !slices.Equal(got, []string{root, consequence}) || r.Causes[1].CausedBy != root {
		t.Errorf("causes %+v, want %s, and because of it %s", r.Causes, root, consequence)
	}
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "%s", certificate-authority: /etc/kubernetes/pki/ca.crt}}]
users:
- name: u
  user:
    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem
    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

// join gives the kubelet an API server to report to until the test ends, that server's certificate, and its own, which
// ends then.
func (n testNode) join(t *testing.T, server string, certificate []byte, until time.Time) {
	t.Helper()
	n.Write(t, "etc/kubernetes/pki/ca.crt", block("CERTIFICATE", certificate))
	n.Write(t, "var/lib/kubelet/pki/kubelet-client-current.pem", clientPair(t, until))
	n.Write(t, "etc/kubernetes/kubelet.conf", fmt.Sprintf(kubeconfig, server))
	n.Write(t, "etc/default/kubelet", "KUBELET_ARGS=--kubeconfig /etc/kubernetes/kubelet.conf\n")
	n.Sh(t, "systemctl restart kubelet")
	n.Await(t, "grep -x kubelet /proc/$(systemctl show -p MainPID --value kubelet)/comm") // systemd forks first
	t.Cleanup(func() {
		_, _ = n.Box.Exec(context.Background(), "sh", "-c", "rm /etc/default/kubelet /etc/kubernetes/kubelet.conf "+
			"/var/lib/kubelet/pki/kubelet-client-current.pem; systemctl restart kubelet")
	})
}

func (n testNode) testAPIServerRefused(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	server.Close() // nobody listens there now
	n.join(t, server.URL, server.Certificate().Raw, time.Now().Add(time.Hour))
	c := blames(t, n.kdiag(t, "node"), "APIServerUnreachable", "curl -sk", "")
	n.steps().Check(t, c)
	if !strings.Contains(c.Summary, "connection refused") || !strings.Contains(c.NextSteps[0].Command, server.URL) {
		t.Errorf("%s\n%+v", c.Summary, c.NextSteps)
	}
}

// testCertificateExpired has the API server refuse the kubelet's certificate for as long as it takes to be an outage.
func (n testNode) testCertificateExpired(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) > 0 && time.Now().After(r.TLS.PeerCertificates[0].NotAfter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 401,
				"message": "Unauthorized", "reason": "Unauthorized"}`)
		}
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	n.join(t, server.URL, server.Certificate().Raw, time.Now().Add(-time.Hour))
	c := blames(t, n.kdiag(t, "node"), "CertificateExpired", "openssl x509",
		"/var/lib/kubelet/pki/kubelet-client-current.pem")
	n.steps().Check(t, c)
	if !slices.Contains(c.Evidence.For, "the API server answers 401 Unauthorized") {
		t.Errorf("evidence %+v", c.Evidence)
	}
	time.Sleep(45 * time.Second) // the control plane waits for 40
	all := own(n.kdiag(t, "node").Report(t))
	wantChain(t, all, "CertificateExpired", "APIServerUnreachable")
	for _, c := range all.Causes[1:] { // the log began with another server
		if !strings.Contains(c.NextSteps[0].Command, server.URL) {
			t.Errorf("%s asks %q, want %s", c.Code, c.NextSteps[0].Command, server.URL)
		}
	}
}

func block(kind string, data []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
}

// clientPair returns a certificate that ends then, with its key, as the kubelet keeps them: in one file.
func clientPair(t *testing.T, until time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	e2etest.Must(t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: until.Add(-24 * time.Hour), NotAfter: until,
		Subject:     pkix.Name{CommonName: "system:node:node", Organization: []string{"system:nodes"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	e2etest.Must(t, err)
	secret, err := x509.MarshalECPrivateKey(key)
	e2etest.Must(t, err)
	return block("CERTIFICATE", der) + block("EC PRIVATE KEY", secret)
}

func (n testNode) testBusFrozen(t *testing.T) {
	n.Sh(t, "systemctl kill -s STOP dbus")
	defer n.Sh(t, "systemctl kill -s CONT dbus")
	c := blames(t, n.kdiag(t, "node"), "SystemdWedged", "ps -o pid,stat,wchan:32,pcpu,etime,comm -C dbus-daemon",
		"dbus.service")
	n.steps().Check(t, c)
	n.steps().Repair(t, c, "systemctl kill -s CONT dbus")
}

func (n testNode) testSystemdFrozen(t *testing.T) {
	e2etest.Must(t, syscall.Kill(n.Box.Leader(), syscall.SIGSTOP))
	defer func() { e2etest.Must(t, syscall.Kill(n.Box.Leader(), syscall.SIGCONT)) }()
	n.both(t, func(t *testing.T, o e2etest.Outcome) {
		blames(t, o, "SystemdWedged", "timeout 5 systemctl is-system-running", "1")
		wantStatus(t, o, "kubelet.unit", checks.StatusUnknown, "")
	})
}

// onUnified runs a command where cgroup version 2 alone is mounted, in its usual place, with a frozen group of the
// container $1 in it.
const onUnified = `
	set -e
	umount -R /sys/fs/cgroup
	mount -t cgroup2 none /sys/fs/cgroup
	pod=/sys/fs/cgroup/$0/kubepods/pod33333333-3333-4333-8333-333333333333
	container=$pod/$1
	shift
	mkdir -p $container
	sleep 1000 & sleeper=$!
	trap 'code=$?; kill -9 $sleeper; wait
		rmdir $container $pod /sys/fs/cgroup/$0/kubepods /sys/fs/cgroup/$0; exit $code' EXIT
	echo $sleeper > $container/cgroup.procs
	echo 1 > $container/cgroup.freeze
	until grep -q "frozen 1" $container/cgroup.events; do sleep 0.1; done
	set +e
	"$@"`

// TestEndToEndNodeUnified freezes a container under cgroup version 2, whatever the machine itself has mounted.
func TestEndToEndNodeUnified(t *testing.T) {
	c := e2etest.StartContainerd(t, nodebox.Options{Network: true})
	p := program{path: e2etest.Program(t), endpoint: c.Endpoint()}
	pods := e2etest.RunPods(t, c, nodebox.Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})
	id := pods[0].Containers[0].ID
	p.inside = []string{
		"unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", onUnified,
		"e2e-" + filepath.Base(c.Dir()), id,
	}
	frozen := func(s checks.Subject) bool { return strings.HasSuffix(s.ID, id) || strings.HasSuffix(s.Name, id) }
	cause := p.found(t, finding{checks.Warning, "cgroup.freeze", frozen, []string{"CgroupFrozen"}})
	p.steps().Repair(t, cause, "echo 0 > ")
	wantStatus(t, p.node(t), "host.cgroups", checks.StatusOK, "")
}

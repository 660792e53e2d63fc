//go:build e2e

package node

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

// A controlPlane answers like an API server that has one node, and is in one of several states at a time.
type controlPlane struct {
	*httptest.Server
	state atomic.Pointer[string]
}

// The states of a controlPlane beside that of one that is well.
const (
	nodeDeleted  = "the node object is deleted"
	webhookFails = "a webhook refuses each write"
	nodeUnknown  = "the node is Unknown"
	diskPressure = "the node has DiskPressure"
)

func newControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	c := &controlPlane{}
	c.set("")
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(c.answer))
	c.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	c.StartTLS()
	t.Cleanup(c.Close)
	return c
}

func (c *controlPlane) set(state string) { c.state.Store(&state) }

func (c *controlPlane) answer(w http.ResponseWriter, r *http.Request) {
	state := *c.state.Load()
	refuse := func(status int, reason, message string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":%q}`,
			status, reason, message)
	}
	w.Header().Set("Content-Type", "application/json")
	node, lease := strings.HasSuffix(r.URL.Path, "/nodes/node"), strings.HasSuffix(r.URL.Path, "/leases/node")
	switch {
	case state == nodeDeleted && (node || lease):
		refuse(http.StatusNotFound, "NotFound", `nodes "node" not found`)
	case state == webhookFails && r.Method != http.MethodGet:
		refuse(http.StatusInternalServerError, "InternalError", `Internal error occurred: failed calling webhook `+
			`"bad.example.com": failed to call webhook: Post "https://10.203.0.1:9/x?timeout=2s": dial tcp `+
			`10.203.0.1:9: connect: connection refused`)
	case r.Method != http.MethodGet:
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = io.Copy(w, r.Body)
	case node:
		ready, pressure := `"True","reason":"KubeletReady"`, `"False"`
		if state == nodeUnknown {
			ready = `"Unknown","reason":"NodeStatusUnknown","message":"Kubelet stopped posting node status."`
		}
		if state == diskPressure {
			pressure = `"True","message":"kubelet has disk pressure"`
		}
		since := time.Now().Add(-5 * time.Minute).UTC().Format(time.RFC3339)
		fmt.Fprintf(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"node","resourceVersion":"1"},"status":{
			"nodeInfo":{"kubeletVersion":"v1.36.2"},"conditions":[
			{"type":"Ready","status":%s,"lastTransitionTime":%q},
			{"type":"DiskPressure","status":%s,"lastTransitionTime":%[2]q}]}}`, ready, since, pressure)
	case lease:
		renewed := time.Now().Add(-3 * time.Second)
		if state == webhookFails || state == nodeUnknown {
			renewed = renewed.Add(-time.Minute)
		}
		fmt.Fprintf(w, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"node",
			"namespace":"kube-node-lease","resourceVersion":"1"},"spec":{"renewTime":%q}}`,
			renewed.UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
	default:
		fmt.Fprint(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	}
}

// TestEndToEndKubeletBox breaks what is between a kubelet, its API server, its ports and its runtime.
func TestEndToEndKubeletBox(t *testing.T) {
	n := testNode{e2etest.BootNode(t)}
	t.Run("API server", n.testControlPlane)
	n.Sh(t, "sleep 1; journalctl --quiet --rotate --vacuum-time=1s") // forgets the webhook
	t.Run("health port held by another process", n.testHealthPortHeld)
	t.Run("wrong cgroup driver", n.testCgroupDriver)
}

// says checks that kdiag node and kdiag pleg blame the same cause, with these words.
func (n testNode) says(t *testing.T, code, words, step string) {
	t.Helper()
	n.both(t, func(t *testing.T, o e2etest.Outcome) {
		if c := blames(t, o, code, step, ""); !strings.Contains(c.Summary, words) {
			t.Errorf("%s, want %s", c.Summary, words)
		}
	})
}

// well checks that kdiag node and kdiag pleg find nothing critical.
func (n testNode) well(t *testing.T) {
	t.Helper()
	n.both(t, func(t *testing.T, o e2etest.Outcome) {
		if r := own(o.Report(t)); len(r.Causes) != 0 {
			t.Errorf("causes %v of a node that is well\n%s", e2etest.Codes(r), o.Stdout)
		}
	})
}

func (n testNode) testControlPlane(t *testing.T) {
	c := newControlPlane(t)
	n.join(t, c.URL, c.Certificate().Raw, time.Now().Add(time.Hour))
	n.AwaitKubelet(t)
	t.Run("well", func(t *testing.T) {
		n.well(t)
		wantStatus(t, n.kdiag(t, "node"), "kubelet.node", checks.StatusOK, "Ready since")
	})
	t.Run("DiskPressure after the shortage", func(t *testing.T) {
		c.set(diskPressure)
		n.both(t, func(t *testing.T, o e2etest.Outcome) {
			wantStatus(t, o, "kubelet.node", checks.StatusWarning, "DiskPressure since")
			// The machine's own disk may be short of space too.
			if r := o.Report(t); !slices.Contains(e2etest.Codes(r), "DiskFull") || r.Status != checks.Degraded {
				t.Errorf("%s: %+v", r.Status, r.Causes)
			}
		})
	})
	t.Run("node is Unknown", func(t *testing.T) {
		c.set(nodeUnknown)
		n.says(t, "APIServerUnreachable", "has not renewed the node's lease for 1m", "curl")
	})
	c.set("")
	t.Run("API server with another authority", func(t *testing.T) {
		n.Write(t, "etc/kubernetes/pki/ca.crt", clientPair(t, time.Now().Add(time.Hour)))
		defer n.Write(t, "etc/kubernetes/pki/ca.crt", block("CERTIFICATE", c.Certificate().Raw))
		n.says(t, "APIServerUnreachable", "certificate signed by unknown authority", "openssl s_client")
	})
	t.Run("API server's name does not resolve", func(t *testing.T) {
		n.Write(t, "etc/kubernetes/kubelet.conf", fmt.Sprintf(kubeconfig, "https://kdiag.invalid:6443"))
		defer n.Write(t, "etc/kubernetes/kubelet.conf", fmt.Sprintf(kubeconfig, c.URL))
		n.says(t, "APIServerUnreachable", "DNS: kdiag.invalid does not resolve", "getent hosts kdiag.invalid")
	})
	t.Run("kubeconfig gone while the kubelet runs", func(t *testing.T) {
		n.Sh(t, "rm /etc/kubernetes/kubelet.conf")
		defer n.Write(t, "etc/kubernetes/kubelet.conf", fmt.Sprintf(kubeconfig, c.URL))
		n.both(t, func(t *testing.T, o e2etest.Outcome) {
			r := own(o.Report(t))
			if len(r.Causes) != 1 || r.Causes[0].Code != "KubeletDown" || r.Status != checks.Degraded ||
				!strings.Contains(r.Causes[0].Summary, "kubelet.conf is missing: it cannot start again") {
				t.Errorf("%s: %+v", r.Status, r.Causes)
			}
			wantStatus(t, o, "kubelet.apiserver", checks.StatusUnknown, "does not exist")
		})
	})
	t.Run("webhook refuses the lease", func(t *testing.T) {
		c.set(webhookFails)
		time.Sleep(50 * time.Second) // the control plane's patience
		n.says(t, "APIServerUnreachable", "admission webhook bad.example.com fails", "kubectl get validatingwebhook")
	})
	t.Run("node object deleted", func(t *testing.T) {
		c.set(nodeDeleted)
		n.says(t, "APIServerUnreachable", "no Node object for this node", "kubectl get node node")
	})
	t.Run("recovered a moment ago", func(t *testing.T) {
		c.set("")
		n.well(t)
	})
}

// stranger is a program that answers 200 to every request at a port.
const stranger = `use IO::Socket::INET;
my $l = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => $ARGV[0], Listen => 5, ReuseAddr => 1) or die;
while (my $c = $l->accept) { sysread $c, my $b, 4096; print $c "HTTP/1.0 200 OK\r\n\r\nok"; close $c }`

func (n testNode) testHealthPortHeld(t *testing.T) {
	port := e2etest.FreePort(t)
	n.Write(t, "run-stranger.pl", stranger)
	n.Sh(t, fmt.Sprintf("systemd-run --unit stranger perl /run-stranger.pl %d", port))
	n.Await(t, fmt.Sprintf("perl -MIO::Socket::INET -e 'IO::Socket::INET->new(%q) or die'",
		fmt.Sprintf("127.0.0.1:%d", port)))
	defer n.Sh(t, "systemctl stop stranger")
	config := n.Sh(t, "cat /var/lib/kubelet/config.yaml")
	var lines []string
	for line := range strings.Lines(config) {
		if !strings.HasPrefix(line, "healthzPort") {
			lines = append(lines, line)
		}
	}
	n.Write(t, "var/lib/kubelet/config.yaml", strings.Join(lines, "")+fmt.Sprintf("\nhealthzPort: %d\n", port))
	defer n.Write(t, "var/lib/kubelet/config.yaml", config+"\n")
	n.both(t, func(t *testing.T, o e2etest.Outcome) {
		wantStatus(t, o, "kubelet.healthz", checks.StatusWarning, "not the kubelet")
		r := own(o.Report(t))
		if len(r.Causes) != 1 || r.Causes[0].Code != "KubeletDown" ||
			!strings.HasPrefix(r.Causes[0].Summary, "perl (pid ") || r.Causes[0].Subject.Name != "perl" {
			t.Errorf("%s: %+v", r.Status, r.Causes)
		}
	})
}

// testCgroupDriver gives the kubelet another driver than the runtime has, and a pod that cannot start for it.
func (n testNode) testCgroupDriver(t *testing.T) {
	wantStatus(t, n.kdiag(t, "node"), "kubelet.cgroupdriver", checks.StatusOK, "both use systemd")
	config := n.Sh(t, "cat /var/lib/kubelet/config.yaml")
	n.Write(t, "var/lib/kubelet/config.yaml",
		strings.Replace(config, "cgroupDriver: systemd", "cgroupDriver: cgroupfs", 1)+"\n")
	n.both(t, func(t *testing.T, o e2etest.Outcome) {
		blames(t, o, "CgroupDriverMismatch", "grep -i cgroupDriver", "kubelet.service")
	})
	n.Sh(t, "systemctl restart kubelet")
	n.AwaitKubelet(t) // the one before would still start the pod
	n.Write(t, "etc/kubernetes/manifests/lone.yaml", fmt.Sprintf(lonePod, nodebox.ImageBusybox))
	n.Await(t, "journalctl -u containerd | grep 'expected cgroupsPath'")
	n.Write(t, "var/lib/kubelet/config.yaml", config+"\n") // which a kubelet that runs does not read
	n.both(t, func(t *testing.T, o e2etest.Outcome) {
		c := blames(t, o, "CgroupDriverMismatch", "grep -i cgroupDriver", "kubelet.service")
		if !strings.Contains(c.Summary, "no new pod starts") || c.Confidence < 0.9 {
			t.Errorf("%.2f: %s", c.Confidence, c.Summary)
		}
	})
}

const lonePod = `apiVersion: v1
kind: Pod
metadata: {name: lone, namespace: default}
spec:
  hostNetwork: true
  containers: [{name: c, image: %q, command: [sleep, "1000"]}]
`

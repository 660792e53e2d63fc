package checks

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// TestJournalWords reads single lines of evidence: each is there when the log holds its record.
func TestJournalWords(t *testing.T) {
	down := socket(crictl.ConnectRefused, "refused")
	slow := takes(3*time.Second, everyRPC()...)
	stalls := func(e *journal.Episode) { e.Stalls = make([]journal.Stall, 4) }
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		log    []entry
		code   string
		say    string // in the evidence for
	}{
		{"stopped by its own log", []tweak{down}, []entry{signs(signature.RuntimeStopped, 1, time.Minute, time.Minute, "Stop CRI service")}, codeRuntimeDown, "the runtime stopped at 03:08:24: Stop CRI service"},
		{"restarted by systemd", []tweak{down}, []entry{signs(signature.UnitRestarted, 7, 9*time.Minute, time.Minute, "x", "containerd.service")}, codeRuntimeDown, "containerd.service was restarted by systemd at 03:08:24, 7 times in all"},
		{"not ready, says the kubelet", []tweak{condition(0, false)}, []entry{signs(signature.RuntimeNotReadyReported, 30, 3*time.Minute, 4*time.Second, "x")}, codeRuntimeNotReady, "\"container runtime not ready\" from it since 03:06:24"},
		{"slow, with stalls", []tweak{slow}, []entry{incident(6*time.Minute, 4*time.Second, stalls)}, codeRuntimeSlow, "the last good one began anew 3 times"},
		{"slow, and names are taken", []tweak{slow}, []entry{signs(signature.NameReserved, 3, 6*time.Minute, time.Minute, "x")}, codeRuntimeSlow, "still at work on a creation that the kubelet had given up and tried again, last at 03:08:24, 3 times in all"},
		{"CNI fails", []tweak{hangs(rpcStatus)}, []entry{signs(signature.CNIFailed, 3, 6*time.Minute, time.Minute, "failed to destroy network for sandbox")}, codeCNIHung, "failed to destroy network"},
		{"too large, without sizes", []tweak{exited(800, 1, 30000)}, []entry{signs(signature.MessageTooLarge, 1, time.Minute, time.Minute, "trying to send message larger than max")}, codeListTooLarge, "the log holds the refusal as well, by the sender's limit"},
		{"object, by an episode alone", []tweak{statusHangs("container1-0")}, []entry{incident(2*time.Minute, 4*time.Second, names(journal.Culprit{Kind: kindContainer, ID: "container1-0", Records: 2, Example: signature.InspectFailed}))}, codeInspectHang, "names it too: its status calls for web/checkout-1 (app0) fail, 2 times in all"},
		{"PLEG before, and now", nil, []entry{incident(12*time.Minute, 11*time.Minute, recovered(10*time.Minute)), incident(2*time.Minute, 4*time.Second)}, codePLEGUnhealthy, "before, it was so once in the last 15m"},
		{"PLEG, with the log's own guess", nil, []entry{incident(2*time.Minute, 4*time.Second, func(e *journal.Episode) {
			e.Causes = []journal.Cause{{Code: "NoSuchCause"}, {Code: codeInspectHang, Confidence: 0.6, Summary: "one container"}}
		})}, codePLEGUnhealthy, "by the log alone it looks like InspectHang (0.60): one container"},
		{"PLEG, with a worst age", nil, []entry{incident(9*time.Minute, 8*time.Minute, recovered(7*time.Minute), func(e *journal.Episode) { e.MaxLastSeenSeconds = 241 })}, codePLEGUnhealthy, "a little over 2 x 2m, the deadline of one call: 2 calls hung"},
		{"PLEG, of a pod", nil, []entry{incident(2*time.Minute, 4*time.Second, names(journal.Culprit{Kind: "Pod", Namespace: "web", Pod: "checkout-1", Records: 1}))}, codePLEGUnhealthy, "name sandbox of web/checkout-1"},
		{"PLEG, without an anchor", nil, []entry{incident(2*time.Minute, 4*time.Second, func(e *journal.Episode) { e.Anchor = nil })}, codePLEGUnhealthy, "since 03:07:24, at most 4m56s since its last good relist"},
		{"crash loop of a killed kubelet", nil, []entry{restarted(3, time.Minute, time.Second), signs(signature.OOMKill, 1, time.Minute, time.Minute, memcgKill, "kubelet")}, codeKubeletCrashLooping, "the kernel's OOM killer names the kubelet"},
		{"refused", nil, []entry{signs(signature.APIServerFailed, 36, 6*time.Minute, time.Second, leaseTimeout), signs(signature.Unauthorized, 2, time.Minute, time.Second, "Unauthorized")}, codeAPIServerUnreachable, "it is reached, and refuses"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			causes := Judge(node(append(slices.Clone(tt.tweaks), said(tt.log...))...))
			i := index(causes, tt.code)
			if i < 0 {
				t.Fatalf("%v", codes(causes))
			}
			checkCause(t, tt.name, causes[i])
			if !mentions(causes[i].Evidence.For, tt.say) {
				t.Errorf("%q does not say %q", causes[i].Evidence.For, tt.say)
			}
			alone := Judge(node(tt.tweaks...))
			if i := index(alone, tt.code); i >= 0 && mentions(alone[i].Evidence.For, tt.say) {
				t.Error("it is said without the log")
			}
		})
	}
}

// TestKubeletUnits wants commands to name the unit that holds the kubelet.
func TestKubeletUnits(t *testing.T) {
	for endpoint, want := range map[string]string{
		"unix:///run/containerd/containerd.sock":               "journalctl --no-pager -u kubelet --since -15min",
		"unix:///run/k3s/containerd/containerd.sock":           "journalctl --no-pager -u 'k3s*' -u 'rke2-*' --since -15min",
		"unix:///run/k0s/containerd.sock":                      "journalctl --no-pager -u 'k0s*' --since -15min",
		"unix:///var/snap/microk8s/common/run/containerd.sock": "journalctl --no-pager -u snap.microk8s.daemon-kubelite --since -15min",
	} {
		f := node(func(f *Facts) { f.Runtime.Endpoint, f.Kubelet = endpoint, nil })
		if diff := cmp.Diff(want, f.kubeletLog()); diff != "" {
			t.Error(diff)
		}
		if s := f.kubeletSubject(); strings.ContainsAny(s.Name, "'* ") {
			t.Errorf("%s: subject %q", endpoint, s.Name)
		}
	}
}

// TestAPIServerSteps wants commands with what the log names only where it is safe, and of the right kind.
func TestAPIServerSteps(t *testing.T) {
	for record, want := range map[string][]string{
		leaseTimeout: {"curl -sk --max-time 5 -w '%{http_code}\\n' https://10.0.0.1:6443/healthz: nothing", "ip route get 10.0.0.1: nothing"},
		`Get "https://api.example.org:443/x": no such host`:  {"curl -sk --max-time 5 -w '%{http_code}\\n' https://api.example.org:443/healthz: nothing", "getent hosts api.example.org: nothing"},
		`Get "https://[fd00::1]:6443/x": no route to host`:   {"curl -sk --max-time 5 -w '%{http_code}\\n' https://[fd00::1]:6443/healthz: nothing"},
		`Get "https://$(reboot):6443/x": connection refused`: nil,
		`Get "https://-oProxy:6443/x": connection refused`:   nil,
		`"Failed to update lease" err="connection refused"`:  nil,
	} {
		c := only(t, node(said(signs(signature.APIServerFailed, 36, 6*time.Minute, time.Second, record))), codeAPIServerUnreachable)
		var got []string
		for _, word := range []string{"curl", "ip route", "getent"} {
			got = append(got, commands(c.NextSteps, word)...)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", record, diff)
		}
	}
}

// TestAPIServerWhy holds the words for each way in which a call fails.
func TestAPIServerWhy(t *testing.T) {
	for record, want := range map[string]string{
		"x509: certificate has expired or is not yet valid": "a certificate has expired",
		"x509: certificate signed by unknown authority":     "certificates do not match",
		"Unauthorized":                          "it does not accept the kubelet's credentials",
		"nodes is forbidden":                    "the kubelet may not do it",
		"dial tcp: lookup api: no such host":    "its name does not resolve",
		"connect: connection refused":           "connection refused",
		"net/http: TLS handshake timeout":       "the TLS handshake does not end",
		"(Client.Timeout exceeded while ...)":   "no answer in time",
		"context deadline exceeded":             "no answer in time",
		"unexpected EOF":                        "the connection breaks off",
		"something that nobody has seen before": "",
	} {
		if got := apiWhy(record); got != want {
			t.Errorf("%q: %q, want %q", record, got, want)
		}
	}
}

// TestWindowInWords wants times to be told against what was read, which may be more or less than was asked for.
func TestWindowInWords(t *testing.T) {
	begins := func(before time.Duration) entry {
		return func(r *journal.Report) { r.From = ago(before) }
	}
	for _, tt := range []struct {
		name string
		log  entry
		want string
	}{
		{"as asked for", func(*journal.Report) {}, "systemd restarted kubelet.service 3 times in the last 15m"},
		{"more", begins(19*time.Minute + 40*time.Second), "systemd restarted kubelet.service 3 times in the last 20m"},
		{"less", begins(4 * time.Minute), "systemd restarted kubelet.service 3 times in the last 4m"},
		{"next to nothing", begins(time.Second), "systemd restarted kubelet.service 3 times in the last 1m"},
		{"a clock that runs ahead", begins(-time.Hour), "systemd restarted kubelet.service 3 times in the last 15m"},
	} {
		c := only(t, node(said(restarted(3, time.Minute, time.Second), tt.log)), codeKubeletCrashLooping)
		if !mentions(c.Evidence.For, tt.want) {
			t.Errorf("%s: %q", tt.name, c.Evidence.For)
		}
	}
	relists := signs(signature.RelistFailed, 240, 4*time.Minute-10*time.Second, time.Second, refusedRelist)
	c := only(t, node(socket(crictl.ConnectRefused, "refused"), said(relists, begins(4*time.Minute))), codeRuntimeDown)
	if !mentions(c.Evidence.For, "relists fail for all of the last 4m") {
		t.Errorf("what the log begins with has no beginning: %q", c.Evidence.For)
	}
}

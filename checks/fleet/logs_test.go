package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/internal/testkit"
)

// logged returns records of a kubelet as journalctl prints them, a minute apart up to noon.
func logged(messages ...string) string {
	var text strings.Builder
	for i, m := range messages {
		at := noon.Add(-time.Duration(len(messages)-i) * time.Minute)
		_, _ = fmt.Fprintf(&text, "%s n kubelet[812]: I%s     812 kubelet.go:2469] %s\n", at.Format("Jan 02 15:04:05.000000"),
			at.Format("0102 15:04:05.000000"), m)
	}
	return text.String()
}

// unhealthy is a record of a kubelet whose last relist was so long ago.
func unhealthy(age string) string {
	return `"Skipping pod synchronization" err="PLEG is not healthy: pleg was last seen active ` + age +
		` ago; threshold is 3m0s"`
}

const (
	well     = `"SyncLoop ADD" source="api" pods=["shop/web-0"]`
	folder   = "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n<a href=\"a\">a</a>\n"
	fromFile = "\noptions present and query resolved to log files for [%s]\ntry without specifying options\n"
)

// answers sends a text with a code.
func answers(code int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
	}
}

// TestReadLogs has the outcome of each answer to a log query, and what the node then is in the report.
func TestReadLogs(t *testing.T) {
	open := logged(well, unhealthy("3m2s"), unhealthy("4m2s"), unhealthy("5m2s"))
	healthy := checks.FleetLog{Status: checks.Healthy, Verdict: checks.LogClear}
	for _, tt := range []struct {
		name    string
		ready   v1.ConditionStatus // default: True
		info    v1.NodeSystemInfo
		logs    http.HandlerFunc
		want    checks.FleetLog // without times and sizes
		problem string          // the one of a log that is not judged
		cause   string          // of a node that is not ready; default: the log's, if that goes on
		units   []string        // default: kubelet
	}{
		{
			name: "an incident that goes on", logs: answers(200, open),
			want: checks.FleetLog{
				Status: checks.Unhealthy, Verdict: checks.LogUnhealthy, Cause: "PLEGUnhealthy", Ongoing: true,
			},
			info: v1.NodeSystemInfo{ContainerRuntimeVersion: "containerd://2.1.4"}, units: []string{"kubelet", "containerd"},
		},
		{
			name: "nothing found", logs: answers(200, logged(well, well)), want: healthy,
			info:  v1.NodeSystemInfo{KubeletVersion: "v1.34.1+k3s1", ContainerRuntimeVersion: "containerd://2.1.4-k3s1"},
			units: []string{"k3s", "k3s-agent"},
		},
		{
			name: "an incident that has ended",
			logs: answers(200, logged(unhealthy("3m2s"), `"Node became ready" node="n"`, well)),
			want: checks.FleetLog{Status: checks.Degraded, Verdict: checks.LogRecovered, Cause: "PLEGUnhealthy"},
		},
		{
			name: "a zone behind UTC", want: healthy,
			logs: func(w http.ResponseWriter, req *http.Request) {
				text := "-- No entries --\n"
				if since, _ := time.Parse(time.RFC3339, req.URL.Query().Get("sinceTime")); noon.Sub(since) > 12*time.Hour {
					text = logged(well)
				}
				answers(200, text)(w, req)
			},
		},
		{name: "the handler is off", logs: answers(405, "is disabled.\n"), problem: errQueryOff.Error()},
		{name: "queries are off", logs: answers(200, folder), problem: errQueryOff.Error()},
		{name: "no journal", logs: answers(200, fmt.Sprintf(fromFile, "kubelet")), problem: errNoUnit.Error()},
		{
			name: "forbidden", logs: refuses(apierrors.NewForbidden(v1.Resource("nodes"), "", errors.New("no"))),
			problem: errNoProxy.Error(),
		},
		{
			name: "no kubelet", ready: v1.ConditionFalse, cause: "NotReady",
			logs: refuses(apierrors.NewServiceUnavailable(
				"error trying to reach service: dial tcp 192.0.2.2:10250: connect: connection refused")),
			problem: "the API server does not reach the kubelet: connection refused",
		},
		{name: "forbidden by the kubelet", logs: answers(403, "no\n"), problem: "the kubelet answers: no"},
		{
			name: "no answer", ready: v1.ConditionUnknown, cause: "NodeStatusUnknown", logs: hold,
			problem: errNoReply.Error(),
		},
		{
			name: "no end", problem: errNoReply.Error(), logs: func(w http.ResponseWriter, req *http.Request) {
				answers(200, open)(w, req)
				hold(w, req)
			},
		},
		{
			name: "cut by the kubelet", problem: errSlow.Error(), logs: func(w http.ResponseWriter, req *http.Request) {
				answers(200, open)(w, req)
				time.Sleep(30 * time.Second)
			},
		},
		{
			name:    "too much",
			logs:    answers(200, strings.Repeat(logged(strings.Repeat(well, 1000)), maxLog/len(well)/1000+1)),
			problem: "it was cut: it has more than 32 MiB in an hour",
		},
	} {
		testkit.Bubble(t, tt.name, func(t *testing.T) {
			n := kubeNode("n", cmp.Or(tt.ready, v1.ConditionTrue))
			n.Status.NodeInfo = tt.info
			var asked url.Values
			api := small(n)
			api.proxy = func(w http.ResponseWriter, req *http.Request) {
				asked = req.URL.Query()
				tt.logs(w, req)
			}
			c := connect(t, api)
			s, err := c.Read(t.Context(), Options{})
			must(t, err)
			s.At = noon
			c.ReadLogs(t.Context(), s, func(int) {})
			synctest.Wait() // a handler whose reader has gone may still run
			if tt.problem != "" {
				tt.want = checks.FleetLog{Status: checks.Unknown, Problem: tt.problem}
			}
			status := tt.want.Status
			if tt.want.Ongoing {
				tt.cause = tt.want.Cause
			}
			if tt.cause != "" {
				status = checks.Unhealthy
			}
			r := Report(s)
			got := *r.Nodes[0].Log
			got.From, got.To, got.Lines, got.Bytes, got.Summary = nil, nil, 0, 0, ""
			if diff := gocmp.Diff(tt.want, got); diff != "" || r.Nodes[0].Cause != tt.cause || r.Status != status {
				t.Errorf("cause %q, status %s (-want +got):\n%s", r.Nodes[0].Cause, r.Status, diff)
			}
			if (tt.problem == "") != (len(s.Problems) == 0) {
				t.Errorf("problems %q", s.Problems)
			}
			if tt.units == nil {
				tt.units = []string{"kubelet"}
			}
			if diff := gocmp.Diff(tt.units, asked["query"]); diff != "" || asked.Get("tailLines") != "20000" {
				t.Errorf("asked for %v (-want +got):\n%s", asked, diff)
			}
		})
	}
}

// TestReadLogsInOrder has more silent nodes than there is time for: the others are read before them, a few at a time.
func TestReadLogsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes v1.NodeList
		for i := range 40 {
			nodes.Items = append(nodes.Items, kubeNode(fmt.Sprintf("n%02d", i), v1.ConditionUnknown))
		}
		nodes.Items = append(nodes.Items, kubeNode("ready", v1.ConditionTrue), kubeNode("sick", v1.ConditionFalse))
		api := large()
		api.lists = map[string]runtime.Object{nodesPath: &nodes}
		api.proxy = func(w http.ResponseWriter, req *http.Request) {
			if strings.Contains(req.URL.Path, "/n") && !strings.Contains(req.URL.Path, "/ready/") &&
				!strings.Contains(req.URL.Path, "/sick/") {
				<-req.Context().Done()
			}
			answers(200, logged(well))(w, req)
		}
		c := connect(t, api)
		s, err := c.Read(t.Context(), Options{})
		must(t, err)
		ctx := testkit.Within(t, 2*silentByte+time.Second)
		last := 0
		c.ReadLogs(ctx, s, func(done int) { last = done })
		want := []string{
			"log of 32 nodes not read (n08, n09, n10 and 29 more): " + errNoTime.Error(),
			"log of 8 nodes not read (n00, n01, n02 and 5 more): " + errNoReply.Error(),
		}
		if diff := gocmp.Diff(want, s.Problems[:2]); diff != "" || last != 42 || *Report(s).Counts.Logs != 2 ||
			s.Cost.Requests < 14 {
			t.Errorf("%d done, counts %+v\n%s", last, Report(s).Counts, diff)
		}
	})
}

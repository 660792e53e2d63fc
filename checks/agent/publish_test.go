package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver"
)

const (
	nodeName = "node-7"
	fine     = "no critical cause found"
	hangs    = "True RuntimeHung 00:01:55 RuntimeHung: no RPC is answered; RestartRuntime"
)

// A server is an API server over HTTP: client-go's clientset in memory, which knows server-side apply and who owns
// which field. What it checks besides, a real one does as well (TestEndToEndPublish).
type server struct {
	*fake.Clientset
	mu sync.Mutex
	// fault answers a request instead, if it wants to.
	fault func(w http.ResponseWriter, r *http.Request) (answered bool)
	asked map[string][]time.Duration // since start, by resource
	start time.Time
}

// newNode returns a node with three conditions, of which kdiag's belong to whoever creates it.
func newNode() *v1.Node {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	node.Status.Conditions = []v1.NodeCondition{
		{Type: v1.NodeReady, Status: v1.ConditionTrue},
		{Type: problemType, Status: v1.ConditionUnknown},
		{Type: repairType, Status: v1.ConditionUnknown},
	}
	return node
}

func newServer() *server {
	s := &server{Clientset: fake.NewClientset(), asked: map[string][]time.Duration{}, start: time.Now()}
	// For each object that the clientset's own tracker takes, it works out the fields of all types.
	events := clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	s.PrependReactor("*", "events", clienttesting.ObjectReaction(events))
	_, err := s.CoreV1().Nodes().Create(context.Background(), newNode(), metav1.CreateOptions{FieldManager: "kubelet"})
	if err != nil {
		panic(err)
	}
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := "nodes"
	if r.Method == http.MethodPost {
		resource = "events"
	}
	s.mu.Lock()
	s.asked[resource] = append(s.asked[resource], time.Since(s.start))
	s.mu.Unlock()
	if s.fault != nil && s.fault(w, r) {
		return
	}
	s.take(w, r)
}

func (s *server) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	var answer runtime.Object
	switch at := r.Method + " " + r.URL.Path; at {
	case "PATCH /api/v1/nodes/" + nodeName + "/status":
		opts := metav1.PatchOptions{FieldManager: r.FormValue("fieldManager")}
		if r.FormValue("force") == "true" {
			opts.Force = new(true)
		}
		nodes := s.CoreV1().Nodes()
		if answer, err = nodes.Get(r.Context(), nodeName, metav1.GetOptions{}); err == nil { // apply would create it
			kind := types.PatchType(r.Header.Get("Content-Type"))
			answer, err = nodes.Patch(r.Context(), nodeName, kind, body, opts, "status")
		}
	case "POST /api/v1/namespaces/default/events":
		e := &v1.Event{}
		if err = json.Unmarshal(body, e); err == nil && (e.InvolvedObject.Namespace != "" || e.Reason == "Invalid") {
			err = apierrors.NewInvalid(e.GroupVersionKind().GroupKind(), e.Name, nil)
		}
		if err == nil {
			answer, err = s.CoreV1().Events("default").Create(r.Context(), e, metav1.CreateOptions{})
		}
	default:
		err = apierrors.NewForbidden(v1.Resource("any"), at, nil)
	}
	code := http.StatusOK
	if err != nil {
		status := err.(apierrors.APIStatus).Status()
		status.Kind, status.APIVersion = "Status", "v1"
		code, answer = int(status.Code), &status
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

// conditions returns those of kdiag. The other one must be as it was.
func conditions(t *testing.T, api kubernetes.Interface) []v1.NodeCondition {
	t.Helper()
	node, err := api.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	must(t, err)
	c := node.Status.Conditions
	if len(c) != 3 || c[0].Type != v1.NodeReady || c[0].Status != v1.ConditionTrue || c[1].Type != problemType {
		t.Fatalf("conditions: %+v", c)
	}
	return c[1:]
}

// events returns the events as lines, in the order in which they happened.
func events(t *testing.T, api kubernetes.Interface) []string {
	t.Helper()
	list, err := api.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.name=" + nodeName,
	})
	must(t, err)
	var lines []string
	for _, e := range list.Items {
		lines = append(lines, strings.Join([]string{clock(e.LastTimestamp), e.Type, e.Reason, e.Message}, " "))
	}
	slices.Sort(lines)
	return lines
}

func clock(at metav1.Time) string { return at.UTC().Format(time.TimeOnly) }

// line writes KdiagProblem, and of KdiagRepair what differs.
func line(c []v1.NodeCondition) string {
	problem, repair := c[0], c[1]
	line := strings.Join([]string{
		string(problem.Status), problem.Reason, clock(problem.LastTransitionTime), problem.Message,
	}, " ")
	if repair.Status == v1.ConditionTrue {
		line += "; " + repair.Reason
	}
	if repair.LastTransitionTime != problem.LastTransitionTime {
		line += " " + clock(repair.LastTransitionTime)
	}
	return line
}

// at is a time of day. The fake clock of synctest starts on that day too.
func at(clock string) time.Time {
	t, err := time.Parse(time.DateTime, "2000-01-01 "+clock)
	if err != nil {
		panic(err)
	}
	return t
}

func report(clock string, status checks.Verdict, causes ...checks.Cause) *checks.Report {
	return &checks.Report{Header: checks.Header{Status: status, GeneratedAt: at(clock)}, Causes: causes}
}

var (
	hung = checks.Cause{
		Code: "RuntimeHung", Severity: checks.Critical, Summary: "no RPC is answered", Action: checks.ActionRestartRuntime,
	}
	disk = checks.Cause{
		Code: "DiskFull", Severity: checks.Warning, Summary: "/var is at 86%", Action: checks.ActionFixNode,
	}
)

// change is a transition of a cause.
func change(clock string, c checks.Cause, from, to string) checks.Transition {
	return checks.Transition{At: at(clock), Cause: c.Code, Severity: c.Severity, Summary: c.Summary, From: from, To: to}
}

var (
	onset = change("00:01:55", hung, checks.CauseClear, checks.CauseOnset)
	sure  = change("00:02:30", hung, checks.CauseOnset, checks.CauseConfirmed)
	gone  = change("00:05:00", hung, checks.CauseConfirmed, checks.CauseClear)
)

// TestCondition follows a node through reports: status, reason, time of the transition, message.
func TestCondition(t *testing.T) {
	type step struct {
		report  *checks.Report
		changed []checks.Transition
		want    string
	}
	unseen, long, worse := report("00:04:00", checks.Unknown), hung, hung
	unseen.Problems = []string{"no runtime found"}
	worse.Action = checks.ActionRebootNode
	long.Code, long.Summary = "CC", strings.Repeat("é", 600)
	full := report("00:01:00", checks.Unhealthy, disk, hung)
	for name, steps := range map[string][]step{
		"an incident": {
			{report("00:01:30", checks.Healthy), nil, "False NoProblemFound 00:01:30 " + fine},
			{report("00:02:00", checks.Unhealthy, hung), []checks.Transition{onset}, hangs},
			{report("00:02:30", checks.Unhealthy, hung), []checks.Transition{sure}, hangs},
			{report("00:05:00", checks.Healthy), nil, hangs},
			{report("00:05:30", checks.Healthy), []checks.Transition{gone}, "False NoProblemFound 00:05:00 " + fine},
		},
		"its action becomes no lesser one": {
			{report("00:02:00", checks.Unhealthy, hung), []checks.Transition{onset}, hangs},
			{report("00:03:00", checks.Unhealthy, worse), nil, strings.Replace(hangs, "RestartRuntime", "RebootNode", 1)},
			{report("00:04:00", checks.Unhealthy, hung), nil, strings.Replace(hangs, "RestartRuntime", "RebootNode", 1)},
		},
		"the root is a warning": {{full, nil, "True DiskFull 00:01:00 DiskFull: /var is at 86%; FixNode"}},
		"it could not look":     {{unseen, nil, "Unknown CouldNotTell 00:04:00 no runtime found"}},
		"cut between characters": {{
			report("00:01:00", checks.Unhealthy, long), nil,
			"True CC 00:01:00 CC: " + strings.Repeat("é", 508) + "...; RestartRuntime",
		}},
	} {
		p, err := NewPublisher(PublishOptions{Kubeconfig: kubeconfig(t, "http://127.0.0.1:1"), NodeName: nodeName})
		must(t, err)
		for _, s := range steps {
			p.Publish(s.report, s.changed)
			equal(t, name, s.want, line(p.want))
		}
	}
}

// kubeconfig writes a kubeconfig for a server. The token is in a file beside it.
func kubeconfig(t *testing.T, url string) string {
	dir := testkit.NewTree(t)
	dir.Write("token", "first", "kubeconfig",
		`{clusters: [{name: a, cluster: {server: "`+url+`"}}], users: [{name: a, user: {tokenFile: token}}],
		contexts: [{name: a, context: {cluster: a, user: a}}], current-context: a}`)
	return dir.Path("kubeconfig")
}

// run starts a publisher that talks to s within a bubble. It ends with the test.
func run(t *testing.T, s *server) (p *Publisher, logged *strings.Builder, token string) {
	logged = &strings.Builder{}
	lines := log.New(logged, "", 0)
	config := kubeconfig(t, "http://api.test")
	p, err := NewPublisher(PublishOptions{config, nodeName, func(line string) { lines.Print(line) }})
	must(t, err)
	cfg, err := clientcmd.BuildConfigFromFlags("", config)
	must(t, err)
	cfg.Dial = faketest.ServeHTTP(t, s)
	p.client, err = apiserver.New(cfg, apiserver.Limits{})
	must(t, err)
	var ended sync.WaitGroup
	ended.Go(func() { p.Run(t.Context()) })
	t.Cleanup(ended.Wait)
	return p, logged, filepath.Join(filepath.Dir(config), "token")
}

// TestFaults publishes an incident to an API server with a fault: all of it arrives, once, with the times at which it
// happened, and the server is not asked sooner than it wants.
func TestFaults(t *testing.T) {
	type fault func(s *server, w http.ResponseWriter, r *http.Request)
	answer := func(code int, header ...string) fault {
		return func(_ *server, w http.ResponseWriter, _ *http.Request) {
			w.Header()["Retry-After"] = header
			http.Error(w, "no", code)
		}
	}
	const s, m = time.Second, time.Minute
	for name, tt := range map[string]struct {
		fault  fault
		lasts  time.Duration
		pauses []time.Duration // at least, between requests for the same resource; each may be half as long again
	}{
		"429": {answer(429, "60"), 50 * s, []time.Duration{60 * s}},
		"forbidden": {answer(403), 20 * m, []time.Duration{
			s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 5 * m, 5 * m,
		}},
		"stalls": {func(_ *server, _ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // else the end of the connection is not seen
			<-r.Context().Done()
		}, s, []time.Duration{11 * s}},
		"down for two hours": {func(*server, http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}, 2 * time.Hour, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 2 * m, 2 * m}},
		"token expired": {func(s *server, w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "Bearer second" {
				s.take(w, r)
				return
			}
			http.Error(w, "no", http.StatusUnauthorized)
		}, 30 * m, []time.Duration{s, 2 * s, 4 * s}},
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			api := newServer()
			api.fault = func(w http.ResponseWriter, r *http.Request) bool {
				if time.Since(api.start) >= tt.lasts {
					return false
				}
				tt.fault(api, w, r)
				return true
			}
			p, logged, token := run(t, api)
			p.Publish(report("00:02:00", checks.Unhealthy, hung), []checks.Transition{onset})
			p.Publish(report("00:02:30", checks.Unhealthy, hung), []checks.Transition{sure})
			time.Sleep(90 * s)
			must(t, os.WriteFile(token, []byte("second"), 0o600))
			p.Publish(report("00:05:30", checks.Healthy), []checks.Transition{gone})
			time.Sleep(3 * time.Hour)
			synctest.Wait()
			if diff := cmp.Diff([]string{
				"False NoProblemFound 00:05:00 " + fine,
				"00:01:55 Warning RuntimeHung onset: no RPC is answered; action: RestartRuntime",
				"00:02:30 Warning RuntimeHung confirmed: no RPC is answered; action: RestartRuntime",
				"00:05:00 Normal RuntimeHung gone: no RPC is answered",
			}, append([]string{line(conditions(t, api))}, events(t, api)...)); diff != "" {
				t.Error(diff)
			}
			for resource, at := range api.asked {
				for i, least := range tt.pauses {
					if got := at[i+1] - at[i]; got < least || got > least*3/2+s {
						t.Errorf("%s: asked again after %v, want %v", resource, got, least)
					}
				}
			}
			lines := 4 + 2*int(tt.lasts/(31*m)) // of each loop: fails, fails half an hour later, works
			if got := logged.String(); strings.Count(got, "\n") != lines {
				t.Errorf("logged:\n%s", got)
			}
		})
	}
}

// TestPublish follows an incident over three agents, of which none knows what was published before.
func TestPublish(t *testing.T) {
	api := newServer()
	at := httptest.NewServer(api)
	t.Cleanup(at.Close)
	testPublish(t, api, kubeconfig(t, at.URL))
}

func testPublish(t *testing.T, api kubernetes.Interface, kubeconfig string) {
	for i, agent := range []struct {
		report    *checks.Report
		changed   []checks.Transition
		condition string
	}{
		{report("00:02:00", checks.Unhealthy, hung), []checks.Transition{onset}, hangs},
		{report("00:12:00", checks.Unhealthy, hung), []checks.Transition{sure}, hangs},
		{report("00:15:30", checks.Healthy), []checks.Transition{sure, gone}, "False NoProblemFound 00:05:00 " + fine},
	} {
		p, err := NewPublisher(PublishOptions{kubeconfig, nodeName, func(line string) { t.Error(line) }})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { p.Run(ctx); close(ended) }()
		p.Publish(agent.report, agent.changed)
		testkit.Eventually(t, agent.condition, func() bool {
			got, events := conditions(t, api), events(t, api)
			patched := got[0].LastHeartbeatTime.Equal(new(metav1.NewTime(agent.report.GeneratedAt)))
			return patched && line(got) == agent.condition && len(events) == i+1
		})
		cancel()
		<-ended
	}
}

// TestBound publishes more events than are kept while the server is away.
func TestBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		api.fault = func(w http.ResponseWriter, _ *http.Request) bool {
			if time.Since(api.start) > time.Hour {
				return false
			}
			http.Error(w, "no", http.StatusBadGateway)
			return true
		}
		p, logged, _ := run(t, api)
		for i := range maxEvents + 3 {
			c := change("00:01:00", checks.Cause{Code: "C", Summary: fmt.Sprint(i)}, "clear", "onset")
			c.Subject = c.Summary
			p.Publish(report("00:01:00", checks.Healthy), []checks.Transition{c})
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		got := events(t, api)
		if len(got) != maxEvents || slices.Contains(got, "00:01:00 Warning C onset: 2") ||
			!strings.Contains(logged.String(), "3 events dropped: the API") {
			t.Errorf("%d events: %s ...; logged: %s", len(got), got[0], logged)
		}
	})
}

// TestHeartbeats looks at a node for two hours: how often does the API server have to write?
func TestHeartbeats(t *testing.T) {
	for most, summary := range map[int]func(look int) string{
		25:  func(int) string { return "nothing changes" },
		121: func(look int) string { return fmt.Sprint("each look is another: ", look) },
	} {
		synctest.Test(t, func(t *testing.T) {
			api := newServer()
			p, _, _ := run(t, api)
			for look := range 240 {
				c := checks.Cause{Code: "C", Severity: checks.Critical, Summary: summary(look)}
				r := report("00:00:00", checks.Unhealthy, c)
				r.GeneratedAt = time.Now()
				p.Publish(r, nil)
				time.Sleep(30 * time.Second)
			}
			synctest.Wait()                    // the server may be answering just now
			got := len(api.asked["nodes"]) - 1 // the first asks what is there
			late := time.Since(conditions(t, api)[0].LastHeartbeatTime.Time)
			if got < most*4/5 || got > most || late > 7*time.Minute {
				t.Errorf("%d writes, want at most %d; last heartbeat %v ago", got, most, late)
			}
		})
	}
}

// TestWatchLeaving follows a node through watches: one that is forbidden, one that ends, and one of a server that is
// away. Each reason is told once while it lasts.
func TestWatchLeaving(t *testing.T) {
	node := func(ready v1.ConditionStatus, taints ...string) *v1.Node {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
		n.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: ready}}
		for _, key := range taints {
			n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Effect: v1.TaintEffectNoSchedule})
		}
		return n
	}
	type event struct {
		Type   string   `json:"type"`
		Object *v1.Node `json:"object"`
	}
	const cordoned, karpenter = "node.kubernetes.io/unschedulable", "karpenter.sh/disrupted"
	watches := [][]event{
		nil, // forbidden
		{
			{"ADDED", node(v1.ConditionTrue, cordoned)},
			{"MODIFIED", node(v1.ConditionFalse, cordoned, karpenter)},
			{"MODIFIED", node(v1.ConditionUnknown, karpenter)},
		},
		nil, // away
		{
			{"ADDED", node(v1.ConditionTrue)},
			{"MODIFIED", node(v1.ConditionTrue, v1.TaintNodeOutOfService)},
			{"DELETED", node(v1.ConditionTrue)},
		},
	}
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		asked := 0
		api.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet {
				return false
			}
			if asked++; r.URL.Path != "/api/v1/nodes" || r.FormValue("fieldSelector") != "metadata.name="+nodeName ||
				asked > 1 && time.Since(api.start) < 5*time.Minute {
				t.Errorf("%v after %v", r.URL, time.Since(api.start))
			}
			switch n := asked; {
			case n == 1:
				w.WriteHeader(http.StatusForbidden)
			case n == 3:
				panic(http.ErrAbortHandler)
			case n <= len(watches):
				w.Header().Set("Content-Type", "application/json")
				for _, e := range watches[n-1] {
					_ = json.NewEncoder(w).Encode(e)
				}
			default:
				<-r.Context().Done()
			}
			return true
		}
		p, _, _ := run(t, api)
		var got []string
		go p.WatchLeaving(t.Context(), func(why string, ready bool) { got = append(got, fmt.Sprint(why, " ", ready)) })
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if diff := cmp.Diff([]string{
			"the node has the taint karpenter.sh/disrupted false",
			"the node has the taint node.kubernetes.io/out-of-service true",
			"the node object is deleted true",
		}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

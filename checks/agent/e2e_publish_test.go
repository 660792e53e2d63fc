package agent

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kdiag/kdiag/checks"
)

// An incident over three agents that follow one another. The API server is one in memory and, when KUBECONFIG_E2E names
// an administrator's kubeconfig, also a real one, with deploy/kubernetes applied: the agents have the rights of its
// service account, and kubectl describe finds what they publish. Objects of the names in there are removed.
func TestEndToEndPublish(t *testing.T) {
	t.Run("in memory", func(t *testing.T) {
		api := newServer()
		at := httptest.NewServer(api)
		t.Cleanup(at.Close)
		testPublish(t, api, kubeconfig(t, at.URL))
	})
	if admin := os.Getenv("KUBECONFIG_E2E"); admin != "" {
		t.Run("real", func(t *testing.T) { testRealServer(t, admin) })
	}
}

func testPublish(t *testing.T, api kubernetes.Interface, kubeconfig string) {
	for i, agent := range []struct {
		report    *checks.Report
		changed   []checks.Transition
		condition string
	}{
		{report("00:02:00", checks.Unhealthy, hung), []checks.Transition{onset}, hangs},
		// They do not know what was published.
		{report("00:12:00", checks.Unhealthy, hung), []checks.Transition{sure}, hangs},
		{report("00:15:30", checks.Healthy), []checks.Transition{sure, gone}, "False NoProblemFound 00:05:00 " + fine},
	} {
		p, err := NewPublisher(PublishOptions{kubeconfig, nodeName, func(line string) { t.Error(line) }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { p.Run(ctx); close(ended) }()
		p.Publish(agent.report, agent.changed)
		await(t, func() error {
			got, events := condition(t, api), events(t, api)
			patched := got.LastHeartbeatTime.Equal(new(metav1.NewTime(agent.report.GeneratedAt)))
			if !patched || line(got) != agent.condition || len(events) != i+1 {
				return fmt.Errorf("%s, want %s; %v", got, agent.condition, events)
			}
			return nil
		})
		cancel()
		<-ended
	}
}

// await repeats a check for half a minute.
func await(t *testing.T, check func() error) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err := check(); err == nil {
			return
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func testRealServer(t *testing.T, admin string) {
	t.Setenv("KUBECONFIG", admin)
	const policy = manifests + "/components/own-node/policy.yaml"
	clean := func() {
		kubectl(t, "delete", "--ignore-not-found", "--wait=false", "-k", manifests)
		kubectl(t, "delete", "--ignore-not-found", "-f", policy)
		kubectl(t, "delete", "--ignore-not-found", "node", nodeName)
		kubectl(t, "delete", "event", "-n", "default", "--field-selector", "involvedObject.name="+nodeName)
	}
	clean() // of a run that was cut short
	t.Cleanup(clean)
	kubectl(t, "apply", "-k", manifests)
	kubectl(t, "apply", "-f", policy)
	api := clients(t, admin)
	if _, err := api.CoreV1().Nodes().Create(t.Context(), newNode(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testPublish(t, api, agentOn(t, admin, nodeName))
	described := kubectl(t, "describe", "node", nodeName)
	for _, want := range []string{"KdiagProblem", fine, "onset: no RPC is answered", "gone: no RPC is answered"} {
		if !strings.Contains(described, want) {
			t.Errorf("kubectl describe node lacks %q:\n%s", want, described)
		}
	}
	for _, patch := range []struct{ node, body, refusal string }{
		{"node-8", `{}`, "its own node only"}, // the first: it changes nothing while the policy is not in force yet
		{nodeName, `{"metadata": {"labels": {"a": "b"}}}`, "nothing of a node but its condition"},
		{nodeName, `{"status": {"conditions": [{"type": "A", "status": "True"}]}}`, "the condition KdiagProblem only"},
	} {
		await(t, func() error {
			_, err := clients(t, agentOn(t, admin, patch.node)).CoreV1().Nodes().Patch(t.Context(), nodeName,
				types.StrategicMergePatchType, []byte(patch.body), metav1.PatchOptions{}, "status")
			if err == nil || !strings.Contains(err.Error(), patch.refusal) {
				return fmt.Errorf("%s: %w", patch.body, err)
			}
			return nil
		})
	}
}

// agentOn returns a kubeconfig with what the token of the agent on a node gives.
func agentOn(t *testing.T, admin, node string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:kdiag:kdiag"
		user.ImpersonateGroups = []string{"system:serviceaccounts", "system:authenticated"}
		user.ImpersonateUserExtra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
	}
	name := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, name); err != nil {
		t.Fatal(err)
	}
	return name
}

func clients(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return kubernetes.NewForConfigOrDie(cfg)
}

// kubectl runs the one on the path, also when the test has ended.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	var problems strings.Builder
	cmd := exec.Command("kubectl", args...)
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, problems.String())
	}
	return string(out)
}

//go:build apiserver

package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kdiag/kdiag/internal/testkit"
)

// TestEndToEndPublish publishes an incident to a real API server, to which KUBECONFIG_E2E names an administrator's
// kubeconfig, with deploy/kubernetes applied: the agents have the rights of its service account. Objects of the names
// in there are removed. CI has no API server, so this file is built with the tag apiserver only.
func TestEndToEndPublish(t *testing.T) {
	admin := os.Getenv("KUBECONFIG_E2E")
	if admin == "" {
		t.Fatal("KUBECONFIG_E2E is not set")
	}
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
	_, err := api.CoreV1().Nodes().Create(t.Context(), newNode(), metav1.CreateOptions{})
	must(t, err)
	testPublish(t, api, agentOn(t, admin, nodeName))
	for _, patch := range []struct{ node, body, refusal string }{
		{"node-8", `{}`, "its own node only"}, // the first: it changes nothing while the policy is not in force yet
		{nodeName, `{"metadata": {"labels": {"a": "b"}}}`, "nothing of a node but its conditions"},
		{nodeName, `{"status": {"conditions": [{"type": "A", "status": "True"}]}}`, "its own conditions only"},
	} {
		testkit.Eventually(t, patch.refusal, func() bool {
			_, err := clients(t, agentOn(t, admin, patch.node)).CoreV1().Nodes().Patch(t.Context(), nodeName,
				types.StrategicMergePatchType, []byte(patch.body), metav1.PatchOptions{}, "status")
			return strings.Contains(testkit.Text(err), patch.refusal)
		})
	}
}

// agentOn returns a kubeconfig with what the token of the agent on a node gives.
func agentOn(t *testing.T, admin, node string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(admin)
	must(t, err)
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:kdiag:kdiag"
		user.ImpersonateGroups = []string{"system:serviceaccounts", "system:authenticated"}
		user.ImpersonateUserExtra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
	}
	name := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, name))
	return name
}

func clients(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(t, err)
	return kubernetes.NewForConfigOrDie(cfg)
}

// kubectl runs the one on the path, also when the test has ended.
func kubectl(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("kubectl", args...).CombinedOutput(); err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

//go:build apiserver

package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	e2eLabel = "kdiag-e2e"
	e2eNodes = 3
)

func e2eName(i int) string { return fmt.Sprintf("kdiag-e2e-%d", i) }

// TestEndToEndFleet reads and watches nodes on a real API server, to which KUBECONFIG_E2E names an
// administrator's kubeconfig. They have no kubelets: it renews their leases itself. CI has no API server, so this file
// is built with the tag apiserver only.
func TestEndToEndFleet(t *testing.T) {
	admin := os.Getenv("KUBECONFIG_E2E")
	if admin == "" {
		t.Fatal("KUBECONFIG_E2E is not set")
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", admin)
	must(t, err)
	api := kubernetes.NewForConfigOrDie(cfg)
	removeE2E(t, api) // of a run that was cut short
	t.Cleanup(func() { removeE2E(t, api) })
	createE2E(t, api)
	c, err := Connect(cfg)
	must(t, err)
	opts := Options{Selector: e2eLabel + "=x", Pods: true}
	s, err := c.Read(t.Context(), opts)
	must(t, err)
	var got []string
	for _, n := range s.Nodes {
		age := s.At.Sub(n.Renewed).Round(time.Minute)
		got = append(got, fmt.Sprintf("%s %s %s %d %v %d",
			n.Name, n.Condition(v1.NodeReady).Status, age, n.Pods, n.DaemonSets, len(n.Events)))
	}
	want := []string{
		"kdiag-e2e-0 False 0s 1 [default/net] 1", "kdiag-e2e-1 True 0s 0 [] 0", "kdiag-e2e-2 True 1h0m0s 0 [] 0",
	}
	if diff := cmp.Diff(want, got); diff != "" || s.Problems != nil {
		t.Errorf("%s\nproblems %q", diff, s.Problems)
	}
	testE2EWatch(t, api, s)
	nobody := rest.AnonymousClientConfig(cfg)
	c, err = Connect(nobody)
	must(t, err)
	if _, err = c.Read(t.Context(), Options{}); !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		t.Errorf("without rights: %v", err)
	}
}

// testE2EWatch makes a node Ready and removes another, and watches from before that on.
func testE2EWatch(t *testing.T, api kubernetes.Interface, s *Snapshot) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nodes := api.CoreV1().Nodes()
	n, err := nodes.Get(ctx, e2eName(0), metav1.GetOptions{})
	must(t, err)
	n.Status.Conditions[0].Status = v1.ConditionTrue
	_, err = nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{})
	must(t, err)
	must(t, nodes.Delete(ctx, e2eName(2), metav1.DeleteOptions{}))
	s.Watch(ctx, func(next *Snapshot) {
		s = next
		if len(s.Nodes) == e2eNodes-1 && s.Nodes[0].Condition(v1.NodeReady).Status == v1.ConditionTrue {
			cancel()
		}
	})
	if ctx.Err() != context.Canceled {
		t.Errorf("the watch ended by %v with %d nodes, problems %q", ctx.Err(), len(s.Nodes), s.Problems)
	}
}

func createE2E(t *testing.T, api kubernetes.Interface) {
	t.Helper()
	_, err := api.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: v1.NamespaceNodeLease},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		must(t, err)
	}
	for i := range e2eNodes {
		n, renewed := kubeNode(e2eName(i), v1.ConditionTrue), time.Now()
		n.Labels, n.OwnerReferences, n.Status.NodeInfo.KubeletVersion = map[string]string{e2eLabel: "x"}, nil, "v1.99.0"
		switch i {
		case 0:
			n.Status.Conditions[0].Status = v1.ConditionFalse
		case 2:
			renewed = renewed.Add(-time.Hour)
		}
		_, err = api.CoreV1().Nodes().Create(t.Context(), &n, metav1.CreateOptions{})
		must(t, err)
		l := lease(n.Name, renewed)
		l.Labels = n.Labels
		_, err = api.CoordinationV1().Leases(l.Namespace).Create(t.Context(), &l, metav1.CreateOptions{})
		must(t, err)
	}
	pod := kubePod(e2eLabel, e2eName(0), "DaemonSet", "net")
	pod.Labels = map[string]string{e2eLabel: "x"}
	pod.Namespace, pod.OwnerReferences[0].APIVersion, pod.OwnerReferences[0].UID = "default", "apps/v1", "u"
	_, err = api.CoreV1().Pods("default").Create(t.Context(), &pod, metav1.CreateOptions{})
	must(t, err)
	e := warned(e2eName(0), "Tried", 0)
	e.Name, e.Labels, e.Type, e.LastTimestamp = e2eLabel, pod.Labels, v1.EventTypeWarning, metav1.Now()
	_, err = api.CoreV1().Events("default").Create(t.Context(), &e, metav1.CreateOptions{})
	must(t, err)
}

// removeE2E also runs when the test has ended.
func removeE2E(t *testing.T, api kubernetes.Interface) {
	t.Helper()
	ctx, at := context.Background(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	ours := metav1.ListOptions{LabelSelector: e2eLabel}
	must(t, errors.Join(
		api.CoreV1().Pods("default").DeleteCollection(ctx, at, ours),
		api.CoreV1().Events("default").DeleteCollection(ctx, at, ours),
		api.CoreV1().Nodes().DeleteCollection(ctx, at, ours),
		api.CoordinationV1().Leases(v1.NamespaceNodeLease).DeleteCollection(ctx, at, ours),
	))
}

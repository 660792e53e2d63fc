package syncloop_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// With an API server, a fake one, in front of a real runtime: the node reports itself, pods that are bound to it run, static ones
// have mirrors, and a deletion ends when the containers have ended.
func TestEndToEndAPIServer(t *testing.T) {
	t.Parallel()
	n := newNode(t, 20)
	bound := newPod("bound", shell("c", "[ $COLOUR = green ] || exit 1; "+forever))
	bound.UID, bound.Spec.NodeName = "uid-bound", e2eNode
	bound.Spec.RestartPolicy, bound.Spec.DNSPolicy = v1.RestartPolicyAlways, v1.DNSDefault
	bound.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{
		{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}},
	}
	client := fake.NewClientset(
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: e2eNode, UID: "uid-node"}}, bound,
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: namespace}, Data: map[string]string{"COLOUR": "green"}},
	)
	n.cfg.Client, n.cfg.Register, n.cfg.Objects = client, true, ""
	pods := client.CoreV1().Pods(namespace)
	isReady := func(name string) func() error {
		return func() error {
			p, err := pods.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || !hasCondition(p, v1.PodReady) {
				return fmt.Errorf("%+v, %w", p, err)
			}
			return nil
		}
	}
	gone := func(name string) func() error {
		return func() error {
			p, err := pods.Get(t.Context(), name, metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("%+v, %w", p, err)
			}
			return nil
		}
	}
	n.apply(newPod("static", shell("c", forever)))
	n.start()
	n.await("the bound pod's status", isReady("bound"))
	mirror := "static-" + e2eNode
	n.await("the mirror pod's status", isReady(mirror))
	n.await("the node's status", func() error {
		node, err := client.CoreV1().Nodes().Get(t.Context(), e2eNode, metav1.GetOptions{})
		if err != nil {
			return err
		}
		port := n.Addr().(*net.TCPAddr).Port
		if st := node.Status; len(st.Images) != 2 || st.DaemonEndpoints.KubeletEndpoint.Port != int32(port) || st.Capacity.Cpu().IsZero() {
			return fmt.Errorf("%+v", st)
		}
		for _, c := range node.Status.Conditions {
			if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%+v", node.Status.Conditions)
	})
	p, err := pods.Get(t.Context(), mirror, metav1.GetOptions{})
	if err != nil || p.Annotations[pod.ConfigMirrorAnnotation] == "" {
		t.Errorf("the mirror is %+v, %v", p, err)
	}

	n.remove("static")
	n.await("the mirror pod to go", gone(mirror))
	p, err = pods.Get(t.Context(), "bound", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// What a deletion with a grace period makes of a pod, which the fake does not know.
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now().Add(2 * time.Second)}, new(int64(2))
	if _, err := pods.Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.await("the bound pod to go", gone("bound"))
	n.await("what is left of it to go", func() error { return n.gone("uid-bound") })
}

//go:build e2e

package syncloop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/plegbench/syncloop"
	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver"
	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver/fake"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A server is an API server, as its administrator and as the node see it.
type server struct {
	kubernetes.Interface
	node   syncloop.Client
	events record.EventSink
	// deletePod asks for the end of a pod, with the grace period of its specification.
	deletePod func(ctx context.Context, name string) error
}

// With an API server in front of a real runtime: the node reports itself, pods that are bound to it run, static ones
// have mirrors, and a deletion ends when the containers have ended. The API server is one in memory, and, when
// KUBECONFIG_E2E names an administrator's kubeconfig, also a real one, to which the node comes as a member of
// system:nodes; it is to have no other use, since what the test finds in its namespace is removed.
func TestEndToEndAPIServer(t *testing.T) {
	t.Parallel()
	t.Run("in memory", func(t *testing.T) {
		t.Parallel()
		testAPIServer(t, serverInMemory())
	})
	if kubeconfig := os.Getenv("KUBECONFIG_E2E"); kubeconfig != "" {
		t.Run("real", func(t *testing.T) {
			t.Parallel()
			testAPIServer(t, realServer(t, kubeconfig))
		})
	}
}

// serverInMemory is client-go's, with what it lacks: UIDs, tokens, and pods that stay until the node has let go of
// them.
func serverInMemory() server {
	client := fake.New()
	client.PrependReactor("create", "*", func(a clienttesting.Action) (bool, kruntime.Object, error) {
		created := a.(clienttesting.CreateAction).GetObject()
		if request, ok := created.(*authenticationv1.TokenRequest); ok {
			request.Status = authenticationv1.TokenRequestStatus{
				Token: "a.b.c", ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour)),
			}
			return true, request, nil
		}
		if object, ok := created.(metav1.Object); ok {
			object.SetUID(uuid.NewUUID())
		}
		return false, nil, nil
	})
	return server{
		Interface: client, node: client, events: &typedv1.EventSinkImpl{Interface: client.CoreV1().Events("")},
		deletePod: func(ctx context.Context, name string) error {
			p := &v1.Pod{}
			if err := client.Get(ctx, namespace, name, p); err != nil {
				return err
			}
			grace := *p.Spec.TerminationGracePeriodSeconds
			p.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(time.Duration(grace) * time.Second)}
			p.DeletionGracePeriodSeconds = &grace
			return client.Update(ctx, p)
		},
	}
}

func realServer(t *testing.T, kubeconfig string) server {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	e2etest.Must(t, err)
	admin, err := kubernetes.NewForConfig(cfg)
	e2etest.Must(t, err)
	asNode := rest.CopyConfig(cfg)
	asNode.Impersonate = rest.ImpersonationConfig{
		UserName: "system:node:" + e2eNode, Groups: []string{"system:nodes", "system:authenticated"},
	}
	asNode.ContentType = "application/vnd.kubernetes.protobuf" // as a kubelet's configuration has it
	node, err := apiserver.New(asNode, apiserver.Limits{QPS: 50, Burst: 100, EventQPS: 50, EventBurst: 100})
	e2etest.Must(t, err)
	clean := func(ctx context.Context) {
		at, now := admin.CoreV1(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
		var all metav1.ListOptions
		for _, err := range []error{
			at.Pods(namespace).DeleteCollection(ctx, now, all), at.Events(namespace).DeleteCollection(ctx, now, all),
			at.ConfigMaps(namespace).DeleteCollection(ctx, now, all),
			at.ServiceAccounts(namespace).DeleteCollection(ctx, now, all), at.Nodes().Delete(ctx, e2eNode, now),
			admin.CoordinationV1().Leases(v1.NamespaceNodeLease).Delete(ctx, e2eNode, now),
		} {
			if err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("cleaning the API server: %v", err)
			}
		}
	}
	clean(t.Context()) // of a run that was cut short
	t.Cleanup(func() { clean(context.Background()) })
	shop := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	_, err = admin.CoreV1().Namespaces().Create(t.Context(), shop, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return server{
		Interface: admin, node: node, events: node.Events(),
		deletePod: func(ctx context.Context, name string) error {
			return admin.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		},
	}
}

func testAPIServer(t *testing.T, api server) {
	n := newNode(t, 20)
	recorder := syncloop.NewRecorder(api.events, e2eNode, n.cfg.Log)
	t.Cleanup(recorder.Shutdown)
	n.cfg.Recorder, n.cfg.Client, n.cfg.Register, n.cfg.Objects = recorder, api.node, true, ""
	n.cfg.Kubelet.NodeLeaseDurationSeconds = 4
	n.apply(newPod("static", shell("c", forever)))
	n.start()
	n.await("the node's status", func() error { return n.nodeReported(api) })
	n.await("an event of the node, which has no UID", func() error {
		events, err := api.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		for i := range events.Items {
			if o := events.Items[i].InvolvedObject; o.Kind == "Node" && o.Name == e2eNode && o.UID == "" {
				return nil
			}
		}
		return fmt.Errorf("%d others, %w", len(events.Items), err)
	})

	bound := bind(t, api)
	n.awaitBound(api, bound.Name, ready)
	n.await("the bound pod's event", func() error {
		events, err := api.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.UID == bound.UID && e.Reason == "Started" && e.Source.Host == e2eNode {
				return nil
			}
		}
		return fmt.Errorf("%d others", len(events.Items))
	})
	mirror := "static-" + e2eNode
	p := n.awaitBound(api, mirror, ready)
	if p.Annotations[pod.ConfigMirrorAnnotation] == "" || len(p.OwnerReferences) != 1 ||
		p.OwnerReferences[0].Kind != "Node" {
		t.Errorf("the mirror is %+v", p)
	}
	n.sub("a mirror that was deleted comes back", func() {
		at := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
		e2etest.Must(t, api.CoreV1().Pods(namespace).Delete(t.Context(), mirror, at))
		n.awaitBound(api, mirror, func(again *v1.Pod) bool { return again.UID != p.UID && ready(again) })
	})

	n.remove("static")
	n.awaitBound(api, mirror, gone)
	e2etest.Must(t, api.deletePod(t.Context(), bound.Name))
	n.awaitBound(api, bound.Name, gone)
	n.await("what is left of it to go", func() error { return n.gone(bound.UID) })
}

// bind creates a pod, bound to the node, that ends unless it has what it refers to.
func bind(t *testing.T, api server) *v1.Pod {
	t.Helper()
	clerk := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "clerk"}}
	settings := &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"COLOUR": "green"},
	}
	_, err := api.CoreV1().ServiceAccounts(namespace).Create(t.Context(), clerk, metav1.CreateOptions{})
	_, settingsErr := api.CoreV1().ConfigMaps(namespace).Create(t.Context(), settings, metav1.CreateOptions{})
	e2etest.Must(t, errors.Join(err, settingsErr))
	p := podsOf(t, "bound.yaml")[0]
	bound, err := api.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{})
	e2etest.Must(t, err)
	return bound
}

func ready(p *v1.Pod) bool { return hasCondition(p, v1.PodReady) }
func gone(p *v1.Pod) bool  { return p.UID == "" }

func (n *node) nodeReported(api server) error {
	node, err := api.CoreV1().Nodes().Get(n.t.Context(), e2eNode, metav1.GetOptions{})
	if err != nil {
		return err
	}
	port := n.Addr().(*net.TCPAddr).Port
	st := node.Status
	if len(st.Images) != 2 || st.DaemonEndpoints.KubeletEndpoint.Port != int32(port) || st.Capacity.Cpu().IsZero() ||
		!strings.HasPrefix(st.NodeInfo.ContainerRuntimeVersion, "containerd://") {
		return fmt.Errorf("%+v", st)
	}
	return nodeIs(st.Conditions, v1.NodeReady, v1.ConditionTrue)
}

package config

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver/fake"
)

func TestAPIServer(t *testing.T) {
	client := fake.New(testPod("a"))
	changes := watch.NewFake()
	client.PrependWatchReactor("pods", clienttesting.DefaultWatchReactor(changes, nil))
	synced := make(chan struct{})
	source := &APIServer{Client: client, NodeName: "node-a", Log: logr.Discard(), NodeSynced: func() bool {
		select {
		case <-synced:
			return true
		default:
			close(synced) // it is at the second look
			return false
		}
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	sent := make(chan string, 100)
	ended := make(chan error)
	go func() {
		ended <- source.Run(ctx, func(pods []*v1.Pod) {
			all := names(pods)
			slices.Sort(all)
			sent <- strings.Join(all, " ")
		})
	}()
	until := func(want string) {
		t.Helper()
		for {
			select {
			case got := <-sent:
				if got == want {
					return
				}
			case <-ctx.Done():
				t.Fatalf("never sent %q", want)
			}
		}
	}
	until("a")
	changes.Add(testPod("b"))
	until("a b")
	changes.Delete(testPod("a"))
	until("b")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	for _, a := range client.Actions() {
		switch a := a.(type) {
		case clienttesting.ListActionImpl:
			if got := a.GetListRestrictions().Fields.String(); got != "spec.nodeName=node-a" {
				t.Errorf("listed %q", got)
			}
		case clienttesting.WatchActionImpl:
			if got := a.GetWatchRestrictions().Fields.String(); got != "spec.nodeName=node-a" {
				t.Errorf("watched %q", got)
			}
		}
	}
}

package config

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver"
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

// TestAPIServerResumes goes through the turns of a watch, with the client and over HTTP: a connection that ends goes
// on from what was seen last; a version that the API server has forgotten (410) makes it list anew; and in between no
// pod goes away.
func TestAPIServerResumes(t *testing.T) {
	event := func(kind string, version int, name string) string {
		return fmt.Sprintf(`{"type":%q,"object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"shop","resourceVersion":"%d"}}}`, kind, name, version)
	}
	const (
		complete = `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"10","annotations":{"k8s.io/initial-events-end":"true"}}}}`
		again    = `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"40","annotations":{"k8s.io/initial-events-end":"true"}}}}`
		expired  = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}}`
	)
	// In order: what the query must have, and the lines of the answer, after which the connection ends.
	script := []struct {
		query  string
		answer []string
	}{
		{"sendInitialEvents=true", []string{event("ADDED", 9, "a"), complete, event("ADDED", 11, "b")}},
		{"resourceVersion=11", []string{event("DELETED", 12, "a")}},
		{"resourceVersion=12", []string{expired}},
		{"sendInitialEvents=true", []string{event("ADDED", 30, "c"), again}},
	}
	wrong := make(chan string, 100)
	var turn atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := int(turn.Add(1)) - 1
		if i >= len(script) {
			<-r.Context().Done() // nothing happens any more
			return
		}
		for _, part := range []string{script[i].query, "fieldSelector=spec.nodeName%3Dnode-a", "watch=true"} {
			if !strings.Contains(r.URL.RawQuery, part) {
				wrong <- fmt.Sprintf("request %d: %s lacks %s", i, r.URL, part)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		for _, line := range script[i].answer {
			_, _ = fmt.Fprintln(w, line)
		}
	}))
	defer server.Close()
	client, err := apiserver.New(&rest.Config{Host: server.URL}, apiserver.Limits{QPS: 50, Burst: 100})
	if err != nil {
		t.Fatal(err)
	}
	source := &APIServer{Client: client, NodeName: "node-a", Log: logr.Discard(), NodeSynced: func() bool { return true }}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var sent []string
	err = source.Run(ctx, func(pods []*v1.Pod) {
		all := names(pods)
		slices.Sort(all)
		if sent = append(sent, strings.Join(all, " ")); slices.Equal(all, []string{"c"}) {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if diff := cmp.Diff([]string{"a", "a b", "b", "c"}, sent); diff != "" {
		t.Errorf("sent: %s", diff)
	}
	server.Close()
	close(wrong)
	for complaint := range wrong {
		t.Error(complaint)
	}
}

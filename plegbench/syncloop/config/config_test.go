package config

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

func newMux(sources ...string) (*Mux, *record.FakeRecorder) {
	events := record.NewFakeRecorder(10)
	return New(Config{Log: logr.Discard(), Recorder: events, Sources: sources}), events
}

// drain returns what waits in the channel of updates.
func drain(m *Mux) []PodUpdate {
	var out []PodUpdate
	for {
		select {
		case u := <-m.Updates():
			out = append(out, u)
		default:
			return out
		}
	}
}

func TestMux(t *testing.T) {
	m, events := newMux("file", "api")
	twin := testPod("a", func(p *v1.Pod) { p.UID = "other" })
	m.Apply(t.Context(), "file", []*v1.Pod{testPod("a"), twin, testPod("b")})
	updates := drain(m)
	if diff := cmp.Diff([]string{"ADD a b"}, show(updates)); diff != "" {
		t.Error(diff)
	}
	want := `Warning FailedValidation Error validating pod a_default(other) from file due to duplicate pod name "a", ignoring`
	if got := <-events.Events; got != want {
		t.Errorf("event %q, want %q", got, want)
	}
	a := updates[0].Pods[0]
	if _, err := time.Parse(time.RFC3339Nano, a.Annotations[pod.ConfigFirstSeenAnnotation]); err != nil {
		t.Error(err)
	}
	if !pod.IsStatic(a) || updates[0].Source != "file" {
		t.Errorf("source %q, annotations %v", updates[0].Source, a.Annotations)
	}

	a.Spec.Containers[0].Image = "the receiver may do what it likes"
	m.Apply(t.Context(), "file", []*v1.Pod{testPod("a"), testPod("b")})
	m.Apply(t.Context(), "api", nil)
	if diff := cmp.Diff([]string{"ADD"}, show(drain(m))); diff != "" {
		t.Error(diff)
	}
}

func TestSeenAllSources(t *testing.T) {
	m, _ := newMux("file", "api")
	both := map[string]bool{"file": true, "api": true}
	m.Apply(t.Context(), "file", nil)
	if m.SeenAllSources(both) {
		t.Error("api has not delivered")
	}
	m.Apply(t.Context(), "api", nil)
	if m.SeenAllSources(map[string]bool{"file": true}) {
		t.Error("the syncLoop has not seen api")
	}
	if !m.SeenAllSources(both) {
		t.Error("both are there")
	}
	if none, _ := newMux(); !none.SeenAllSources(nil) {
		t.Error("without sources there is nothing to wait for")
	}
}

// A syncLoop that skips reads nothing. Its sources wait for it, in turn and in order, and are let go when it ends.
func TestMuxBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMux()
		for i := range updatesCap {
			m.Apply(t.Context(), "api", []*v1.Pod{testPod("a", image(strconv.Itoa(i)))})
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan string, 2)
		for _, source := range []string{"file", "http"} {
			go func() {
				m.Apply(ctx, source, []*v1.Pod{testPod("x"), testPod("y")})
				ended <- source
			}()
		}
		time.Sleep(time.Hour)
		select {
		case source := <-ended:
			t.Fatalf("%s got through a full channel", source)
		default:
		}
		cancel()
		<-ended
		<-ended
		if n := len(drain(m)); n != updatesCap {
			t.Errorf("%d updates waited, want %d", n, updatesCap)
		}
	})
}

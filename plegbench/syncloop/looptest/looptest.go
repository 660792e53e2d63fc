// Package looptest has what the tests of the syncLoop's parts share. Only tests use it.
package looptest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/internal/testkit"
)

// Pod returns a pod of the namespace shop, changed by edits. Its UID is its name, and its one container is app.
func Pod(name string, edits ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(name)},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "app", Image: "app:1"}},
		},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

// Deleted is an edit of a pod that its source deletes with a grace period, in seconds.
func Deleted(grace int64) func(*v1.Pod) {
	now := metav1.Now()
	return func(p *v1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &grace }
}

// WithInit returns an edit of a pod that adds init containers. Those whose name begins with s are sidecars.
func WithInit(names ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, n := range names {
			c := v1.Container{Name: n, Image: "image:1"}
			if n[0] == 's' {
				c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
	}
}

// Never is an edit of a pod whose containers are not restarted.
func Never(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }

// OnFailure is an edit of a pod whose containers are restarted if they fail.
func OnFailure(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyOnFailure }

// Annotated is an edit of a pod that sets an annotation.
func Annotated(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) }
}

// Drain returns the values that wait in a channel.
func Drain[T any](ch <-chan T) (all []T) {
	for {
		select {
		case one := <-ch:
			all = append(all, one)
		default:
			return all
		}
	}
}

// Run runs a part until stop is called or the test ends. It must return the error of its context.
func Run(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// RunFor runs a part for a time. It must return the error of its context, or nil.
func RunFor(t *testing.T, run func(context.Context) error, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := run(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run ended with %v", err)
	}
}

// Metric reads a metric.
func Metric(t testing.TB, m any) *dto.Metric {
	t.Helper()
	var out dto.Metric
	testkit.Must(t, m.(prometheus.Metric).Write(&out))
	return &out
}

// Decode reads YAML without unknown fields.
func Decode(t testing.TB, text string, into any) {
	t.Helper()
	testkit.Must(t, yaml.UnmarshalStrict([]byte(text), into))
}

// A Log keeps the lines of its Logger.
type Log struct {
	mu    sync.Mutex
	lines []string
}

// Logger returns a logger up to a verbosity.
func (l *Log) Logger(verbosity int) logr.Logger {
	return funcr.New(func(_, line string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, line)
	}, funcr.Options{Verbosity: verbosity})
}

// Has fails the test unless the log has a line that contains a text.
func (l *Log) Has(t *testing.T, text string) {
	t.Helper()
	if len(l.Lines(text)) == 0 && text != "" {
		t.Errorf("no %q in\n%s", text, strings.Join(l.Lines(""), "\n"))
	}
}

// Lines returns the lines that contain a text.
func (l *Log) Lines(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

package config

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver/fake"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

func TestAPIServer(t *testing.T) {
	client := fake.New(looptest.Pod("a"))
	changes := watch.NewFake()
	client.PrependWatchReactor("pods", clienttesting.DefaultWatchReactor(changes, nil))
	asked := 0
	source := &APIServer{Client: client, NodeName: "node-a", Log: logr.Discard(), NodeSynced: func() bool {
		asked++
		return asked > 1
	}}
	until := background(t, source.Run)
	until("a")
	changes.Add(looptest.Pod("b"))
	until("a b")
	changes.Delete(looptest.Pod("a"))
	until("b")
	for _, a := range client.Actions() {
		var fields string
		switch a := a.(type) {
		case clienttesting.ListActionImpl:
			fields = a.GetListRestrictions().Fields.String()
		case clienttesting.WatchActionImpl:
			fields = a.GetWatchRestrictions().Fields.String()
		}
		testkit.Equal(t, a.GetVerb(), "spec.nodeName=node-a", fields)
	}
}

func names(pods []*v1.Pod) []string {
	out := []string{}
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}

func write(t *testing.T, path, name string) {
	t.Helper()
	testkit.Write(t, path, strings.Replace(minimal, "web", name, 1))
}

func TestFileList(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", "a", ".hidden"} {
		write(t, filepath.Join(dir, name), strings.TrimPrefix(name, "."))
	}
	write(t, filepath.Join(dir, "z-same-pod-as-a"), "a")
	for path, content := range map[string]string{
		"broken": "a: [", "config": "apiVersion: v1\nkind: ConfigMap\n",
	} {
		testkit.Write(t, filepath.Join(dir, path), content)
	}
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	testkit.Must(t, os.Symlink("nowhere", filepath.Join(dir, "link")))
	var log looptest.Log
	f := &File{Interval: 20 * time.Second, Path: dir, NodeName: "n", Log: log.Logger(0)}
	read := func(changed string, want ...string) {
		t.Helper()
		testkit.Must(t, f.read(changed))
		testkit.Equal(t, "pods", want, names(f.sorted()))
	}
	read("", "a-n", "b-n", "a-n")
	const could = `"Could not process manifest file" "error"="`
	broken, folder := could+dir+`/broken: this is neither YAML nor JSON`, could+dir+`/folder: not a regular file`
	got := []int{len(log.Lines("")), len(log.Lines(broken)), len(log.Lines(folder))}
	testkit.Equal(t, "lines: in all, broken, folder", []int{2, 1, 1}, got)

	write(t, filepath.Join(dir, "broken"), "mended")
	testkit.Must(t, os.Remove(filepath.Join(dir, "z-same-pod-as-a")))
	testkit.Write(t, filepath.Join(dir, "b"), "")
	read(filepath.Join(dir, "broken"), "a-n", "b-n", "mended-n", "a-n")
	read(filepath.Join(dir, "z-same-pod-as-a"), "a-n", "b-n", "mended-n")
	read(filepath.Join(dir, "b"), "a-n", "b-n", "mended-n") // b is being written
	read(filepath.Join(dir, ".hidden"), "a-n", "b-n", "mended-n")
	read("", "a-n", "mended-n")
}

// background runs a source until the test's end, and returns a function that waits until it has sent these pods.
func background(t *testing.T, run func(context.Context, func([]*v1.Pod)) error) (until func(want string)) {
	t.Helper()
	sent := make(chan string)
	looptest.Run(t, func(ctx context.Context) error {
		return run(ctx, func(pods []*v1.Pod) {
			all := names(pods)
			slices.Sort(all)
			select {
			case sent <- strings.Join(all, " "):
			case <-ctx.Done():
			}
		})
	})
	return func(want string) {
		t.Helper()
		for {
			select {
			case got := <-sent:
				if got == want {
					return
				}
			case <-time.After(time.Minute):
				t.Fatalf("%q was never sent", want)
			}
		}
	}
}

// answers is a server that gives one answer after the other, as status and body.
type answers struct {
	t     *testing.T
	left  []string
	asked []time.Duration
	start time.Time
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	testkit.Equal(a.t, "header", []string{"a", "b"}, r.Header["X-Node"])
	a.asked = append(a.asked, time.Since(a.start))
	if len(a.left) == 0 {
		return nil, errors.New("connection refused")
	}
	status, body, _ := strings.Cut(a.left[0], " ")
	a.left = a.left[1:]
	w := httptest.NewRecorder()
	if status == "500" {
		w.WriteHeader(http.StatusInternalServerError)
	}
	_, err := io.WriteString(w, body)
	return w.Result(), err
}

func TestHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const list = `{"apiVersion":"v1","kind":"PodList","items":[` +
			`{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}},` +
			`{"metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"i"}]}}]}`
		a := &answers{t: t, start: time.Now(), left: []string{
			"200 " + minimal, "200 " + minimal, "500 " + minimal, "200 " + list, "200 a: [", "200 a: [", "200 ",
			"200 {}", "200 b: [",
		}}
		var log looptest.Log
		h := &HTTP{
			Interval: 20 * time.Second,
			URL:      "http://host/pods", Header: http.Header{"X-Node": {"a", "b"}}, NodeName: "n", Log: log.Logger(4),
		}
		h.client.Transport = a
		var got []string
		send := func(pods []*v1.Pod) { got = append(got, strings.Join(names(pods), " ")) }
		run := func(ctx context.Context) error { return h.Run(ctx, send) }
		looptest.RunFor(t, run, 10*20*time.Second+time.Millisecond)
		testkit.Equal(t, "sent", []string{"web-n", "a-n b-n", ""}, got)
		if len(a.asked) != 11 || a.asked[1] != 20*time.Second {
			t.Errorf("asked at %v", a.asked)
		}
		failed := len(log.Lines(`"level"=0 "msg"="Failed to read pods from URL"`))
		testkit.Equal(t, "lines of failures: after three in a row only with -v=4", 6, failed)
	})
}

package config

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// answers is a server that gives one answer after the other, as status and body.
type answers struct {
	t     *testing.T
	left  []string
	asked []time.Duration
	start time.Time
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if got := r.Header["X-Node"]; !cmp.Equal(got, []string{"a", "b"}) {
		a.t.Errorf("header %q", got)
	}
	a.asked = append(a.asked, time.Since(a.start))
	if len(a.left) == 0 {
		return nil, errors.New("nobody there")
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
		var lines []string
		log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{Verbosity: 4})
		h := &HTTP{
			Interval: 20 * time.Second,
			URL:      "http://host/pods", Header: http.Header{"X-Node": {"a", "b"}}, NodeName: "n", Log: log,
		}
		h.client.Transport = a
		var got []string
		ctx, cancel := context.WithTimeout(t.Context(), 10*20*time.Second+time.Millisecond)
		defer cancel()
		if err := h.Run(ctx, func(pods []*v1.Pod) { got = append(got, strings.Join(names(pods), " ")) }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ended with %v", err)
		}
		if diff := cmp.Diff([]string{"web-n", "a-n b-n", ""}, got); diff != "" {
			t.Error(diff)
		}
		if len(a.asked) != 11 || a.asked[1] != 20*time.Second {
			t.Errorf("asked at %v", a.asked)
		}
		wants := []string{
			`"level"=1 "msg"="Watching URL" "URL"="http://host/pods"`,
			`"level"=0 "msg"="Failed to read pods from URL" "err"="http://host/pods: 500 Internal Server Error"`,
			`"level"=0 "msg"="Successfully read pods from URL"`,
			`"level"=0 "msg"="Failed to read pods from URL" "err"="http://host/pods: this is neither YAML nor JSON`,
			`"level"=0 "msg"="Successfully read pods from URL"`,
			`"level"=0 "msg"="Failed to read pods from URL" "err"="zero-length data received from http://host/pods"`,
			`"level"=0 "msg"="Failed to read pods from URL" "err"="http://host/pods: `,
			`"level"=0 "msg"="Failed to read pods from URL" "err"="http://host/pods: this is neither YAML nor JSON`,
			`"level"=0 "msg"="Failed to read pods from URL" "err"=`,
			`"level"=4 "msg"="Failed to read pods from URL" "err"=`,
		}
		for i, want := range wants {
			if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
				t.Fatalf("line %d of %q does not begin with %s", i, lines, want)
			}
		}
	})
}

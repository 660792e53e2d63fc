package container

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var errGone = errors.New("not found")

// A runtime has one container.
type runtime struct {
	status  *runtimeapi.ContainerStatus
	removed []string
}

func (r *runtime) ContainerStatus(_ context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	if id != r.status.GetId() {
		return nil, errGone
	}
	return r.status, nil
}

func (r *runtime) RemoveContainer(_ context.Context, id string) error {
	r.removed = append(r.removed, id)
	return nil
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	outside, link := filepath.Join(dir, "0.log"), LogLink(dir, "web", "shop", "main", "c2")
	log, other := filepath.Join(PodLogs(dir, "shop", "web", "1"), "0.log"), filepath.Join(PodLogs(dir, "shop", "web", "1"), "1.log")
	for _, f := range []string{log, other, outside, link} {
		if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rt := &runtime{status: &runtimeapi.ContainerStatus{
		Id: "c2", LogPath: log, Labels: map[string]string{PodNameLabel: "web", PodNamespaceLabel: "shop", ContainerNameLabel: "main"},
	}}
	if err := Remove(t.Context(), rt, dir, "nobody"); !errors.Is(err, errGone) {
		t.Errorf("a container that is gone: %v", err)
	}
	for _, path := range []string{log, outside} {
		rt.status.LogPath = path
		if err := Remove(t.Context(), rt, dir, "c2"); err != nil {
			t.Fatal(err)
		}
	}
	var left []string
	for _, f := range []string{log, other, outside, link} {
		if _, err := os.Stat(f); err == nil {
			left = append(left, f)
		}
	}
	if diff := cmp.Diff([]string{other, outside}, left); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"c2", "c2"}, rt.removed); diff != "" {
		t.Error(diff)
	}
}

func TestLogLink(t *testing.T) {
	if got := LogLink("/l", "web", "shop", "main", "abc"); got != "/l/containers/web_shop_main-abc.log" {
		t.Error(got)
	}
	got := filepath.Base(LogLink("/l", strings.Repeat("n", 200), "shop", "main", strings.Repeat("c", 64)))
	if len(got) != 255 || !strings.HasSuffix(got, "c.log") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

package container

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
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
	logs, links, outside := filepath.Join(dir, "pods"), filepath.Join(dir, "containers"), filepath.Join(dir, "0.log")
	link := filepath.Join(links, LogLink("web", "shop", "main", "c2"))
	for _, f := range []string{filepath.Join(logs, "0.log"), filepath.Join(logs, "0.log.2026.gz"), filepath.Join(logs, "1.log"), outside, link} {
		if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rt := &runtime{status: &runtimeapi.ContainerStatus{
		Id: "c2", LogPath: filepath.Join(logs, "0.log"),
		Labels: map[string]string{PodNameLabel: "web", PodNamespaceLabel: "shop", ContainerNameLabel: "main"},
	}}
	r := Remover{CRI: rt, LogDir: logs, SymlinkDir: links, Log: logr.Discard()}
	if err := r.Remove(t.Context(), "nobody"); !errors.Is(err, errGone) {
		t.Errorf("a container that is gone: %v", err)
	}
	for _, path := range []string{rt.status.GetLogPath(), outside} { // the second time all but the other's is gone already
		rt.status.LogPath = path
		if err := r.Remove(t.Context(), "c2"); err != nil {
			t.Fatal(err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*/*"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{filepath.Join(logs, "1.log")}, left); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("a file outside of the logs: %v", err)
	}
	if diff := cmp.Diff([]string{"c2", "c2"}, rt.removed); diff != "" {
		t.Error(diff)
	}
}

func TestLogLink(t *testing.T) {
	if got := LogLink("web", "shop", "main", "abc"); got != "web_shop_main-abc.log" {
		t.Error(got)
	}
	got := LogLink(strings.Repeat("n", 200), "shop", "main", strings.Repeat("c", 64))
	if len(got) != 255 || !strings.HasSuffix(got, "c.log") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

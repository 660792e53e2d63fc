package kuberuntime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

func TestHash(t *testing.T) {
	for _, tt := range []struct{ name, image, want string }{
		{"test_container", "foo/image:v1", "8e45cbd0"},
		{"c", "busybox:1", "1aaabc84"},
	} {
		if got := fmt.Sprintf("%x", ContainerHash(&v1.Container{Name: tt.name, Image: tt.image, Command: []string{"x"}})); got != tt.want {
			t.Errorf("%s, %s: %s, want %s", tt.name, tt.image, got, tt.want)
		}
	}
}

// owned are the labels of something that belongs to a pod of ours.
func owned(uid, name string) map[string]string {
	return map[string]string{
		container.OwnerLabel: node, container.PodUIDLabel: uid, container.PodNameLabel: name, container.PodNamespaceLabel: "shop",
		container.ContainerNameLabel: "main",
	}
}

func TestGetPods(t *testing.T) {
	r := newRig(t)
	sb := func(id, uid, name string, attempt uint32, at int64, labels map[string]string) {
		r.cri.sandboxes = append(r.cri.sandboxes, &runtimeapi.PodSandboxStatus{
			Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid, Name: name, Namespace: "shop", Attempt: attempt}, CreatedAt: at, Labels: labels,
		})
	}
	sb("s1", "u1", "web", 0, 500, owned("u1", "web")) // made later than the next, but of an older attempt
	sb("s2", "u1", "web", 1, 400, owned("u1", "web"))
	sb("s3", "u2", "db", 0, 450, owned("u2", "db"))
	sb("x1", "u3", "foreign", 0, 1, map[string]string{container.PodUIDLabel: "u3"})
	others := owned("u4", "other-node")
	others[container.OwnerLabel] = "node-b"
	sb("x2", "u4", "other-node", 0, 1, others)
	c := func(id, sandbox string, at int64, labels map[string]string, state runtimeapi.ContainerState) {
		r.cri.containers = append(r.cri.containers, &runtimeapi.ContainerStatus{
			Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: 2}, CreatedAt: at, Labels: labels, State: state,
			Annotations: map[string]string{container.HashAnnotation: "ff"}, Image: &runtimeapi.ImageSpec{Image: "image:1"},
		})
		r.cri.inSandbox[id] = sandbox
	}
	run, exited := runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED
	c("c1", "s1", 10, owned("u1", "web"), exited)
	c("c3", "s2", 20, owned("u1", "web"), run)
	c("c2", "s2", 20, owned("u1", "web"), run)
	c("c9", "gone", 20, owned("u9", "orphan"), run)
	c("x3", "x1", 20, map[string]string{container.PodUIDLabel: "u3"}, run)

	describePods := func(pods []*container.Pod) []string {
		var out []string
		for _, p := range pods {
			line := p.FullName() + ":"
			for _, s := range p.Sandboxes {
				line += " " + s.ID.ID
			}
			for _, s := range p.Containers {
				line += fmt.Sprintf(" %s(%s)", s.ID.ID, s.SandboxID)
			}
			out = append(out, line)
		}
		return out
	}
	pods, err := r.GetPods(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "pods", []string{"web_shop: s2 s1 c3(s2) c2(s2) c1(s1)", "db_shop: s3", "orphan_shop: c9(gone)"}, describePods(pods))
	same(t, "calls", []string{"ListPodSandbox", "ListContainers"}, r.cri.took())
	if r.Foreign() != 2 {
		t.Errorf("%d foreign pods, want 2", r.Foreign())
	}
	if pods, err = r.GetPods(t.Context(), false); err != nil || strings.Contains(fmt.Sprint(describePods(pods)), "c1(") {
		t.Errorf("running ones only: %v, %v", describePods(pods), err)
	}
	one, err := r.GetPod(t.Context(), "u2")
	if err != nil || one.Name != "db" {
		t.Errorf("one pod: %+v, %v", one, err)
	}
	for _, uid := range []types.UID{"u3", "u4", "u5"} {
		if _, err := r.GetPod(t.Context(), uid); !errors.Is(err, ErrPodNotFound) {
			t.Errorf("pod %s: %v", uid, err)
		}
	}
	r.cri.took()
	r.cri.fail["ListPodSandbox"] = errors.New("hung")
	if _, err := r.GetPods(t.Context(), true); err == nil || err.Error() != "hung" {
		t.Errorf("error %v", err)
	}
	same(t, "calls after a failed list", []string{"ListPodSandbox"}, r.cri.took())
}

func TestGetPodStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		r := newRig(t)
		r.Log = funcr.New(func(_, line string) { log = append(log, line) }, funcr.Options{})
		p := testPod("a", "b")
		r.running(t, p)
		listed, err := r.GetPod(t.Context(), p.UID)
		if err != nil {
			t.Fatal(err)
		}
		listed.Sandboxes = append(listed.Sandboxes, &container.Container{ID: r.id("gone")})
		listed.Containers = append(listed.Containers, &container.Container{ID: r.id("gone")})
		r.cri.took()
		st, err := r.GetPodStatus(t.Context(), listed)
		if err != nil || len(st.ContainerStatuses) != 2 || len(st.SandboxStatuses) != 1 {
			t.Fatalf("%+v, %v", st, err)
		}
		calls := r.cri.took()
		if len(calls) != 5 || calls[0] != "PodSandboxStatus sb1" || calls[1] != "PodSandboxStatus gone" {
			t.Errorf("calls %q", calls)
		}
		if !st.TimeStamp.Equal(time.Now()) || st.Name != "web" || st.Find("a").SandboxID != "sb1" || st.Find("a").State != container.Running {
			t.Errorf("status %+v", st)
		}
		log = nil
		r.cri.fail["ContainerStatus a"] = errors.New("hung")
		for range 70 {
			if _, err := r.GetPodStatus(t.Context(), listed); err == nil {
				t.Fatal("no error")
			}
			time.Sleep(time.Second)
		}
		if n := len(slices.DeleteFunc(log, func(l string) bool { return !strings.Contains(l, "getPodContainerStatuses for pod failed") })); n != 2 {
			t.Errorf("the error is logged %d times in 70 s, want 2", n)
		}
		r.cri.fail["PodSandboxStatus"] = errors.New("hung")
		if _, err := r.GetPodStatus(t.Context(), listed); err == nil {
			t.Error("a sandbox without status is no error")
		}
	})
}

func TestTerminationMessage(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, file, message, want string }{
		{"file", write("message", "I am done\n"), "", "I am done\n"},
		{"file beside the runtime's message", write("message", "I am done\n"), "OOM", "OOM: I am done\n"},
		{"end of a long file", write("long", strings.Repeat("x", 5000)+"end"), "", strings.Repeat("x", 4093) + "end"},
		{"empty file", write("empty", ""), "why", "why"},
		{"no file", filepath.Join(dir, "none"), "why", "why"},
		{"a pipe that nobody writes into", pipe, "why", "why"},
		{"a folder", dir, "why", "why"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := newRig(t).status(&runtimeapi.ContainerStatus{
				State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 1, Message: tt.message,
				Annotations: map[string]string{container.TerminationMessagePathAnnotation: "/dev/termination-log"},
				Mounts: []*runtimeapi.Mount{
					{ContainerPath: "/etc/hosts", HostPath: "/etc/hosts"}, {ContainerPath: "/dev/termination-log", HostPath: tt.file},
				},
			})
			same(t, "message", tt.want, got.Message)
		})
	}
}

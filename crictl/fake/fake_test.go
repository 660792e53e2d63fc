package fake_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
	"github.com/kdiag/kdiag/internal/testkit"
)

// version calls Version with a deadline of a minute, and returns its code and how long it took by the bubble's clock,
// unless that is no time.
func version(t *testing.T, c runtimeapi.RuntimeServiceClient) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start := time.Now()
	_, err := c.Version(ctx, &runtimeapi.VersionRequest{})
	outcome := status.Code(err).String()
	if took := time.Since(start); took > 0 {
		outcome += " " + took.String()
	}
	return outcome
}

func TestFaultTimes(t *testing.T) {
	const s = fake.Duration(time.Second)
	for _, test := range []struct {
		name  string
		fault fake.Fault
		want  string // when Version is called after New, and the outcome of that
	}{
		{"hang", fake.Fault{Hang: true}, "0s DeadlineExceeded 1m0s, 1h DeadlineExceeded 1m0s"},
		{"delay, then error", fake.Fault{Delay: s, Error: "Unavailable"}, "0s Unavailable 1s"},
		{
			"every and for, counted from From",
			fake.Fault{Error: "Unavailable", From: 5 * s, Every: 40 * s, For: 15 * s},
			"0s OK, 5s Unavailable, 19s Unavailable, 20s OK, 44s OK, 45s Unavailable",
		},
		{
			"calls before From do not count",
			fake.Fault{Error: "Unavailable", From: 10 * s, After: 1, First: 1},
			"0s OK, 10s OK, 11s Unavailable, 12s OK",
		},
		{"thaw", fake.Fault{Hang: true, Thaw: true, From: 10 * s, Every: 40 * s, For: 15 * s}, "12s OK 13s, 26s OK"},
		{"thaw at until", fake.Fault{Hang: true, Thaw: true, Until: 7 * s}, "3s OK 4s"},
	} {
		testkit.Bubble(t, test.name, func(t *testing.T) {
			test.fault.RPC = "Version"
			start := time.Now()
			c := serve(t, fake.Scenario{Name: "faulty", Faults: []fake.Fault{test.fault}})
			for call := range strings.SplitSeq(test.want, ", ") {
				at, want, _ := strings.Cut(call, " ")
				after, err := time.ParseDuration(at)
				testkit.Must(t, err)
				time.Sleep(time.Until(start.Add(after)))
				testkit.Equal(t, "after "+at, want, version(t, c))
			}
		})
	}
}

// serve serves a scenario in memory until the test ends.
func serve(t *testing.T, s fake.Scenario) runtimeapi.RuntimeServiceClient {
	t.Helper()
	conn := must(crictl.NewConn("/run/fake.sock", faketest.Serve(t, s)))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return runtimeapi.NewRuntimeServiceClient(conn)
}

// must fails the test on an error and returns the answer otherwise.
func must[T any](answer T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		testkit.Must(t, err)
		return answer
	}
}

// TestSlowStreamEnds has a subscriber that does not read: flow control stops the stream, the backlog fills, and the
// stream ends with an error after which the caller must list again.
func TestSlowStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, fake.Scenario{Name: "empty", Images: []string{"app:1"}})
		large := &runtimeapi.PodSandboxConfig{
			Metadata:    &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "1"},
			Annotations: map[string]string{"note": strings.Repeat("x", 64<<10)},
		}
		sandbox := must(c.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: large}))(t)
		stream := must(c.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{}))(t)
		synctest.Wait()
		create := &runtimeapi.CreateContainerRequest{
			PodSandboxId: sandbox.GetPodSandboxId(), Config: &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: "app:1"},
			},
		}
		for range 1000 { // an event each, and another with the removal
			id := must(c.CreateContainer(t.Context(), create))(t).GetContainerId()
			must(c.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}))(t)
		}
		for {
			if _, err := stream.Recv(); err != nil {
				if status.Code(err) != codes.ResourceExhausted {
					t.Errorf("the stream ended with %v", err)
				}
				return
			}
		}
	})
}

// TestListen listens in the place of a stale socket, and of nothing else. A client that connects and sends nothing is
// cut off at once by stop, and not after the two minutes for which gRPC waits.
func TestListen(t *testing.T) {
	dir := t.TempDir()
	path, file := filepath.Join(dir, "cri.sock"), filepath.Join(dir, "file")
	listen := func(path string) (stop func(), err error) {
		return fake.Listen(t.Context(), must(fake.New(fake.Scenario{Name: "small"}))(t), path)
	}
	stale := must(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	stale.SetUnlinkOnClose(false)
	must(0, errors.Join(stale.Close(), os.WriteFile(file, []byte("precious"), 0o600)))(t)
	stop := must(listen(path))(t)
	for path, want := range map[string]string{path: "another process listens there already", file: "is not a socket"} {
		_, err := listen(path)
		testkit.Contains(t, path, want, testkit.Text(err))
	}
	if info := must(os.Lstat(path))(t); info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket has mode %v", info.Mode())
	}
	conn := must(net.Dial("unix", path))(t)
	stopped := make(chan bool)
	go func() {
		stop()
		stop() // again does nothing
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-time.After(time.Minute):
		t.Fatal("stop waits for the client")
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is still there")
	}
	if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection after stop: %v", err)
	}
}

func TestParseErrors(t *testing.T) {
	fault := func(text string) string { return "name: x\nfaults: [" + text + "]" }
	pods := func(text string) string { return "name: x\npods: [" + text + "]" }
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", "the document is empty"},
		{"socket", "name: x\nsocket: closed", `socket: unknown mode "closed"`},
		{"hang and error", fault("{rpc: '*', hang: true, error: Unavailable}"), "faults[0]: hang, error, drop"},
		{"container twice", pods("{name: a, containers: [{name: b}, {name: b}]}"), `pods[0].containers[1].name: "b" is`},
		{"oversize beyond reason", fault("{rpc: '*', oversize: 1000000000}"), "faults[0]: oversize: more than"},
		{"a file of passwords", "root:*:20228:0:99999:7::\n", "it is not a YAML document"},
		{"duration without a unit", "name: x\nlatency: [{rpc: '*', base: 5}]", `"5" is not a duration such as 250ms`},
		{
			"unknown code", fault("{rpc: '*', error: 'Broken: x'}"),
			`faults[0]: error: "Broken: x" does not begin with a gRPC code`,
		},
		{"extends nobody", "name: x\nextends: nobody", `extends: no built-in scenario is called "nobody"`},
		{"bad object pattern", fault("{rpc: '*', hang: true, object: {pod: '[a'}}"), `faults[0]: object: "[a" is not`},
		{
			"too many objects", pods("{name: a, count: 1000, containers: [{name: b, exited: 1000}]}"),
			"pods[0]: more than 1000000 sandboxes",
		},
	} {
		_, err := fake.Parse([]byte(test.text))
		if got := fmt.Sprint(err); !strings.HasPrefix(got, "reading the scenario: "+test.want) ||
			strings.ContainsAny(got, "\n\r\x1b") {
			t.Errorf("%s: %q does not begin with %q, or is not one line", test.name, got, test.want)
		}
	}
}

// FuzzParse reads any text: a scenario that is accepted reads the same after it was written, and errors have one line.
func FuzzParse(f *testing.F) {
	for _, name := range fake.Names() {
		text, _ := os.ReadFile("scenarios/" + name + ".yaml")
		f.Add(text)
	}
	f.Add([]byte(`{"name":"x","pods":[{"name":"a","count":3,"age":"5m"}]}`))
	f.Add([]byte("name: x\nfaults: [{rpc: '*', error: 'Unavailable: \"x\"'}]"))
	f.Add([]byte("name: &a [*a]"))
	f.Add([]byte("? {a: b}\n: c"))
	f.Add([]byte("name: !!binary aGk="))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := fake.Parse(data)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("error of several lines: %q", err)
			}
			return
		}
		text := must(yaml.Marshal(s))(t)
		again, err := fake.Parse(text)
		if err != nil {
			t.Fatalf("reading it again: %v\n%s", err, text)
		}
		testkit.Equal(t, "written and read again", s, again, cmpopts.EquateEmpty())
	})
}

package app

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/upload/uploadtest"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
	"github.com/kdiag/kdiag/internal/testkit"
)

// An outcome is what one run of kdiag left.
type outcome struct {
	code           int
	stdout, stderr string
}

// kdiag runs a command in this process, with nothing of the caller's environment.
func kdiag(ctx context.Context, args ...string) outcome {
	env, stdout, stderr := surroundings()
	code := Main(ctx, env, args)
	return outcome{code, stdout.String(), stderr.String()}
}

// inFakeTime runs a test in fake time.
func inFakeTime(t *testing.T, test func(t *testing.T, kdiag func(args ...string) outcome)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, func(args ...string) outcome {
			env, stdout, stderr := timeless()
			code := run(t.Context(), env, args)
			return outcome{code, stdout.String(), stderr.String()}
		})
	})
}

func surroundings() (env cli.Env, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	return cli.Env{
		In: bytes.NewReader(nil), Out: stdout, Err: stderr,
		Now:      time.Now,
		Getenv:   func(string) string { return "" },
		Hostname: os.Hostname,
		Root:     hostRoot,
		Width:    80,
	}, stdout, stderr
}

// timeless are surroundings for fake time, which stands still as long as anything waits for the kernel: the sockets of
// simulated runtimes are in memory. No command in it may ask a real runtime, a server, or this host, whose processes
// may hang.
func timeless() (env cli.Env, stdout, stderr *bytes.Buffer) {
	var sockets faketest.Sockets
	env, stdout, stderr = surroundings()
	env.Sockets = cli.Sockets{Listen: sockets.Listen, Dial: sockets.Dial}
	return env, stdout, stderr
}

// decode decodes the one JSON document that a run printed, and fails the test when it printed anything else.
func decode[T any](t *testing.T, o outcome) *T {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader([]byte(o.stdout)))
	dec.DisallowUnknownFields()
	var doc T
	if err := dec.Decode(&doc); err != nil {
		t.Fatalf("stdout is not a %T: %v\nstdout: %s\nstderr: %s", doc, err, o.stdout, o.stderr)
	}
	if dec.More() {
		t.Fatalf("more than one document on stdout:\n%s", o.stdout)
	}
	return &doc
}

// sequence returns what of the list is wanted, in the order in which it is wanted, as far as it is there.
func sequence[T comparable](list, want []T) (got []T) {
	for _, w := range want {
		i := slices.Index(list, w)
		if i < 0 {
			break
		}
		got, list = append(got, w), list[i+1:]
	}
	return got
}

var must = testkit.Must

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == host.ChildArgument {
		os.Exit(host.Serve(os.Args[2:], os.Stdout)) // the tests' kdiag starts itself anew too
	}
	kdiag := func() {
		env := cli.System()
		env.Root = cmp.Or(os.Getenv("HOST_ROOT"), env.Root)
		os.Exit(Main(context.Background(), env, os.Args[1:]))
	}
	testscript.Main(tests{m}, map[string]func(){"kdiag": kdiag, "kubectl-kdiag": kdiag})
}

type tests struct{ *testing.M }

// hostRoot is the root of a host that has no logs, processes or settings. The commands read it in place of the
// machine's own, whose kernel log and load must not change what they print.
var hostRoot string

// Run catches SIGHUP: below nohup this process ignores it, and the kdiag of a script would inherit that.
func (t tests) Run() int {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	root, err := os.MkdirTemp("", "kdiag-host")
	if err == nil {
		err = os.Mkdir(filepath.Join(root, "proc"), 0o755)
	}
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(root)
	hostRoot = root
	return t.M.Run()
}

// A scriptT is a script's test, which its commands can get at.
type scriptT struct{ *testing.T }

func (t scriptT) Run(name string, run func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) { run(scriptT{t}) })
}

func (t scriptT) Verbose() bool { return testing.Verbose() }

// TestScripts runs kdiag as a person does. Beside testscript's own commands there are three. Two check the exit code:
// "code N kdiag ..." runs the program, "sim N ..." the command in this process, in fake time, and "sim N@1m ..."
// interrupts it after a minute. "store" starts an object store.
func TestScripts(t *testing.T) {
	dir, err := filepath.Abs("testdata/script")
	must(t, err)
	testscript.RunT(scriptT{t}, testscript.Params{
		Dir:                 dir,
		UpdateScripts:       *testkit.Update,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			// The locale and terminal of whoever runs the tests must not show.
			env.Setenv("LC_ALL", "C.UTF-8")
			env.Setenv("TERM", "xterm")
			env.Setenv("CONTAINER_RUNTIME_ENDPOINT", "")
			env.Setenv("TMPDIR", "/tmp")
			env.Setenv("HOST_ROOT", hostRoot)
			env.Setenv("ESC", "\x1b[31mred")
			env.Values[scriptT{}] = env.T()
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": code, "sim": sim, "store": store},
	})
}

// code runs a program.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command [args...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	wantsCode(ts, args[0], got)
}

// store starts an object store that takes one object, with the presigned URL $STORE, into the file stored, and each
// time into stored.1 and so on. $EXPIRED was such a URL. While there is a file away it answers 503.
func store(ts *testscript.TestScript, _ bool, _ []string) {
	var took atomic.Int64
	s := &uploadtest.Store{
		Fault: func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			_, err := os.Stat(ts.MkAbs("away"))
			if err == nil {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return err == nil
		},
		Took: func(_ string, o uploadtest.Object) {
			name := fmt.Sprint("stored.", took.Add(1))
			ts.Check(os.WriteFile(ts.MkAbs(name), o.Data, 0o600))
			ts.Check(os.WriteFile(ts.MkAbs("stored"), o.Data, 0o600))
		},
	}
	server := httptest.NewServer(s)
	ts.Defer(server.Close)
	object := server.URL + "/node.tar.zst"
	ts.Setenv("STORE", uploadtest.Presign(http.MethodPut, object, time.Now(), time.Hour))
	ts.Setenv("EXPIRED", uploadtest.Presign(http.MethodPut, object, time.Now().Add(-2*time.Hour), time.Hour))
}

// inFolder is locked as long as this process is in the folder of a script.
var inFolder sync.Mutex

// sim runs a command of kdiag.
func sim(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: sim N command [args...]")
	}
	inFolder.Lock()
	defer inFolder.Unlock()
	back, err := os.Getwd()
	ts.Check(err)
	ts.Check(os.Chdir(ts.MkAbs(".")))
	defer func() { ts.Check(os.Chdir(back)) }()
	want, after, _ := strings.Cut(args[0], "@")
	limit, err := time.ParseDuration(cmp.Or(after, "24h"))
	ts.Check(err)
	got := 0
	synctest.Test(ts.Value(scriptT{}).(scriptT).T, func(t *testing.T) {
		env, stdout, stderr := timeless()
		env.Getenv, env.Root = ts.Getenv, cmp.Or(ts.Getenv("HOST_ROOT"), env.Root)
		ctx, interrupt := context.WithCancel(t.Context())
		defer time.AfterFunc(limit, interrupt).Stop()
		defer interrupt()
		got = run(ctx, env, args[1:])
		_, _ = stdout.WriteTo(ts.Stdout())
		_, _ = stderr.WriteTo(ts.Stderr())
	})
	wantsCode(ts, want, got)
}

func wantsCode(ts *testscript.TestScript, want string, got int) {
	if n, err := strconv.Atoi(want); err != nil || n != got {
		ts.Fatalf("exit code %d, want %s", got, want)
	}
}

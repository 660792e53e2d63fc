package capture

import (
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/internal/testkit"
)

const (
	dump    = "goroutine 1 [select]:\nmain.main(\"a\")\n\t/usr/src/main.go:12 +0x1d\n"
	quoted  = `goroutine 1 [select]:\nmain.main(\"a\")\n\t/usr/src/main.go:12 +0x1d\n`
	logHead = `time="2026-11-20T03:00:00Z" level=info msg="=== BEGIN goroutine stack dump ===\n`
	logTail = `\n=== END goroutine stack dump ==="`
	logged  = logHead + quoted + logTail + "\n"
	before  = logHead + "of before" + logTail + "\n"
	cut     = "it was not written to its end in time"
)

// TestFiles has a daemon with another root folder write its dump, and others what is no dump of it.
func TestFiles(t *testing.T) {
	const name = "its/tmp/containerd.812.stacks.log"
	for _, tc := range []struct {
		name   string
		change func(r tree)
		want   string // the places that have the dump
	}{
		{"to its file", func(r tree) { r.Write(name, dump) }, "/tmp/containerd.812.stacks.log"},
		{"to its log", func(r tree) { r.Write("its/log", before+logged) }, "its/log"},
		{"before", func(tree) {}, ""},
		{"another user", func(r tree) {
			r.Write(name, dump)
			if os.Chown(r.Path(name), os.Geteuid()+1, -1) != nil {
				must(r, os.Remove(r.Path(name))) // only root may
			}
		}, ""},
		{"a link", func(r tree) {
			r.Write("its/tmp/secret", dump)
			must(r, os.Remove(r.Path(name)))
			r.Link(name, "secret")
		}, ""},
		{"a pipe", func(r tree) {
			must(r, os.Remove(r.Path(name)))
			must(r, syscall.Mkfifo(r.Path(name), 0o600))
		}, ""},
	} {
		r := tree{testkit.NewTree(t)}
		r.Write(name, dump)
		hour := time.Now().Add(-time.Hour)
		must(t, os.Chtimes(r.Path(name), hour, hour))
		r.Write("its/log", before)
		r.Link("proc/812/root", r.Path("its"))
		r.Link("proc/812/fd/2", r.Path("its/log"))
		p := host.Process{PID: 812, Name: "containerd"}
		where := Input{Root: r.Root}.placesOf(p, p)
		tc.change(r)
		got := ""
		for _, place := range where {
			if w := place.read(); string(w.text) == dump {
				got += strings.TrimPrefix(w.name, r.Root+"/")
			} else if w.text != nil {
				t.Errorf("%s: %s has %q", tc.name, w.name, w.text)
			}
		}
		if got != tc.want || len(where) != 2 {
			t.Errorf("%s: the dump is in %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestAwait has a file and a log show one length of a dump after the other.
func TestAwait(t *testing.T) {
	const most = 1100 * time.Millisecond
	for _, tc := range []struct {
		name     string
		file     []int // bytes that are there; the last one again and again
		log      int
		want     written
		duration time.Duration
	}{
		{"nothing", []int{0}, 0, written{cut: cut}, most},
		{"the file comes first", []int{len(dump)}, len(dump), written{name: "file", text: []byte(dump)}, 2 * pollEvery},
		{"only the log", []int{0}, len(dump), written{name: "log", text: []byte(dump)}, 2 * pollEvery},
		{"it grows", []int{30, 30, len(dump)}, 0, written{name: "file", text: []byte(dump)}, 4 * pollEvery},
		{"it stays cut", []int{1, 30}, 0, written{"file", []byte(dump[:30]), cut}, most},
		{"at the last moment", []int{1, 2, 3, 4, 5, len(dump)}, 0, written{name: "file", text: []byte(dump)}, most},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx := testkit.Within(t, most)
			start := time.Now()
			got, ok := await(ctx, []place{
				{"file", func() written {
					n := tc.file[0]
					tc.file = tc.file[min(1, len(tc.file)-1):]
					return written{name: "file", text: []byte(dump)[:n]}
				}},
				{"log", func() written { return written{name: "log", text: []byte(dump)[:tc.log]} }},
			})
			diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(written{}))
			if diff != "" || ok != (tc.want.text != nil) || time.Since(start) != tc.duration {
				t.Errorf("%s: await() %v after %v (-want +got)\n%s", tc.name, ok, time.Since(start), diff)
			}
		})
	}
}

// TestPlacesOf is where daemons write.
func TestPlacesOf(t *testing.T) {
	r := tree{testkit.NewTree(t)}
	r.Write("tmp/x", "", "k3s/agent/containerd/containerd.log", "")
	const pipe = "/k3s/agent/etc/containerd/config.toml"
	for i, tc := range []struct{ name, config, root, stderr, want string }{
		{"crio", "", r.Root, "socket:[1]", "/tmp/crio-goroutine-stacks-*.log"},
		{"containerd", "", r.Root, "/dev/null", "/tmp/containerd.12.stacks.log"},
		{"containerd", "", r.Root, "socket:[1]", "/tmp/containerd.13.stacks.log, the journal"},
		{"containerd", pipe, r.Root, "pipe:[1]", "/tmp/containerd.14.stacks.log, /k3s/agent/containerd/containerd.log"},
	} {
		p := host.Process{PID: 11 + i, Name: tc.name, Config: tc.config}
		r.Link("proc/"+strconv.Itoa(p.PID)+"/fd/2", tc.stderr)
		r.Link("proc/"+strconv.Itoa(p.PID)+"/root", tc.root)
		var got []string
		for _, place := range (Input{Root: r.Root}).placesOf(p, p) {
			got = append(got, place.name)
		}
		equal(t, p.Name, tc.want, strings.Join(got, ", "))
	}
}

func TestInLog(t *testing.T) {
	text := func(pid int) string {
		return logHead + quoted + logTail + " namespace=k8s.io path=/run/a pid=" + strconv.Itoa(pid) + " runtime=x\n"
	}
	json := `{"level":"info","msg":"=== BEGIN goroutine stack dump ===\n` + quoted +
		`\n=== END goroutine stack dump ===","namespace":"k8s.io","pid":77,"time":"2026-11-20T03:00:00Z"}` + "\n"
	for _, tc := range []struct {
		name, log string
		shim      int
		found     bool
	}{
		{"of the daemon, after a shim's", text(77) + logged, 0, true},
		{"of a shim", logged + text(78) + text(77), 77, true},
		{"of a shim, JSON", logged + json, 77, true},
		{"of another shim", text(770), 77, false},
		{"the pid is cut", strings.TrimSuffix(text(770), "0 runtime=x\n"), 77, false},
		{"other records in it", text(77)[:120] + logged + text(77)[120:], 77, true},
		{"not quoted", logBegin + "\n" + dump + logEnd + "\n", 0, true},
		{"being written", logHead + quoted[:30], 0, false},
	} {
		want := map[bool]string{true: dump}[tc.found]
		equal(t, tc.name, want, string(inLog([]byte(tc.log), tc.shim)))
	}
}

// TestAsk has this test listen at the debug socket.
func TestAsk(t *testing.T) {
	socket := t.TempDir() + "/debug.sock"
	l, err := net.Listen("unix", socket)
	must(t, err)
	reply := dump
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RequestURI() != "/debug/pprof/goroutine?debug=2" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, reply)
	})}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	p := host.Process{PID: os.Getpid(), Name: "containerd", Sockets: []string{"/run/containerd.sock", socket}}
	in := Input{Root: "/"}
	if w, ok := in.ask(t.Context(), p); !ok || string(w.text) != dump || w.name != "debug socket "+socket {
		t.Errorf("ask() = %+v, %v", w, ok)
	}
	reply = dump[:len(dump)-10]
	if w, ok := in.ask(t.Context(), p); ok {
		t.Errorf("ask() for a dump that is cut = %+v", w)
	}
}

func TestFindShim(t *testing.T) {
	in := Input{Processes: []host.Process{
		{PID: 10, Role: host.RoleShim, ObjectID: "abcd1"},
		{PID: 11, Role: host.RoleShim, ObjectID: "abcd2"},
		{PID: 12, Role: host.RoleShim, ObjectID: "1111111111"},
		{PID: 13, Role: host.RoleShim, ObjectID: "e13"},
		{PID: 14, Role: host.RoleShim, ObjectID: "1111111112", State: 'Z'},
	}}
	for _, tc := range []struct {
		which string
		want  int
		err   string
	}{
		{"abcd2", 11, ""},
		{"13", 13, ""},
		{"1111", 12, ""},
		{"abcd", 0, "abcd fits several shims: 10, 11; give more of the id, or a pid"},
		{"e13", 0, "no shim on this host has the pid e13"},
		{"1", 0, "begins so (at least 4 letters)"},
	} {
		got, err := in.FindShim(tc.which)
		testkit.Failed(t, tc.which, err, tc.err)
		equal(t, tc.which, tc.want, got.PID)
	}
}

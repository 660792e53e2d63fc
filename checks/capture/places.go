package capture

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/safefile"
	"github.com/kdiag/kdiag/internal/lazyregexp"
	"github.com/kdiag/kdiag/journal/journalfile"
)

// A written is a dump and the file or log that holds it.
type written struct {
	name string
	text []byte // nil for none
	cut  string // why it is not whole
}

// A place is a file or log into which a process may write its dump.
type place struct {
	name string         // for people
	read func() written // returns the dump, as far as it was written since the place was made
}

// await reads the places, the best first, until one has a whole dump that no longer grows. When ctx ends it returns the
// longest, as cut.
func await(ctx context.Context, where []place) (written, bool) {
	sizes := make([]int, len(where))
	for over := false; ; {
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			over = true
		}
		var longest written
		for i, p := range where {
			w := p.read()
			whole, grows := isWhole(w.text), len(w.text) != sizes[i]
			if whole && (over || !grows) {
				return w, true
			}
			if sizes[i] = len(w.text); len(w.text) > len(longest.text) {
				longest = w
			}
			if whole {
				break // the next read is the last; other places would only cost memory
			}
		}
		if over {
			longest.cut = "it was not written to its end in time"
			return longest, longest.text != nil
		}
	}
}

// isWhole reports whether a dump ends with the file of a frame, or is longer than maxDump:
//
//	created by main.main in goroutine 1
//		/usr/src/main.go:12 +0x1d
func isWhole(dump []byte) bool {
	text := bytes.TrimRight(dump, "\n")
	last := text[bytes.LastIndexByte(text, '\n')+1:]
	return len(dump) > maxDump || len(text) < len(dump) && bytes.HasPrefix(last, []byte("\t"))
}

// dumpFiles has the folder and the pattern of the files into which daemons write dumps: containerd (dumpStacks in
// cmd/containerd/command/main.go), CRI-O (writeCrioGoroutineStacks in cmd/crio/main.go), and dockerd
// (setupDumpStackTrap in daemon/debugtrap_unix.go of moby).
var dumpFiles = map[string]struct{ dir, pattern string }{
	"containerd": {"/tmp", "containerd.PID.stacks.log"},
	"crio":       {"/tmp", "crio-goroutine-stacks-*.log"},
	"dockerd":    {"/var/run/docker", "goroutine-stacks-*.log"},
}

// placesOf returns the places of a process's dump: a daemon writes it into a file, containerd also into its log, and a
// shim into the log of its containerd.
func (in Input) placesOf(p, daemon host.Process) (list []place) {
	if p.Role == host.RoleShim {
		return in.log(daemon, p.PID)
	}
	if f, ok := dumpFiles[p.Name]; ok {
		list = in.files(p, f.dir, strings.Replace(f.pattern, "PID", strconv.Itoa(p.PID), 1))
	}
	if p.Name == "containerd" {
		list = append(list, in.log(p, 0)...)
	}
	return list
}

// proc returns a path below a process's folder in /proc.
func (in Input) proc(p host.Process, elem ...string) string {
	return filepath.Join(append([]string{in.Root, "proc", strconv.Itoa(p.PID)}, elem...)...)
}

// clockTick is the most that times of files, which move with the kernel's ticks, lag behind the clock.
const clockTick = 10 * time.Millisecond

// files returns the place of files in a folder of a process's mount namespace; none if the folder cannot be opened. A
// file counts if it is written from now on, belongs to the process's user and is not a link: anybody may make a file in
// /tmp.
func (in Input) files(p host.Process, dir, pattern string) []place {
	since, root := time.Now().Add(-clockTick), in.proc(p, "root")
	self, err := os.Stat(in.proc(p))
	if err != nil || crictl.InRoot(root, dir, func(string) error { return nil }) != nil {
		return nil
	}
	owner := func(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }
	return []place{{path.Join(dir, pattern), func() (w written) {
		_ = crictl.InRoot(root, dir, func(at string) error { // succeeded above
			names, err := filepath.Glob(filepath.Join(at, pattern))
			for _, name := range names {
				f, err := safefile.Open(name, unix.O_NOFOLLOW)
				if err != nil {
					continue
				}
				info, err := f.Stat()
				if err == nil && owner(info) == owner(self) && info.ModTime().After(since) {
					w = written{name: path.Join(dir, filepath.Base(name)), text: readFrom(f, 0)}
				}
				_ = f.Close() // was only read
			}
			return err
		})
		return w
	}}}
}

// readFrom reads a file from an offset on, at most maxDump+1 bytes.
func readFrom(f *os.File, offset int64) []byte {
	info, err := f.Stat()
	if err != nil || info.Size() <= offset {
		return nil
	}
	text := make([]byte, min(info.Size()-offset, maxDump+1))
	n, _ := f.ReadAt(text, offset)
	return text[:n]
}

// ask reads the dump of a containerd from its debug socket, if it has one, without a signal or a file. It is the socket
// with "debug" in its name among those that the daemon listens on: every guide calls it debug.sock.
func (in Input) ask(ctx context.Context, p host.Process) (written, bool) {
	i := slices.IndexFunc(p.Sockets, func(name string) bool { return strings.Contains(path.Base(name), "debug") })
	if i < 0 || p.Name != "containerd" {
		return written{}, false
	}
	in.say("ask %s for its goroutines on its debug socket %s", label(p), p.Sockets[i])
	w := written{name: "debug socket " + p.Sockets[i]}
	err := crictl.InRoot(in.proc(p, "root"), p.Sockets[i], func(at string) error {
		client := http.Client{Timeout: max(part(ctx, shimTimeout), pollEvery), Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", at)
			},
		}}
		resp, err := client.Get("http://containerd/debug/pprof/goroutine?debug=2")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		w.text, err = io.ReadAll(io.LimitReader(resp.Body, maxDump+1))
		return err
	})
	return w, err == nil && isWhole(w.text)
}

// log returns the place of a daemon's log, for a dump of the daemon, or of the shim with a pid other than 0; none if it
// is not found. The log is the daemon's standard error: a file or journald; below k3s a pipe, from which k3s copies
// into a file.
func (in Input) log(p host.Process, shim int) []place {
	at := in.proc(p, "fd/2")
	name, _ := os.Readlink(at)
	if strings.HasPrefix(name, "socket:") {
		since := time.Now()
		return []place{{"the journal", func() written {
			return written{name: "the journal", text: inLog(in.journal(p.PID, since), shim)}
		}}}
	}
	if strings.HasPrefix(name, "pipe:") && strings.HasSuffix(p.Config, "/agent/etc/containerd/config.toml") {
		name = path.Join(path.Dir(p.Config), "../../containerd/containerd.log")
		at = filepath.Join(in.proc(p, "root"), name)
	}
	info, err := os.Stat(at)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	return []place{{name, func() written {
		f, err := safefile.Open(at, 0)
		if err != nil {
			return written{name: name}
		}
		defer f.Close()
		return written{name: name, text: inLog(readFrom(f, info.Size()), shim)}
	}}}
}

// journal returns the text that a process logged to journald since then. journald splits a long line; each piece has
// _LINE_BREAK=line-max (systemd.journal-fields(7)).
func (in Input) journal(pid int, since time.Time) []byte {
	var text bytes.Buffer
	take := func(e *journalfile.Entry) bool {
		from, end := false, "\n"
		for label := range e.Labels() {
			from = from || string(label) == "_PID="+strconv.Itoa(pid)
			if string(label) == "_LINE_BREAK=line-max" {
				end = ""
			}
		}
		if from {
			text.Write(e.Message)
			text.WriteString(end)
		}
		return text.Len() <= maxDump
	}
	for _, dir := range []string{"run/log/journal", "var/log/journal"} {
		names, _ := journalfile.Find(filepath.Join(in.Root, dir))
		for _, name := range names {
			if f, err := journalfile.Open(name); err == nil {
				_, _ = f.Search(context.Background(), journalfile.Query{Since: uint64(since.UnixMicro())}, take)
				_ = f.Close() // was only read
			}
		}
	}
	return text.Bytes()
}

// The lines around a dump in a log (dumpStacks in cmd/containerd/command/main.go and pkg/shim/shim.go of containerd).
// The fields of a shim follow the second.
const (
	logBegin = "=== BEGIN goroutine stack dump ==="
	logEnd   = "=== END goroutine stack dump ==="
)

// inLog returns the first whole dump in the log of a daemon: its own, or that of the shim with a pid other than 0; nil
// for none. containerd copies the text of a shim from a pipe, and may log other records in between.
func inLog(log []byte, shim int) []byte {
	for {
		_, rest, ok := bytes.Cut(log, []byte(logBegin))
		if !ok {
			return nil
		}
		dump, after, whole := bytes.Cut(foreignRecord.ReplaceAll(rest, nil), []byte(logEnd))
		fields, _, ended := bytes.Cut(after, []byte("\n"))
		if whole && ended && shimPID(fields) == shim {
			return plain(dump)
		}
		log = rest
	}
}

// foreignRecord is a record as text or JSON. It is not part of a dump, in which each quote has a backslash before it.
var foreignRecord = lazyregexp.New(`(?:time="[^"\\]*" level=|\{"[a-z]+":)[^\n]*\n`)

// shimPID reads the pid in what follows a dump, as text or JSON; 0 for none:
//
//	" namespace=k8s.io path=/run/... pid=812 runtime=io.containerd.runc.v2
func shimPID(fields []byte) (pid int) {
	if m := pidField.FindSubmatch(fields); m != nil {
		pid, _ = strconv.Atoi(string(m[1]))
	}
	return pid
}

var pidField = lazyregexp.New(`[ ,"]pid"?[=:](\d+)`)

// plain undoes the quoting of a log line.
func plain(dump []byte) []byte {
	if text, err := strconv.Unquote(`"` + string(dump) + `"`); err == nil {
		dump = []byte(text)
	}
	return append(bytes.Trim(dump, "\n"), '\n')
}

package stacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// What one Read keeps. The daemons of a node have some hundred different stacks, each of which is kept once.
const (
	maxGoroutines = 150_000
	maxStackBytes = 8 << 20
	maxAddrBytes  = 6 << 20
	maxFrames     = 128    // of a stack; the Go runtime writes 100
	maxAddrs      = 16     // of a goroutine, from the innermost on
	leastAddr     = 0x1000 // the first page is never mapped
)

// ErrNoDump is returned for input without a goroutine dump.
var ErrNoDump = errors.New("no goroutine dump found")

// Read reads all dumps in r: a file or a log, as journalctl, syslog, Docker and CRI write it, compressed or not. What
// precedes, separates and follows the dumps is passed over. A dump that is cut, or too large to keep whole, is returned
// with Source.Cut set. The error is that of r or of ctx, or wraps ErrNoDump; dumps that were read before it are
// returned too.
func Read(ctx context.Context, name string, r io.Reader) ([]*Dump, error) {
	l := &log{
		name: name, seed: maphash.MakeSeed(),
		known: map[uint64]*Stack{}, addrs: map[uint64][]uint64{},
	}
	err := l.read(ctx, r)
	switch n := len(l.dumps); {
	case err != nil && n > 0:
		addCut(l.dumps[n-1], "reading stopped: "+err.Error())
	case err == nil && n == 0 && l.hint != "":
		err = fmt.Errorf("%w: %s", ErrNoDump, l.hint)
	case err == nil && n == 0:
		err = ErrNoDump
	}
	return l.dumps, err
}

// A log reads the input of one Read.
type log struct {
	name  string
	dumps []*Dump
	hint  string // why there may be no dump

	// What the dumps share.
	seed  maphash.Seed
	known map[uint64]*Stack                       // stacks, by the hash of their text without arguments
	addrs map[uint64][]uint64                     // by hash
	kept  struct{ goroutines, stacks, addrs int } // the last two in bytes

	unwrapper

	dump     *Dump  // the one being read; nil between dumps
	headless bool   // frames precede its first header
	inside   string // why its last goroutine is not whole
	lost     int    // of its goroutines
	bare     int    // of its goroutines have no addresses for lack of room
	program  string // of its main function

	open  bool // a goroutine is being read
	whole bool // all of it was read
	g     Goroutine
	text  []byte   // its frames without arguments, a line each: the function, and the number of the line in its file
	found []uint64 // the address that each of its frames was called on; 0 for none, and beyond maxAddrs
	named int      // of these are not 0
	call  []byte   // a line that waits for the line of its file; empty if none does
	with  []byte   // the arguments in that line
}

// header is the first line of a goroutine; GOTRACEBACK=system writes gp, m and mp too.
const header = `goroutine (\d{1,18})(?: gp=\S+ m=\S+(?: mp=\S+)?)? \[([^\s,\]][^\n]{0,200}?)\]:`

var headerLine = lazyregexp.New("^" + header + "$")

// line takes a line of a dump. Blanks before it do not matter: logs and pastes change them.
func (l *log) line(b []byte) {
	if len(b) >= maxLine {
		return
	}
	b = bytes.TrimPrefix(b, []byte(`\t`)) // the only escape of most lines
	if bytes.ContainsAny(b, `\#`) {
		b = []byte(escapes.Replace(string(b)))
	}
	b = bytes.TrimSpace(b)
	file, isFile := cutFile(b)
	switch {
	case len(b) == 0:
	case bytes.HasPrefix(b, []byte("goroutine ")):
		if m := headerLine.FindSubmatch(b); m != nil {
			l.goroutine(m)
		}
	case bytes.HasPrefix(b, []byte("=== BEGIN goroutine")), bytes.HasPrefix(b, []byte("=== END goroutine")),
		bytes.HasPrefix(b, []byte("SIGQUIT: ")):
		l.finish()
	case !l.open || l.whole:
		l.headless = l.headless || l.dump == nil && isFile
	case isFile:
		if len(l.call) > 0 {
			l.file(file)
		}
	case bytes.HasPrefix(b, []byte("created by ")):
		l.call = append(l.call[:0], b...)
	default:
		n := bytes.LastIndexByte(b, '(')
		if n > 0 && b[len(b)-1] == ')' && !bytes.ContainsAny(b[:n], " \"=") && len(l.found) < maxFrames {
			l.call = append(l.call[:0], b[:n]...)
			l.with = append(l.with[:0], b[n+1:len(b)-1]...)
		}
	}
}

// goroutine begins a goroutine at its header.
func (l *log) goroutine(m [][]byte) {
	l.close()
	if l.dump == nil {
		l.start()
	}
	l.open, l.whole = true, false
	l.text, l.found, l.named, l.call = l.text[:0], l.found[:0], 0, l.call[:0]
	state, rest, _ := strings.Cut(string(m[2]), ", ")
	state = strings.TrimSuffix(strings.TrimSuffix(state, " (durable)"), " (scan)")
	l.g = Goroutine{State: unique.Make(state).Value()}
	l.g.ID, _ = strconv.Atoi(string(m[1])) // has at most 18 digits
	for item := range strings.SplitSeq(rest, ", ") {
		if minutes, ok := strings.CutSuffix(item, " minutes"); ok {
			n, _ := strconv.ParseInt(minutes, 10, 32)
			l.g.Wait = time.Duration(n) * time.Minute
		}
	}
}

// start begins a dump.
func (l *log) start() {
	l.dump = &Dump{Source: l.source()}
	l.dumps = append(l.dumps, l.dump)
	l.lost, l.bare, l.program = 0, 0, ""
	if l.headless {
		l.headless = false
		addCut(l.dump, "its beginning is missing")
	}
}

// program matches the file of a main function in the layout of containerd, CRI-O, dockerd and Kubernetes.
var program = lazyregexp.New(`(?:^|/)cmd/([a-z][\w.-]*)/[^/]+\.go:`)

// file takes the second line of a frame.
func (l *log) file(file []byte) {
	if l.whole = bytes.HasPrefix(l.call, []byte("created by ")); l.whole {
		return
	}
	if l.g.State == "running" && len(l.text) == 0 && l.dump.Source.Goroutines > 0 {
		// The goroutine that writes a dump is its first, and alone has the state running and a stack.
		l.open = false
		l.finish()
		l.start()
		l.open = true
	}
	if string(l.call) == "main.main" {
		if m := program.FindSubmatch(file); m != nil {
			l.program = string(m[1])
		}
	}
	l.text = append(append(l.text, l.call...), ' ')
	l.text = append(append(l.text, file[bytes.LastIndexByte(file, ':')+1:]...), '\n')
	addr := uint64(0)
	if l.named < maxAddrs && hasAddress(l.call) {
		addr = address(l.with)
	}
	l.found, l.named = append(l.found, addr), l.named+int(min(addr, 1))
	l.call = l.call[:0]
}

// cutFile returns the file and the line number at the beginning of the second line of a frame. Behind them may be the
// offset in the function, and registers.
func cutFile(b []byte) (file []byte, ok bool) {
	file, _, _ = bytes.Cut(b, []byte(" "))
	n := bytes.LastIndexByte(file, ':')
	if n < 1 || n+1 == len(file) || len(file)-n > 10 || len(bytes.Trim(file[n+1:], "0123456789")) > 0 {
		return nil, false
	}
	switch name := string(file[:n]); filepath.Ext(name) {
	case ".go", ".s", ".c":
		return file, len(name) > 3
	default:
		return file, name == "??" || name == "<autogenerated>"
	}
}

// close ends the goroutine that is being read.
func (l *log) close() {
	if !l.open {
		return
	}
	l.open, l.inside = false, ""
	l.dump.Source.Goroutines++
	s := l.intern()
	// All but the first goroutine end with the function that started them.
	if !l.whole && !bytes.Contains(l.text, []byte("main.main ")) {
		l.inside = fmt.Sprintf("it ends inside goroutine %d", l.g.ID)
	}
	if s == nil || l.kept.goroutines >= maxGoroutines {
		l.lost++
		return
	}
	l.kept.goroutines++
	l.g.Stack, l.g.Addrs = s, l.addresses()
	l.dump.Goroutines = append(l.dump.Goroutines, l.g)
}

// finish ends the dump that is being read.
func (l *log) finish() {
	l.close()
	d := l.dump
	if d == nil {
		return
	}
	if l.inside != "" {
		addCut(d, l.inside)
	}
	if l.lost > 0 {
		addCut(d, fmt.Sprintf("%d goroutines are counted but not kept: too many, or too many different stacks", l.lost))
	}
	if l.bare > 0 {
		addCut(d, fmt.Sprintf("addresses of %d goroutines are not kept: too many", l.bare))
	}
	s := &d.Source
	isShim := strings.HasPrefix(l.program, shim) // it writes its dump into the log of containerd
	if s.Process == "" || isShim && s.Process != l.program {
		s.Process, s.PID = l.program, 0
	}
	if s.Role = roles[s.Process]; strings.HasPrefix(s.Process, shim) {
		s.Role = "shim"
	}
	l.dump = nil
}

// roles are the roles of a node's processes, by program.
var roles = map[string]string{
	"containerd": "runtime", "crio": "runtime", "dockerd": "runtime", "cri-dockerd": "runtime", "kubelet": "kubelet",
}

// shim begins the names of containerd's shims.
const shim = "containerd-shim"

// addCut adds a reason why a dump is not whole.
func addCut(d *Dump, why string) {
	if d.Source.Cut != "" {
		why = d.Source.Cut + "; " + why
	}
	d.Source.Cut = why
}

// intern returns the stack of the goroutine that is being read; nil if there is no room for another.
func (l *log) intern() *Stack {
	key := maphash.Bytes(l.seed, l.text)
	if s := l.known[key]; s != nil {
		return s
	}
	if l.kept.stacks > maxStackBytes {
		return nil
	}
	s := &Stack{}
	l.known[key] = s
	l.kept.stacks += 256 // with its place in the table
	for frame := range strings.Lines(string(l.text)) {
		call, number, _ := strings.Cut(strings.TrimSpace(frame), " ")
		name, err := url.PathUnescape(call) // Go escapes dots in the last element of an import path
		if err != nil {
			name = call
		}
		name = unique.Make(name).Value()
		line, _ := strconv.Atoi(number) // has at most 9 digits
		s.Frames = append(s.Frames, Frame{Func: name, Line: line})
		l.kept.stacks += 80 + len(name)
	}
	return s
}

// hasAddress reports whether the first argument of a function, by its escaped name, tells objects apart: the receiver
// of a method, or the lock of a function of package sync.
func hasAddress(name []byte) bool {
	pkg, rest, _ := bytes.Cut(name[bytes.LastIndexByte(name, '/')+1:], []byte("."))
	return string(pkg) == "sync" || bytes.HasPrefix(rest, []byte("(")) ||
		bytes.IndexByte(rest, '.') >= 0 && !bytes.Contains(rest, []byte(".func"))
}

// addresses returns the addresses of the goroutine being read, the same slice for equal ones.
func (l *log) addresses() []uint64 {
	for n := len(l.found); n > 0 && l.found[n-1] == 0; n-- {
		l.found = l.found[:n-1]
	}
	if len(l.found) == 0 {
		return nil
	}
	var h maphash.Hash
	h.SetSeed(l.seed)
	for _, addr := range l.found {
		maphash.WriteComparable(&h, addr)
	}
	if same, ok := l.addrs[h.Sum64()]; ok {
		return same
	}
	if l.kept.addrs += 8*len(l.found) + 48; l.kept.addrs > maxAddrBytes {
		l.bare++
		return nil
	}
	l.addrs[h.Sum64()] = slices.Clone(l.found)
	return l.addrs[h.Sum64()]
}

// address returns the first argument of a call if it is an address: 0xc000012340?, ...
func address(args []byte) uint64 {
	first, _, _ := bytes.Cut(args, []byte(", "))
	addr, err := strconv.ParseUint(string(bytes.TrimSuffix(bytes.Trim(first, "{}"), []byte("?"))), 0, 64)
	if err != nil || addr < leastAddr {
		return 0
	}
	return addr
}

package redact

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// Names are the pseudonyms of one Redactor: kind-number, by first appearance.
type names struct {
	mu    sync.Mutex
	as    map[string]string // by name; empty for one of New that was not seen yet
	given map[string]bool   // known from New, or shaped like nothing but a name: replaced in any text
	last  map[string]int    // number by kind
}

// longLine is the length from which on a line is cut for pseudonyms.
const longLine = 64 << 10

// maxNames bounds the memory for pseudonyms; new names from then on are KIND-0.
const maxNames = 1 << 17

// kinds are the fields that hold names, in lower case without underscores.
var kinds = map[string]string{
	"namespace": "ns", "podnamespace": "ns", "io.kubernetes.pod.namespace": "ns",
	"pod": "pod", "podname": "pod", "io.kubernetes.pod.name": "pod",
	"node": "host", "nodename": "host", "hostname": "host", "host": "host",
	"container": "container", "containername": "container", "io.kubernetes.container.name": "container",
	"image": "image", "imageref": "image", "imagename": "image", "sandboximage": "image",
	"name": "", // replaced if it is known
}

// inPath are the segments of paths of the API before a name.
var inPath = map[string]string{"namespaces": "ns", "pods": "pod", "nodes": "host", "leases": "host"}

// protected are words that stay wherever they are: kdiag judges by them, or they are on every cluster.
var protected = words(`default kube-system kube-public kube-node-lease kube-proxy kube-apiserver kube-scheduler
	kube-controller-manager etcd coredns containerd containerd-shim containerd-shim-runc-v2 kubelet runc crun crio
	cri-o conmon dockerd docker cri-dockerd systemd systemd-journald init pause node container containers pod pods
	image images sandbox runtime network volume kernel journal true false null none unknown running exited created
	ready notready unix service socket mount scope slice target localhost error info warning debug token password
	status health healthy system server client worker master control-plane linux amd64 arm64 task tasks shim plugin
	plugins process command timeout deadline k8s.io moby`)

func words(s string) map[string]bool {
	all := map[string]bool{}
	for w := range strings.FieldsSeq(s) {
		all[w] = true
	}
	return all
}

func newNames(given []string) *names {
	n := &names{as: map[string]string{}, given: map[string]bool{}, last: map[string]int{}}
	for _, name := range given {
		kind, rest, ok := strings.Cut(name, "=")
		if !ok {
			rest = name
		}
		if rest == "" || protected[rest] {
			continue
		}
		if n.as[rest] = ""; ok {
			n.as[rest] = n.issue(kind)
		}
		n.given[rest] = len(rest) >= 5 || strings.ContainsAny(rest, "-.0123456789") && len(rest) >= 4
	}
	return n
}

// issue returns the next pseudonym of a kind.
func (n *names) issue(kind string) string {
	if len(n.as) >= maxNames {
		return kind + "-0"
	}
	n.last[kind]++
	return fmt.Sprintf("%s-%d", kind, n.last[kind])
}

// issued matches a pseudonym.
var issued = lazyregexp.New(`^(?:host|ns|pod|container|image|ip|user|name)-\d+$`)

// of returns the pseudonym of a name that stands in a field of a kind.
func (n *names) of(kind string, text []byte) string {
	name := string(text)
	n.mu.Lock()
	defer n.mu.Unlock()
	as, known := n.as[name]
	if as != "" || protected[name] || kind == "" && !known || issued.MatchString(name) {
		return as
	}
	as = n.issue(cmp.Or(kind, "name"))
	if !known && len(n.as) < maxNames {
		n.given[name] = len(name) >= 6 && strings.ContainsAny(name, "-.") && strings.ContainsAny(name, "0123456789")
	}
	if known || len(n.as) < maxNames {
		n.as[name] = as
	}
	return as
}

// isKnown reports whether a word is a name, which it need not be in every text.
func (n *names) isKnown(word []byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, known := n.as[string(word)]
	return known && !protected[string(word)]
}

// anywhere returns the pseudonym of a word of a text, if it is surely a name.
func (n *names) anywhere(word []byte) string {
	if len(word) < 4 {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.given[string(word)] {
		return ""
	}
	if n.as[string(word)] == "" {
		n.as[string(word)] = n.issue("name")
	}
	return n.as[string(word)]
}

// A pseudonymizer replaces names and addresses in the text that is written to it, a line at a time.
type pseudonymizer struct {
	dst   io.Writer
	names *names
	yaml  bool
	buf   []byte
	out   []byte
	count int
	line  []byte
	done  int // of line
}

// Write takes text without secrets.
func (w *pseudonymizer) Write(b []byte) (int, error) {
	w.buf = append(w.buf, b...)
	end := 0
	if feed := bytes.LastIndexByte(b, '\n'); feed >= 0 {
		end = len(w.buf) - len(b) + feed + 1
	} else if len(w.buf) > longLine {
		end = 1 + max(bytes.LastIndexAny(w.buf, ",{}"), len(w.buf)/2) // a line of no end
	}
	return len(b), w.replace(end)
}

// replace writes buf[:end] with pseudonyms.
func (w *pseudonymizer) replace(end int) error {
	w.out = w.out[:0]
	for line := range bytes.Lines(w.buf[:end]) {
		w.line, w.done = line, 0
		w.words()
		w.out = append(w.out, line[w.done:]...)
	}
	_, err := w.dst.Write(w.out)
	w.buf = append(w.buf[:0], w.buf[end:]...)
	return err
}

// put replaces line[s:e], unless that is done.
func (w *pseudonymizer) put(s, e int, as string) bool {
	if as == "" || s < w.done {
		return false
	}
	w.out = append(append(w.out, w.line[w.done:s]...), as...)
	w.done = e
	w.count++
	return true
}

var (
	syslogHost = lazyregexp.New(`^(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.+-]+Z?) ([\w.-]+) ` +
		`[\w./-]+(?:\[\d+\])?: `)
	logPath = lazyregexp.New(`^/var/log/(?:pods/([a-z0-9-]+)_([a-z0-9.-]+)_[\w-]+(?:/([\w.-]+))?|` +
		`containers/([a-z0-9.-]+)_([a-z0-9-]+)_([\w.-]+)-[0-9a-f]{8,64})`)
	pathKinds   = []string{"ns", "pod", "container", "pod", "ns", "container"}
	fieldValue  = lazyregexp.New(`^((?:\\*["'])?)(\s*[:=]\s*)((?:\\*["'])?)([A-Za-z0-9][\w.@:/-]*)`)
	segmentName = lazyregexp.New(`^/([a-z0-9][a-z0-9.-]*)`)
	podUID      = lazyregexp.New(`^[0-9a-f]{32}$|^[0-9a-f]{8}-[0-9a-f]{4}-`)
	dashedIP    = lazyregexp.New(`^ip-\d+-\d+-\d+-\d+$`)
	quotedName  = lazyregexp.New(`^ \\*["']([a-z0-9][a-z0-9.-]*)\\*["']`)
	pairedName  = lazyregexp.New(`^[/_]([a-z0-9][a-z0-9.-]*)`)
	versionHead = lazyregexp.New(`(?i)(?:[a-z0-9]/|(?:version|release)[ "'=:(\\]*)$`)
)

// words replaces the names of the line.
func (w *pseudonymizer) words() {
	b := w.line
	if len(b) > 4 && (b[3] == ' ' || b[4] == '-') {
		if m := syslogHost.FindSubmatchIndex(b[:min(len(b), 256)]); m != nil {
			w.put(m[2], m[3], w.names.of("host", b[m[2]:m[3]]))
		}
	}
	for i := 0; i < len(b); i++ {
		if !nameByte(b[i]) {
			if b[i] == '/' && bytes.HasPrefix(b[i:], []byte("/var/log/")) {
				w.path(i)
			}
			continue
		}
		from := i
		for i < len(b) && nameByte(b[i]) {
			i++
		}
		if from > 0 && b[from-1] == '\\' && (from-len(bytes.TrimRight(b[:from], `\`)))%2 == 1 {
			if from++; b[from-1] == 'u' { // the n of \n, and \u0000
				from += 4
			}
		}
		if from < i && from >= w.done {
			w.word(from, i)
		}
		i = max(i, w.done) - 1
	}
}

// word replaces line[from:to] if it is a name or an address, and the value behind it if it is a key.
func (w *pseudonymizer) word(from, to int) {
	word, rest := w.line[from:to], w.line[to:]
	var lower [32]byte
	if n := copy(lower[:], word); n == len(word) {
		for i, c := range lower[:n] {
			if c >= 'A' && c <= 'Z' {
				lower[i] += 'a' - 'A'
			}
		}
		if kind, ok := kinds[string(lower[:n])]; ok && (w.field(kind, to) || w.quoted(kind, to)) {
			return
		}
		if kind := inPath[string(lower[:n])]; kind != "" && w.segment(kind, to) {
			return
		}
	}
	if hexadecimal(word[0]) && w.address(from) {
		return
	}
	if len(rest) > 0 && (rest[0] == '/' || rest[0] == ':') { // of an image
		end := to
		for end < len(w.line) && (nameByte(w.line[end]) || bytes.IndexByte([]byte("/:@_"), w.line[end]) >= 0) {
			end++
		}
		image := bytes.TrimRight(w.line[from:end], ".:/")
		if w.put(from, from+len(image), w.names.anywhere(image)) {
			return
		}
	}
	if w.pair(from, to) {
		return
	}
	word = bytes.TrimRight(word, ".-")
	as := w.names.anywhere(word)
	if as == "" && dashedIP.Match(word) {
		as = w.names.of("host", word)
	}
	if w.put(from, from+len(word), as) {
		return
	}
	for part := range bytes.SplitSeq(word, []byte(".")) { // of a DNS name
		if len(part) < len(word) {
			w.put(from, from+len(part), w.names.anywhere(part))
		}
		from += len(part) + 1
	}
}

// field replaces the value behind a key that ends at i.
func (w *pseudonymizer) field(kind string, i int) bool {
	m := fieldValue.FindSubmatchIndex(w.line[i:min(len(w.line), i+512)])
	if m == nil {
		return false
	}
	if sign := string(w.line[i+m[4] : i+m[5]]); m[3] == 0 && m[6] == m[7] && sign != ":" &&
		strings.TrimSpace(sign) == ":" && !(w.yaml && w.keyBegins(i)) {
		return false // a sentence
	}
	from, to := i+m[8], i+m[9]
	value := w.line[from:to]
	if kind == "image" || kind == "" {
		return w.put(from, to, w.names.of(kind, value))
	}
	if ns, pod, ok := bytes.Cut(value, []byte("/")); ok && (kind == "pod" || kind == "ns") { // pod="ns/name"
		w.put(from, from+len(ns), w.names.of("ns", ns))
		kind, from, value = "pod", from+len(ns)+1, pod
	}
	value = bytes.TrimRight(value, ".:@/-")
	if _, err := netip.ParseAddr(string(value)); err == nil || len(value) == 0 || bytes.ContainsAny(value, "/:@") {
		return false
	}
	w.put(from, from+len(value), w.names.of(kind, value))
	return true
}

// quoted replaces the name in quotes behind the word for its kind that ends at i: namespace "shop".
func (w *pseudonymizer) quoted(kind string, i int) bool {
	m := quotedName.FindSubmatchIndex(w.line[i:min(len(w.line), i+256)])
	return m != nil && w.put(i+m[2], i+m[3], w.names.of(kind, w.line[i+m[2]:i+m[3]]))
}

// pair replaces line[from:to] and the words behind it where they are names, also short ones: shop/db, and db_shop in
// the names that Docker gives to containers.
func (w *pseudonymizer) pair(from, to int) (found bool) {
	for w.names.isKnown(w.line[from:to]) {
		m := pairedName.FindSubmatchIndex(w.line[to:min(len(w.line), to+256)])
		next := m != nil && w.names.isKnown(w.line[to+m[2]:to+m[3]])
		if !next && !found {
			break
		}
		found = w.put(from, to, w.names.of("", w.line[from:to]))
		if !next {
			break
		}
		from, to = to+m[2], to+m[3]
	}
	return found
}

// segment replaces the name in a path of the API behind line[:i]. Folders of the kubelet are UIDs, and stay.
func (w *pseudonymizer) segment(kind string, i int) bool {
	m := segmentName.FindSubmatchIndex(w.line[i:min(len(w.line), i+256)])
	if m == nil || podUID.Match(w.line[i+m[2]:i+m[3]]) {
		return false
	}
	w.put(i+m[2], i+m[3], w.names.of(kind, w.line[i+m[2]:i+m[3]]))
	return true
}

// keyBegins reports whether only blanks are before the word that ends at i in its line.
func (w *pseudonymizer) keyBegins(i int) bool {
	word := bytes.TrimLeft(w.line[:i], " \t-_")
	return !bytes.ContainsFunc(word, func(r rune) bool { return r > 127 || !nameByte(byte(r)) })
}

// path replaces the names in the path of a container's log at i.
func (w *pseudonymizer) path(i int) {
	m := logPath.FindSubmatchIndex(w.line[i:min(len(w.line), i+1<<10)])
	for k := 2; k < len(m); k += 2 {
		if m[k] >= 0 {
			w.put(i+m[k], i+m[k+1], w.names.of(pathKinds[k/2-1], w.line[i+m[k]:i+m[k+1]]))
		}
	}
}

// address replaces an IP address that begins at i. Loopback, 0.0.0.0, :: and masks stay, and versions.
func (w *pseudonymizer) address(i int) bool {
	to := i
	for to < min(len(w.line), i+64) && (w.line[to] == ':' || w.line[to] == '.' || hexadecimal(w.line[to])) {
		to++
	}
	word, rest := bytes.TrimRight(w.line[i:to], ".:"), w.line[to:]
	colons, dots := bytes.Count(word, []byte(":")), bytes.Count(word, []byte("."))
	switch {
	case dots < 3 && (colons < 2 || len(word) < 6), len(rest) > 0 && (nameByte(rest[0]) || rest[0] == '_'):
		return false
	case colons < 2 && versionHead.Match(w.line[max(0, i-16):i]):
		return false
	case colons == 1: // of a port
		word, _, _ = bytes.Cut(word, []byte(":"))
	}
	a, err := netip.ParseAddr(string(word))
	if err != nil || a.IsLoopback() || a.IsUnspecified() || a.Is4() && (a.As4()[0] == 255 || a.As4()[0] == 0) {
		return err == nil
	}
	w.put(i, i+len(word), w.names.of("ip", []byte(a.String())))
	return true
}

func hexadecimal(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// nameByte reports whether c may be part of a name or an address of the fourth version.
func nameByte(c byte) bool { return letterOrDigit(c) || c == '-' || c == '.' }

package redact

import (
	"bytes"
	"cmp"
	"io"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// pieceSize is how much of a text is read at once. A longer line is cut behind a blank or an escaped line feed; the
// rules see its pieces one by one.
const pieceSize = 256 << 10

// A text is a text that is read piece by piece, with what lines before left for the next ones.
type text struct {
	level Level
	dst   io.Writer
	out   []byte
	count int

	drop    dropper
	word    bool  // a secret without blanks goes on
	section *Rule // of TOML: its values are secrets
	unit    *Rule // the line before ended in a variable of a unit, and goes on

	// The line that is looked at.
	line    []byte
	fresh   bool // the line begins here, else the piece
	partial bool // the line goes on in the next piece
	edits   []edit
}

// A dropper returns how many bytes of a line belong to a secret that began in a line before, and whether the next line
// may belong to it too.
type dropper func(line []byte) (n int, more bool)

// An edit replaces line[s:e].
type edit struct {
	s, e int
	with string
}

// copy copies src to dst.
func (t *text) copy(src io.Reader) error {
	buf := make([]byte, 0, 4<<10)
	t.fresh = true
	for {
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, min(4*cap(buf), pieceSize)), buf...)
		}
		n, err := src.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == nil && len(buf) < pieceSize {
			continue
		}
		end := len(buf)
		if err == nil {
			end = cut(buf)
		}
		t.out = t.out[:0]
		t.piece(buf[:end], err == nil)
		if _, werr := t.dst.Write(t.out); werr != nil {
			return werr
		}
		buf = buf[:copy(buf, buf[end:])]
		if err != nil && err != io.EOF {
			return err
		}
		if err != nil {
			return nil
		}
	}
}

// cut returns how much of b is a piece.
func cut(b []byte) int {
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
		return i + 1
	}
	half := b[len(b)/2:]
	for _, end := range []string{`\n`, " "} {
		if i := bytes.LastIndex(half, []byte(end)); i >= 0 {
			return len(b) - len(half) + i + len(end)
		}
	}
	return len(b)
}

// piece redacts lines. More of the last one follows if it has no line feed and more is set.
func (t *text) piece(b []byte, more bool) {
	for len(b) > 0 {
		if t.drop == nil && t.section == nil && t.unit == nil && !t.word {
			hit := matcher().first(b)
			if hit < 0 {
				t.out = append(t.out, b...)
				t.fresh = b[len(b)-1] == '\n'
				return
			}
			start := bytes.LastIndexByte(b[:hit], '\n') + 1
			t.out = append(t.out, b[:start]...)
			t.fresh = t.fresh || start > 0
			b = b[start:]
		}
		line, rest, feed := bytes.Cut(b, []byte("\n"))
		t.line, t.partial = line, more && !feed
		t.redact()
		if t.fresh = feed; feed {
			t.out = append(t.out, '\n')
			t.word = false
		}
		b = rest
	}
}

// redact redacts the line.
func (t *text) redact() {
	if t.drop != nil {
		n, more := t.drop(t.line)
		if !more {
			t.drop = nil
		}
		if t.line = t.line[n:]; more || n > 0 && len(t.line) == 0 {
			return
		}
	}
	if t.word {
		n := bareEnd(t.line)
		t.word = n == len(t.line)
		t.line = t.line[n:]
	}
	t.edits = t.edits[:0]
	if unit := t.unit; unit != nil {
		t.unit = nil
		t.variables(unit, 0)
	}
	if t.section != nil {
		t.value()
	}
	a, state := matcher(), uint16(0)
	for i, c := range t.line {
		state = a.next[state][a.class[c]&63]
		if !a.found[state] {
			continue
		}
		for _, h := range a.hits[state] {
			if s := i + 1 - h.length; !t.covered(s) && (!h.rule.Strict || t.level == Strict) {
				h.rule.apply(t, s, i+1)
			}
		}
	}
	t.write()
}

// covered reports whether one of the last edits removes the byte at i.
func (t *text) covered(i int) bool {
	return slices.ContainsFunc(t.edits[max(0, len(t.edits)-4):], func(e edit) bool { return e.s <= i && i < e.e })
}

// mark matches the mark of an earlier removal.
var mark = lazyregexp.New(`^\W*\[redacted:[a-z0-9-]+`)

// remove replaces line[s:e] by the mark of a rule, between quotes.
func (t *text) remove(rule *Rule, s, e int, quote string) {
	if s > e || mark.Match(t.line[s:min(e, s+128)]) {
		return
	}
	t.edits = append(t.edits, edit{s, e, quote + "[redacted:" + rule.ID + "]" + strings.TrimLeft(quote, " ")})
	t.word = t.word || t.partial && e == len(t.line) && t.drop == nil
}

// write writes the line with its edits; where some overlap, with the first.
func (t *text) write() {
	slices.SortFunc(t.edits, func(a, b edit) int { return cmp.Or(a.s-b.s, b.e-a.e) })
	done, last := 0, -1
	for _, e := range t.edits {
		if e.s >= done && e.s > last {
			t.out = append(append(t.out, t.line[done:e.s]...), e.with...)
			t.count++
		}
		done, last = max(done, e.e), e.s
	}
	t.out = append(t.out, t.line[done:]...)
}

func letterOrDigit(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func keyByte(c byte) bool { return letterOrDigit(c) || c == '_' || c == '-' || c == '.' }

package textlog

import (
	"bytes"
	"strconv"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// separators matches the lines that stand between records: remarks of journalctl, the head of the files of klog, heads
// of kubectl's tables, and marks of omissions.
var separators = lazyregexp.New(`^(?:-- .* --|-- (?:cursor: |Logs begin at |Journal begins at ).*|[-\t |+]{2,}` +
	`|Log file created at: .*|Running on machine: .*|Binary: Built with .*|Log line format: .*` +
	`|(?:Events|Conditions): *(?:<none>)?|[A-Z]\w* .* Reason .*Message|[\[(<]?(?:\.{3,4}|…|snip)[\])>]?)$`)

// dated matches a date with a time.
var dated = lazyregexp.New(`(\d{4})[-/]\d\d[-/]\d\d \d\d:`)

// separator reports whether a line separates records, and reads the year that it may state. Of
// "-- Logs begin at ..., end at ... --" the last year counts: the records are nearer to it.
func (s *scanner) separator(line []byte) bool {
	line = bytes.TrimSpace(line)
	likely := len(line) > 0 && len(line) <= 400 &&
		(bytes.IndexByte([]byte("-|+LRBEC.[(<\xe2s"), line[0]) >= 0 || bytes.HasSuffix(line, []byte("Message")))
	if !likely || !separators.Match(line) {
		return false
	}
	if years := dated.FindAllSubmatch(line, -1); len(years) > 0 && s.stats.HeaderYear == 0 {
		s.stats.HeaderYear, _ = strconv.Atoi(string(years[len(years)-1][1]))
	}
	return true
}

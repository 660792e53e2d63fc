// Package textlog reads logs that are text: files, pipes and pastes, of the kubelet, the runtime, the kernel and of
// kubectl describe, whatever stands in front of the lines. It unpacks them, puts wrapped and split records together, takes
// prefixes and escapes off, and finds out by whom and when a record was written. What a record means is not its
// business: it is told which texts are worth a look (Options.Next) and passes over all others at the speed of that test.
//
// A line begins a record if it has a beginning that the package knows. Any other line continues the record before it, so
// that goroutine dumps, and lines that a terminal or a web page has wrapped, stay together. Before the first
// beginning, each line is a record of its own, with the lines behind one that bears a literal which stand further right. A
// record of JSON or of a table may hold several: an export is given record by record.
//
// How lines are joined: Where one of Options.Next's literals is cut by the end of a line, the join that makes it whole is
// taken. Else, lines that break at the same column are joined as they are (a terminal's wrap); a number, duration or id in
// the middle of which the line breaks is closed; and what remains is joined by one blank (a wrap at words). Lines behind a
// tab, and those of a dump, keep their line feed.
//
// Dates are not completed here: a [github.com/kdiag/kdiag/journal/klog.Stamp] says which parts were written.
package textlog

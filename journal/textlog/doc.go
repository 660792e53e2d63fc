// Package textlog reads logs that are text: files, pipes and pastes of the kubelet, the runtime, the kernel and of
// kubectl, whatever precedes the lines. It unpacks them, joins wrapped and split records, removes prefixes and
// escapes, and finds out who wrote a record and when. It does not know what a record means: Options.Next finds the
// literals that matter, and records without one are passed over at the speed of that search.
//
// A line begins a record if parseHead recognises its beginning. Any other line continues the record before it, so
// that goroutine dumps, and lines that a terminal or a web page has wrapped, stay together. Before the first beginning
// each line is a record, with the lines behind one that contains a literal and are indented more.
//
// Lines are joined in this order: where the end of a line cuts a literal, the join that makes it whole is taken.
// Lines that break at the same column are joined without a blank (the wrap of a terminal). So are a word, number,
// duration or id that the line end cuts. Other lines are joined by one blank (a wrap at words). Lines behind a tab, and
// lines of a dump, keep their line feed.
//
// To add a format, let parseHead return a head for it, with the text behind it and what it states, and add a line to
// testdata/prefixes.txt.
//
// Dates are not completed here: a [github.com/kdiag/kdiag/journal/klog.Stamp] states which parts were written.
package textlog

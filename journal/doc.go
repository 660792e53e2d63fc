// Package journal turns the logs of a node into a [Report]: episodes in which the kubelet's PLEG was not healthy,
// with their beginning, end and worst age, and how often each known kind of record was seen. It judges nothing: why
// an incident happened is decided in package checks, from [Episode.Context].
//
// A log takes five forms. A source (systemd's journal files, text of any kind, a pipe) gives records. Package
// signature finds the matches among them: unhealthy records are kept one by one, all others are counted in bursts.
// When all sources are read, a calendar for each resolves the stamps of its matches into instants, since most stamps
// lack a year or a zone. The unhealthy records of a host form stalls and episodes. Report has these, and the counts
// and events of everything else.
//
// Terms. The age is stated in a record: how long ago PLEG was last seen active. The anchor is the time of the record
// minus the age: when the last good relist began. All records of one stall have the same anchor, so it joins what a
// clock step, daylight saving or a late flush tears apart, and it keeps two short stalls apart that follow each other
// closely.
//
// The packages journalfile, textlog and klog read formats, package signature has the wording of log lines. Nothing
// here writes to a stream, and journalctl runs only where a journal has a format that journalfile does not know.
package journal

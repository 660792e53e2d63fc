// Package journal turns the logs of a node into a [Report]: stretches of time in which the kubelet's PLEG was not
// healthy, with their beginning, end, worst age and likely causes, and what else the logs tell of the same time.
//
// The way of a record: sources (systemd's journal files, text of any kind, pipes) give records; the signatures turn
// the few that matter into compact hits; the stamps of all hits of a source are resolved together into instants,
// because most stamps lack a year or a zone; hits that say "PLEG is not healthy" become stalls and episodes; what
// lies around an episode becomes its causes.
//
// Terms. The age is what a record states: how long ago PLEG was last seen active. The anchor is the time of the
// record minus the age: when the last good relist began. All records of one stall have the same anchor, so it joins
// what a clock step, daylight saving or a late flush tears apart, and it tells two short stalls from one long one.
//
// Reading formats is left to the packages journalfile, textlog and klog, the wording of log lines to package
// signature. Nothing here writes to a stream, and journalctl runs only where a journal has a format that journalfile
// does not know.
package journal

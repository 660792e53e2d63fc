package textlog

import (
	"strconv"
	"time"

	"github.com/kdiag/kdiag/journal/klog"
)

func stampYear(s klog.Stamp) int { return time.UnixMicro(s.Micros).UTC().Year() }

// field takes a field of the journal (systemd.journal-fields(7)) into a record. MESSAGE is the caller's.
func (r *Record) field(name, value string) {
	switch name {
	case "__REALTIME_TIMESTAMP":
		if v, err := strconv.ParseInt(value, 10, 64); err == nil && v > 0 {
			r.Outer = klog.Stamp{Micros: v, Known: true, Year: true, Zone: true}
		}
	case "__MONOTONIC_TIMESTAMP":
		if v, err := strconv.ParseInt(value, 10, 64); err == nil && v > 0 {
			r.Monotonic = v
		}
	case "_HOSTNAME":
		r.Host = value
	case "SYSLOG_IDENTIFIER":
		r.Identifier = value
	case "_COMM":
		if r.Identifier == "" {
			r.Identifier = value
		}
	case "_SYSTEMD_UNIT":
		if r.Unit == "" {
			r.Unit = value
		}
	case "UNIT": // systemd itself, about a unit
		r.Unit = value
	case "_PID":
		r.PID, _ = strconv.Atoi(value)
	case "SYSLOG_PID":
		if r.PID == 0 {
			r.PID, _ = strconv.Atoi(value)
		}
	case "_BOOT_ID":
		r.Boot = value
	case "_TRANSPORT":
		r.Kernel = value == "kernel"
	case "PRIORITY":
		if p, err := strconv.Atoi(value); err == nil && r.Severity == 0 {
			r.Severity = severityOfPriority(p)
		}
	}
}

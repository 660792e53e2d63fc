package host

import (
	"math"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
)

// A unitProperty is one of a service's properties (org.freedesktop.systemd1(5)).
type unitProperty struct {
	of, name string // interface and name
}

func unitProperties() []unitProperty {
	return []unitProperty{
		{"Unit", "LoadState"},
		{"Unit", "ActiveState"},
		{"Unit", "SubState"},
		{"Unit", "StateChangeTimestamp"}, // µs since 1970
		{"Unit", "UnitFileState"},
		{"Service", "Result"},
		{"Service", "NRestarts"}, // since systemd 235
		{"Service", "MainPID"},
		{"Service", "ExecMainStatus"},
		{"Service", "WatchdogUSec"},
		{"Service", "TasksMax"},
		{"Service", "LimitNOFILE"},
	}
}

// newUnit makes a Unit of what systemd said. What is missing or of another type stays empty.
func newUnit(name string, properties map[string]any) Unit {
	text := func(name string) string {
		s, _ := properties[name].(string)
		return short(s)
	}
	limit := func(name string) uint64 { // infinity is the largest number there is
		n, _ := properties[name].(uint64)
		if n == math.MaxUint64 {
			return 0
		}
		return n
	}
	u := Unit{
		Name: name, Load: text("LoadState"), Active: text("ActiveState"), Sub: text("SubState"), Result: text("Result"),
		Enabled: text("UnitFileState"), TasksMax: limit("TasksMax"), FilesMax: limit("LimitNOFILE"),
	}
	const century = uint64(100*365*24*time.Hour) / uint64(time.Microsecond)
	if since := limit("StateChangeTimestamp"); since > 0 && since < math.MaxInt64 {
		u.Since = time.UnixMicro(int64(since))
	}
	u.Watchdog = time.Duration(min(limit("WatchdogUSec"), century)) * time.Microsecond
	if n, ok := properties["NRestarts"].(uint32); ok {
		u.Restarts = int(n)
	}
	if n, ok := properties["MainPID"].(uint32); ok {
		u.MainPID = int(n)
	}
	if n, ok := properties["ExecMainStatus"].(int32); ok {
		u.ExitStatus = int(n)
	}
	return u
}

// idleness ranks units for the same purpose: the lower, the more likely it is this host's. One that runs, or is about to, comes before
// one that failed, one that starts at boot, one that is only installed, and one that is masked.
func (u *Unit) idleness() int {
	switch {
	case u.Load != "loaded":
		return 4
	case u.Active == "failed":
		return 1
	case u.Active != "inactive":
		return 0
	case u.Enabled == "enabled":
		return 2
	}
	return 3
}

// A listedUnit is a line of ListUnits, with fields in the order of the message.
type listedUnit struct {
	Name, Description, Load, Active, Sub, Following string
	Object                                          dbus.ObjectPath
	JobID                                           uint32
	JobType                                         string
	Job                                             dbus.ObjectPath
}

// countUnits counts the scopes, and what is loaded though nothing of it runs: where transient units leak, those pile up
// (systemd before 247).
func countUnits(units []listedUnit) (scopes, inactive int) {
	for _, u := range units {
		if strings.HasSuffix(u.Name, ".scope") {
			scopes++
		}
		if u.Load == "loaded" && u.Active == "inactive" && u.Sub == "dead" {
			inactive++
		}
	}
	return scopes, inactive
}

// short bounds what another process says of itself.
func short(s string) string { return strings.ToValidUTF8(s[:min(len(s), 128)], "") }

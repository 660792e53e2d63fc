package host

import "time"

// Systemd is what the service manager says over D-Bus.
type Systemd struct {
	Answered bool
	Took     time.Duration // until its first answer
	Hung     bool          // no answer in time

	// The same over the system bus, which runc and the kubelet ask by. Where systemd answers on its own socket and not
	// there, the message bus is what hangs. Both are false where there is no bus.
	BusAnswered bool
	BusHung     bool

	Version  string
	State    string // running, degraded, starting, ...
	Units    int    // names loaded
	Counted  bool   // Scopes and Inactive are known: not where there are too many units to list
	Scopes   int    // of them, scopes: containers, under the systemd cgroup driver
	Inactive int    // loaded, inactive and dead: left over where systemd leaks
	Jobs     int
	Kubelet  *Unit // nil when there is none
	Runtime  *Unit
}

// A Unit is a service.
type Unit struct {
	Name       string    // kubelet.service
	Load       string    // loaded, not-found, masked, ...
	Active     string    // active, activating, failed, inactive
	Sub        string    // running, auto-restart, dead, ...
	Result     string    // success, exit-code, watchdog, oom-kill, start-limit-hit, ...
	Since      time.Time // of the state; zero when not known
	Restarts   int
	MainPID    int
	ExitStatus int           // of the last main process
	Watchdog   time.Duration // WatchdogSec; 0 for none
	TasksMax   uint64        // 0 for no limit
	FilesMax   uint64        // LimitNOFILE
	Enabled    string        // UnitFileState
}

package gc

import "time"

// A Failed is a victim of which it cannot be said that it was removed, and why. What was asked for and not answered is
// here too, and says so.
type Failed struct {
	ID    string `json:"id"`
	Error string `json:"error"`
}

// A Result is what became of a plan.
type Result struct {
	Removed int       `json:"removed"` // confirmed by the runtime and, with an audit file, on the disk
	Skipped []Skipped `json:"skipped"`
	Failed  []Failed  `json:"failed"`
	Left    int       `json:"left"` // not tried, because the run was stopped
	// Stopped says why the run ended before the plan was done; empty when it was.
	Stopped string `json:"stopped,omitempty"`
	// Stuck are the pods whose removals were not answered, while those of others were or might have been.
	Stuck []Stuck `json:"stuck,omitempty"`
	// LogsFailed are the containers that were removed and whose log files were not.
	LogsFailed []Failed `json:"logsFailed,omitempty"`
	Pauses     int      `json:"pauses"`      // how often the run stood still for the runtime's sake
	Most       int      `json:"concurrency"` // the most removals at a time
	*Speed
}

// A Speed is how fast a run went.
type Speed struct {
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"perSecond"` // removals by seconds
}

// A Report is the GCReport of kdiag's JSON, without apiVersion, kind and generatedAt. A dry run has removed nothing,
// and has no Speed.
type Report struct {
	DryRun bool `json:"dryRun"`
	Plan   Plan `json:"plan,omitzero"` // absent when there is none
	Result
}

// A Progress is the state of a run, for a person who waits.
type Progress struct {
	Total, Removed, Skipped, Failed int
	InFlight                        int
	Concurrency                     int           // removals that may run at a time; 0 during a pause
	Paused                          string        // why the run stands still; empty when it does not
	PerSecond                       float64       // over the whole run so far
	TimeLeft                        time.Duration // at that rate; 0 when it cannot be said
	Probe, Quiet                    time.Duration // the side probe's last answer, and a slow one of the quiet runtime
}

package checks

// KindCanaryReport is the kind of the document of kdiag canary.
const KindCanaryReport = "CanaryReport"

// A CanaryReport is the answer of kdiag canary.
type CanaryReport struct {
	Header
	Runtime   Runtime      `json:"runtime"`
	Summary   string       `json:"summary"`             // one sentence
	Network   string       `json:"network"`             // host or cni
	Image     string       `json:"image,omitempty"`     // that was run
	SandboxID string       `json:"sandboxID,omitempty"` // of the last attempt
	Attempts  int          `json:"attempts"`            // 0: none; above 1: the earlier ones were stopped
	Seconds   float64      `json:"seconds"`             // of all steps
	Steps     []CanaryStep `json:"steps"`               // of the last attempt, in order
	CleanedUp bool         `json:"cleanedUp"`           // nothing of it is left in the runtime
	Left      []string     `json:"left,omitempty"`      // sandboxes that are left
	Earlier   []string     `json:"earlierRemoved,omitempty"`
}

// A CanaryStep is one timed call of a canary.
type CanaryStep struct {
	Name    string  `json:"name"` // of the RPC
	Seconds float64 `json:"seconds"`
	Status  Status  `json:"status"` // warning is slow
	Error   string  `json:"error,omitempty"`
	Skipped string  `json:"skipped,omitempty"` // why it was

	Hung bool `json:"-"`
}

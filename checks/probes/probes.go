// Package probes reads the host, the kubelet and the runtime for kdiag node and kdiag pleg. Each probe measures one
// thing into facts.Node; one that hangs is left behind. Probes judge nothing.
package probes

import (
	"slices"
	"time"
)

// The time that probes get. Reading /proc takes milliseconds; a disk that is throttled takes seconds for a write and is
// to be measured, not given up; systemd and children get what a person would wait.
const (
	quickLook  = 2 * time.Second
	patientOne = 5 * time.Second
)

// populationID is what most looks at processes begin with.
const populationID = "host.population"

// Probes returns every look at the node besides the runtime's socket and the logs. docs/checks.md describes them.
func Probes() []Probe {
	return slices.Concat(processProbes(), resourceProbes(), limitProbes(), kubeletProbes())
}

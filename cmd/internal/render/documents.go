package render

import (
	"io"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/journal"
)

// A Version is the document of kdiag version.
type Version struct {
	checks.Header
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
	Revision  string `json:"revision,omitempty"` // commit that it was built from, where the Go command knew it
	// CommittedAt is when that commit was made, RFC 3339.
	CommittedAt string `json:"committedAt,omitempty"`
	CRI         string `json:"criAPI,omitempty"` // version of k8s.io/cri-api that it is built with
}

// PrintVersion prints the answer of kdiag version.
func PrintVersion(w io.Writer, v *Version, o Options) error {
	line := "kdiag " + v.KdiagVersion + " (" + v.GoVersion + ", " + v.Platform + ", CRI v1 of cri-api " + v.CRI + ")"
	return write(w, o, view{v, func(p *page) { p.put(plain(line)) }, func(m briefLine) string {
		return m.cut(line)
	}})
}

// An Error is the document of a command that ended without another: bad usage, or an error of kdiag itself.
type Error struct{ checks.Header }

// PrintError prints an Error as JSON or YAML. For a person there is a message on standard error.
func PrintError(w io.Writer, e *Error, o Options) error { return write(w, o, view{doc: e}) }

// Documents returns a value of each document that kdiag prints, by its kind.
func Documents() map[string]any {
	return map[string]any{
		checks.KindReport: checks.Report{}, checks.KindRuntimeProbe: checks.RuntimeProbe{},
		checks.KindRelistBenchmark: comparedBenchmark{}, checks.KindCanaryReport: checks.CanaryReport{},
		"ExitedCensus": ExitedCensus{}, "GCReport": GCReport{}, "ReproductionReport": ReproductionReport{},
		"Advisory": advisoryDoc{}, "AdvisoryList": advisoriesDoc{},
		"KubeletSettings": settingsDoc{}, checks.KindFleetReport: checks.FleetReport{},
		"JournalReport": journal.Report{}, "CauseDefinition": definitionDoc{}, "CauseDefinitionList": definitionsDoc{},
		checks.KindHistory: checks.History{}, checks.KindCaptureList: checks.CaptureList{},
		checks.KindStacksReport: checks.StacksReport{},
		bundle.KindManifest:     WrittenBundle{}, "Version": Version{}, "Error": Error{},
	}
}

// Package bundle writes and reads archives of evidence: tar, compressed with zstd or gzip, with a manifest as its last
// file. Writing streams, redacts and stays below a size; reading refuses hostile archives.
package bundle

import (
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/redact"
)

// KindManifest is the kind of the document manifest.json in an archive.
const KindManifest = "BundleManifest"

// ManifestName is its path in the archive. It is the last file.
const ManifestName = "manifest.json"

// Paths of the files that kdiag reads again.
const (
	FactsName  = "facts.json"  // facts.Input, from which a report can be made anew
	ReportName = "report.json" // the report of kdiag node
	ExitedName = "exited.json" // ExitedCensus
	LogsDir    = "logs/"       // journal export format: kubelet.export, runtime.export, kernel.export
	StacksDir  = "stacks/"     // goroutine dumps, and sources.json with a checks.StackSource by file name
)

// SourcesName is the path of the file that describes the dumps: a JSON object of checks.StackSource by file name,
// without the folder.
const SourcesName = StacksDir + "sources.json"

// BeforeSuffix ends the names of dumps that were taken a little before another one of the process.
const BeforeSuffix = "-before.txt"

// A Manifest lists the files of an archive, and the parts that could not be collected.
type Manifest struct {
	checks.Header
	Redact       redact.Level `json:"redact"`
	Files        []File       `json:"files"`
	NotCollected []Missing    `json:"notCollected"`
}

// A File is one file of an archive.
type File struct {
	Path        string    `json:"path"`
	Bytes       int64     `json:"bytes"`
	SHA256      string    `json:"sha256"`
	Source      string    `json:"source"` // where it comes from: a path, a command of systemd, a request
	Redactions  int       `json:"redactions"`
	Cut         string    `json:"cut,omitempty"` // why it is not whole
	CollectedAt time.Time `json:"collectedAt"`
}

// A Missing is what could not be collected, and why.
type Missing struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

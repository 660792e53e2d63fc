package kubelet

import (
	"os"
	"path/filepath"
	"time"

	"github.com/kdiag/kdiag/crictl/proc"
	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// A Pull is a part of an image that containerd receives.
type Pull struct {
	Bytes int64     // received so far
	Last  time.Time // when the last of them came; of none, when the part was asked for
}

// ingest finds the file that containerd receives a part into (plugins/content/local in containerd).
var ingest = lazyregexp.New(`/io\.containerd\.content\.v1\.content/ingest/[0-9a-f]+/data$`)

// ReadPulls returns the parts of images that a runtime receives, by the files that it has open: what it left behind
// before it was restarted is not among them. Of CRI-O and Docker there are none.
func ReadPulls(root string, pid int) (pulls []Pull, _ error) {
	dir := filepath.Join(proc.Dir(root, pid), "fd")
	files, err := os.ReadDir(dir)
	for _, file := range files {
		name := filepath.Join(dir, file.Name())
		if target, err := os.Readlink(name); err != nil || !ingest.MatchString(target) {
			continue
		}
		if info, err := os.Stat(name); err == nil {
			pulls = append(pulls, Pull{info.Size(), info.ModTime()})
		}
	}
	return pulls, err
}

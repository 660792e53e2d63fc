package journal

import (
	"strings"

	"github.com/kdiag/kdiag/journal/signature"
)

// A limitRule accuses a resource that ran out by words that any program uses: it matters whose they are.
type limitRule struct {
	cause, code     string
	confidence      float64
	summary, others string // of the runtime's or kubelet's own trouble; of anyone's
}

func limitRules() []limitRule {
	return []limitRule{
		{
			"DiskFull", signature.DiskFull, 0.75, "A file system that the runtime or the kubelet writes to is full.",
			"A file system was full; the log does not show that the runtime or the kubelet uses it.",
		},
		{
			"FilesExhausted", signature.FilesExhausted, 0.7, "The runtime, a shim or the kubelet has run out of file descriptors.",
			"A process has run out of file descriptors; the log does not show that the runtime did.",
		},
	}
}

// limitCauses look for full disks and used-up file descriptors.
func limitCauses(c *caseFile) []*suspect {
	var out []*suspect
	for _, r := range limitRules() {
		v := c.byCode[r.code]
		if v == nil {
			continue
		}
		concern, kubelet := c.concern(v)
		s := accuse(r.cause, tierHost, r.confidence, r.summary)
		switch {
		case concern:
		case kubelet > 1:
			s.because("the kubelet itself says so")
		case kubelet == 1:
			s.Confidence, s.Summary = lateConfidence, r.others
			s.against("the kubelet says so in a single record, which tells of no file of the runtime")
		default:
			s.Confidence, s.Summary = 0.3, r.others
			s.against("another program says so, of no file of the runtime or the kubelet")
		}
		s.because(c.says(r.code))
		c.timing(s, r.code)
		out = append(out, s)
	}
	return out
}

// concern reports whether records of a limit are the runtime's or a shim's, tell of a file that these or the kubelet
// write, or of the whole node; and how many are the kubelet's.
func (c *caseFile) concern(v *seen) (runtime bool, kubelet int64) {
	for _, b := range v.bursts {
		d := c.f.pool.detailOf(b.detail)
		s := c.f.pool.subjectOf(b.subject)
		switch {
		case d.Role == RoleRuntime, d.Role == RoleShim, d.Role == RoleOCI, d.Everywhere, s.Kind == "Filesystem" && ofRuntime(s.ID):
			runtime = true
		case d.Role == RoleKubelet:
			kubelet += int64(b.count)
		}
	}
	return runtime, kubelet
}

// ofRuntime reports whether a path is where runtimes and kubelets keep their files.
func ofRuntime(p string) bool {
	for _, dir := range []string{
		"/var/lib/containers", "/var/lib/containerd", "/var/lib/docker", "/var/lib/kubelet", "/var/lib/rancher", "/var/snap/microk8s",
		"/run", "/var/run", "/var/log/pods", "/var/log/containers",
	} {
		if p == dir || strings.HasPrefix(p, dir+"/") {
			return true
		}
	}
	return false
}

package causes

import (
	"fmt"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
)

// shortCause builds the cause for file systems that are short of something.
func shortFinding(f *facts.Facts, noun string, inodes bool) *Finding {
	short := facts.ShortOf(f, inodes)
	if len(short) == 0 {
		return nil
	}
	var e checks.Evidence
	for _, s := range short[:min(len(short), facts.MaxRelated)] {
		addEvidence(s, &e, inodes)
	}
	missing(f.Seen.Settings, &e, "the kubelet's eviction thresholds; its defaults are assumed")
	missing(f.Seen.Spaces, &e, "space of every file system")
	main := short[0]
	step := checks.Certain
	summary := fmt.Sprintf("the file system of %s is short of %s: %s", main.Name(), noun, main.Left(inodes))
	switch {
	case main.Err != "":
		summary = fmt.Sprintf("a write to the file system of %s is refused: %s", main.Name(), facts.Clean(main.Err))
	case main.Full:
		summary = fmt.Sprintf("the file system of %s has no %s left: %s", main.Name(), noun, main.Left(inodes))
	default:
		step = checks.Strong
		summary += ", and the kubelet evicts pods below " + main.Below
	}
	c := newFinding(main.Severity(), step, summary, e)
	c.Subject = new(main.Subject())
	for _, s := range short[1:min(len(short), facts.MaxRelated+1)] {
		c.Related = append(c.Related, s.Subject())
	}
	return c
}

func addEvidence(s facts.Shortage, e *checks.Evidence, inodes bool) {
	total := s.Space.Size
	if inodes {
		total = s.Space.Inodes
	}
	if total > 0 {
		Addf(&e.For, "%s: %s", s.Name(), s.Left(inodes))
	}
	if s.Err != "" {
		Addf(&e.For, "a timed write of 4 KiB there got: %s", facts.Clean(s.Err))
	} else if s.Full && s.Written && !inodes {
		Addf(&e.Against, "timed writes there went through, from what is reserved for root perhaps (ext4 keeps 5 %%)")
	}
	if s.Signal != "" {
		Addf(&e.For, "below the kubelet's %s<%s: it says DiskPressure, evicts pods, and takes no new ones", s.Signal, s.Below)
	}
	if len(s.Space.Folders) > 0 {
		Addf(&e.For, "on it lie %s", facts.FoldersLine(s.Space.Folders))
	}
}

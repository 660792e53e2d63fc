package causes

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/journal/signature"
)

// InodesExhausted is the code of this cause.
const InodesExhausted = "InodesExhausted"

var inodesExhausted = Definition{
	Code:      InodesExhausted,
	Claims:    []string{"host.inodes"},
	Recognise: recogniseInodesExhausted,
}

func recogniseInodesExhausted(f *facts.Facts) *Finding {
	c := shortFinding(f, "inodes", true)
	if c == nil {
		return nil
	}
	logEvidence(f, &c.Evidence, signature.DiskFull)
	main := f.Disk.ShortInodes[0]
	c.Advise = func(string) []checks.NextStep {
		var s Steps
		folder := main.Folder()
		s.Add(checks.TouchesNothing, "df -i "+folder+"; df -h "+folder, "Inodes or space?")
		s.Add(checks.TouchesNothing, "ionice -c3 du --inodes -x --max-depth=3 "+folder+" | sort -n | tail -n 20", "Where are the files? It reads every directory: minutes on a large disk.")
		s.Add(checks.TouchesNothing, facts.KdiagCommand(f, "gc-exited"), "The plan for dead containers beyond the newest: what may go, and why.")
		s.Add(checks.TouchesScheduler, `kubectl cordon "$(hostname)"`, "No new pod should be placed here while no file can be made.")
		return s.Done()
	}
	return c
}

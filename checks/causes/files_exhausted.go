package causes

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// FilesExhausted is the code of this cause.
const FilesExhausted = "FilesExhausted"

var filesExhausted = Definition{
	Code:      FilesExhausted,
	Claims:    []string{"host.files"},
	Recognise: recogniseFilesExhausted,
	FromLog: exhausted(0.7, "The runtime, a shim or the kubelet has run out of file descriptors.",
		signature.FilesExhausted),
}

func recogniseFilesExhausted(f *facts.Facts) *Finding {
	l, system := f.Limits.Node, f.Seen.Files.Value.System
	hoarders := f.Usage.Files
	severity, whole := facts.Rank(l, facts.Used(system))
	if !whole && len(hoarders) == 0 {
		return nil
	}
	var e checks.Evidence
	summary := ""
	var subjects []checks.Subject
	if whole {
		summary = "the node has nearly all files open that it may: " + facts.UsageText(system)
		Addf(&e.For, "open files of the node against fs.file-max: %s", facts.UsageText(system))
		subjects = append(subjects, checks.Subject{Kind: "Node", Name: "open files"})
	}
	for _, p := range hoarders {
		s, _ := facts.Rank(l, facts.Used(p.Usage))
		severity = facts.Worse(severity, s)
		line := fmt.Sprintf("%s (pid %d), the %s, has %s files open", facts.Clean(p.Name), p.PID,
			facts.Clean(string(p.Role)), facts.UsageText(p.Usage))
		summary = cmp.Or(summary, line)
		if p.Hard > p.Max {
			line += "; its soft limit may be raised to " + units.Number(p.Hard)
		}
		Addf(&e.For, "%s", line)
		subjects = append(subjects, checks.Subject{Kind: "Process", ID: strconv.Itoa(p.PID), Name: facts.Clean(p.Name)})
	}
	logEvidence(f, &e, signature.FilesExhausted)
	missing(f.Seen.Files, &e, "open files of every process that matters")
	c := newFinding(severity, checks.Certain, summary, e)
	c.Subject, c.Related = &subjects[0], subjects[1:]
	c.Advise = func(string) []checks.NextStep {
		var s Steps
		for _, p := range hoarders {
			if p.PID <= 1 {
				continue
			}
			s.Add(checks.TouchesNothing,
				fmt.Sprintf("ls -l /proc/%d/fd | awk '{print $NF}' | sed 's/[0-9]*//g' | sort | uniq -c | sort "+
					"-rn | head", p.PID), "What are they: sockets, pipes, or files of what? A restart takes this "+
					"evidence.")
			if p.Hard > p.Max {
				s.Add(checks.TouchesProcess, fmt.Sprintf("prlimit --pid %d --nofile=%d:%d", p.PID, p.Hard, p.Hard),
					"Raises the soft limit of the running process. Nothing restarts; a leak goes on.")
			}
			if p.Role == host.RoleRuntime {
				addCapture(f, &s)
				addRestart(f, &s)
			}
		}
		s.Add(checks.TouchesNothing, "cat /proc/sys/fs/file-nr", "Open files of the node, and their limit.")
		return s.Done()
	}
	return c
}

package causes

import (
	"strconv"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/journal/signature"
)

// FilesExhausted is the code of this cause.
const FilesExhausted = "FilesExhausted"

func loggedFilesExhausted(in *Incident) *Finding {
	return in.exhausted("The runtime, a shim or the kubelet has run out of file descriptors.",
		signature.FilesExhausted)
}

func recogniseFilesExhausted(f *facts.Facts) *Finding {
	l, system, consumers := f.Limits.Node, f.Seen.Files.Value.System, f.Usage.Files
	severity, whole := facts.Rank(l, facts.Used(system))
	if !whole && len(consumers) == 0 {
		return nil
	}
	var e checks.Evidence
	var subjects []checks.Subject
	if whole {
		Addf(&e.For, "open files of the node are near fs.file-max: %s", facts.UsageText(system))
		subjects = append(subjects, ofNode("open files"))
	}
	for _, p := range consumers {
		s, _ := facts.Rank(l, facts.Used(p.Usage))
		severity = facts.Worse(severity, s)
		Addf(&e.For, "%s (pid %d) has %s files open", facts.Clean(p.Name), p.PID, facts.UsageText(p.Usage))
		subjects = append(subjects, checks.Subject{Kind: "Process", ID: strconv.Itoa(p.PID), Name: p.Name})
	}
	summary := e.For[0]
	logEvidence(f, &e, signature.FilesExhausted)
	return newFinding(severity, checks.Certain, summary, e, subjects...).advise(func(s *Steps, _ string) {
		for _, p := range consumers {
			if p.PID <= 1 {
				continue
			}
			s.Look(textf("ls -l /proc/%d/fd | awk '{print $NF}' | sed 's/[0-9]*//g' | sort | uniq -c | sort -rn "+
				"| head", p.PID), "Count open sockets, pipes and files by kind; a restart destroys this evidence.")
			if p.Hard > p.Max {
				s.Add(checks.TouchesLimit, textf("prlimit --pid %d --nofile=%d:%d", p.PID, p.Hard, p.Hard),
					"Raises the soft limit of the running process, without a restart; a leak continues.")
			}
			if p.Role == host.RoleRuntime {
				addCapture(f, s)
				addRestart(f, s)
			}
		}
		s.Look("cat /proc/sys/fs/file-nr", "Compare the open files of the node with the limit.")
	})
}

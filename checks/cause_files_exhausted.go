package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

func filesExhausted() Definition {
	return Definition{
		Code:  codeFilesExhausted,
		Title: "the runtime, the kubelet or the node is at its limit of open files",
		Means: "\"too many open files\". Each connection, pipe, log and watch is a descriptor, and RLIMIT_NOFILE (LimitNOFILE of the unit) is a limit of each process. A runtime at its limit takes the connection, since the kernel does " +
			"that, and cannot serve it: calls hang or fail at random. A snapshotter beside it may keep a lock for good when an open fails: the node stays Ready and starts no pod (containerd/containerd#13798).\n\n" +
			"A number that only grows is a leak, and a restart buys time. fs.file-max is for the node as a whole; root may go beyond it, and everything else fails.",
		Confirm: []string{
			"ls /proc/PID/fd | wc -l; grep 'open files' /proc/PID/limits: near the soft limit?",
			"ls -l /proc/PID/fd | awk '{print $NF}' | sed 's/[0-9]*//g' | sort | uniq -c | sort -rn | head: sockets, pipes, or files of what?",
			"cat /proc/sys/fs/file-nr: open, unused, limit of the node.",
		},
		Fix: []string{
			"See what the descriptors are before the restart takes the evidence.",
			"Raise the soft limit of the running process: prlimit --pid PID --nofile=SOFT:HARD. Nothing restarts.",
			"LimitNOFILE in the unit, then a restart of the runtime; containers of containerd and CRI-O survive it.",
			"A leak: the release in which it is fixed.",
		},
		Mistaken: "InotifyExhausted: the same words (\"too many open files\") when a watch is created, with few descriptors open. RuntimeHung: a deadlock looks alike from outside; the count of descriptors tells.",
		Sources: []string{
			"getrlimit(2): RLIMIT_NOFILE; kernel: Documentation/admin-guide/sysctl/fs.rst (file-max, file-nr)",
			"containerd/containerd#13798, awslabs/soci-snapshotter#1826 (out of descriptors, lock kept)",
		},
		RootOf: []string{
			codeRuntimeHung, codeRuntimeNotReady, codeRuntimeSlow, codeImageServiceHung, codeInspectHang, codeKubeletDown, codeKubeletCrashLooping,
			codeAPIServerUnreachable,
		},
		recognise: recogniseFilesExhausted,
	}
}

// filesExhaustedExplains reports whether the process that fails is the one at its limit.
func filesExhaustedExplains(f *Facts, consequence string) bool {
	if used(f.seen().Files.Value.System) >= f.nodeLimits().LimitCritical {
		return true
	}
	role := host.RoleRuntime
	switch consequence {
	case codeKubeletDown, codeKubeletCrashLooping, codeAPIServerUnreachable:
		role = host.RoleKubelet
	}
	return slices.ContainsFunc(f.fileHoarders(), func(p host.ProcessFiles) bool { return p.Role == role })
}

// fileHoarders returns the processes that are near their limit of open files, the nearest first.
func (f *Facts) fileHoarders() []host.ProcessFiles {
	var out []host.ProcessFiles
	for _, p := range f.seen().Files.Value.Processes {
		if used(p.Usage) >= f.nodeLimits().LimitWarning {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b host.ProcessFiles) int { return cmp.Compare(used(b.Usage), used(a.Usage)) })
	return out
}

func recogniseFilesExhausted(f *Facts) *Cause {
	l, system := f.nodeLimits(), f.seen().Files.Value.System
	hoarders := f.fileHoarders()
	severity, whole := l.rank(used(system))
	if !whole && len(hoarders) == 0 {
		return nil
	}
	var e Evidence
	summary := ""
	var subjects []Subject
	if whole {
		summary = "the node has nearly all files open that it may: " + usage(system)
		addf(&e.For, "open files of the node against fs.file-max: %s", usage(system))
		subjects = append(subjects, Subject{Kind: "Node", Name: "open files"})
	}
	for _, p := range hoarders {
		s, _ := l.rank(used(p.Usage))
		severity = worse(severity, s)
		line := fmt.Sprintf("%s (pid %d), the %s, has %s files open", clean(p.Name), p.PID, clean(string(p.Role)), usage(p.Usage))
		summary = or(summary, line)
		if p.Hard > p.Max {
			line += "; its soft limit may be raised to " + units.Number(p.Hard)
		}
		addf(&e.For, "%s", line)
		subjects = append(subjects, Subject{Kind: "Process", ID: strconv.Itoa(p.PID), Name: clean(p.Name)})
	}
	f.heard(&e, signature.FilesExhausted)
	f.seen().Files.missing(&e, "open files of every process that matters")
	c := newCause(codeFilesExhausted, severity, Certain, summary, e)
	c.Subject, c.Related = &subjects[0], subjects[1:]
	var s steps
	for _, p := range hoarders {
		if p.PID <= 1 {
			continue
		}
		s.add(TouchesNothing, fmt.Sprintf("ls -l /proc/%d/fd | awk '{print $NF}' | sed 's/[0-9]*//g' | sort | uniq -c | sort -rn | head", p.PID), "What are they: sockets, pipes, or files of what? A restart takes this evidence.")
		if p.Hard > p.Max {
			s.add(TouchesProcess, fmt.Sprintf("prlimit --pid %d --nofile=%d:%d", p.PID, p.Hard, p.Hard), "Raises the soft limit of the running process. Nothing restarts; a leak goes on.")
		}
		if p.Role == host.RoleRuntime {
			f.addCapture(&s)
			f.addRestart(&s)
		}
	}
	s.add(TouchesNothing, "cat /proc/sys/fs/file-nr", "Open files of the node, and their limit.")
	c.NextSteps = s.done()
	return c
}

package causes

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// HardwareFault is the code of this cause.
const HardwareFault = "HardwareFault"

const (
	// manyCorrected is how many corrected errors announce that a part fails: mcelog takes a page out of use after ten
	// in a day (mcelog.conf, memory-ce-threshold).
	manyCorrected = 10
	// repeated is from how many records on a device fails again and again, and not by accident.
	repeated = 3
	// stillFaulty is the maximum age of the last record of a device that fails now. Retries of a disk take up to three
	// minutes (30 s a try), and a program that met an error tries again.
	stillFaulty = 5 * time.Minute
)

// A fault is one part of the hardware that fails, by the kernel's log.
type fault struct {
	severity checks.Severity
	step     float64
	summary  string
	subject  checks.Subject
	code     string // of the records
	against  string
	look     [2]string // a command and why
}

func recogniseHardwareFault(f *facts.Facts) *Finding {
	if !f.Log.Read || f.Target.Simulated {
		return nil
	}
	all := slices.Concat(brokenDisks(f), brokenMemory(f), brokenCards(f), brokenGPUs(f))
	if len(all) == 0 {
		return nil
	}
	rank := func(x fault) int { return ifElse(x.severity == checks.Critical, 0, 1) }
	slices.SortStableFunc(all, func(a, b fault) int { return rank(a) - rank(b) })
	var e checks.Evidence
	var subjects []checks.Subject
	var codes []string
	for _, x := range top(all) {
		subjects = append(subjects, x.subject)
		addIf(x.against != "", &e.Against, "%s", x.against)
		if !slices.Contains(codes, x.code) {
			codes = append(codes, x.code)
		}
		addIf(x.summary != all[0].summary, &e.For, "%s", x.summary)
	}
	logEvidence(f, &e, codes...)
	main := all[0]
	return newFinding(main.severity, main.step, main.summary+andMore(len(all)-1, "fault"), e, subjects...).
		advise(func(s *Steps, _ string) {
			for _, x := range top(all) {
				s.Look(x.look[0], x.look[1])
			}
			s.Look("journalctl --no-pager -k --since -1h -p err | tail -n 50", "Read the kernel's errors of the last hour.")
			s.addNodeIf(main.severity == checks.Critical, "Only to find out if the part comes back; replace what failed.")
		})
}

// brokenDisks returns the disks that fail: those of the node from the first error, and others once they fail again and
// again. What nobody on the node needs, such as a stick, is left out.
func brokenDisks(f *facts.Facts) (all []fault) {
	for _, d := range facts.FailedDisks(f, signature.BlockIOError) {
		name := facts.Clean(d.Name)
		x := fault{
			severity: checks.Warning, step: checks.Certain, code: signature.BlockIOError,
			subject: checks.Subject{Kind: "Disk", Name: name},
			summary: textf("the kernel reports %s of disk %s", units.Count(d.Count, "I/O error"), name),
			look: [2]string{
				"journalctl --no-pager -k --since -1h | grep -iE 'I/O error|medium error|timeout, |nvme|ata[0-9]' | tail -n 50",
				"Check which disk fails, and if it goes on.",
			},
		}
		isMade := strings.HasPrefix(name, "dm-") || strings.HasPrefix(name, "md") // of other disks
		switch {
		case facts.Needed(d.Folders):
			x.summary += ", below " + facts.FoldersLine(d.Folders)
			if facts.WritesGoOn(f, d.Folders) {
				x.against = "timed writes into " + facts.Clean(d.Folders[0].Path) + " come back without an error"
			} else if len(f.Disk.Failing) > 0 || facts.Fresh(f, d.Last, stillFaulty) && d.Count >= repeated {
				x.severity = checks.Critical
			}
		case isMade && !f.Seen.Disks.OK: // pleg does not read what lies on it
			x.step = checks.Strong
		case d.Count < repeated: // a stick, or the volume of a pod
			continue
		case name == "":
			x.subject, x.step = ofNode("disks"), checks.Strong
			x.summary = textf("the kernel reports %s of a disk", units.Count(d.Count, "I/O error"))
		default:
			x.step = checks.Strong
			x.summary += ifElse(f.Seen.Spaces.OK, ", on which no folder of the node lies", "")
		}
		switch {
		case isMade && facts.Safe(name):
			x.look = [2]string{"lsblk -s -o NAME,TYPE,SIZE,MODEL,SERIAL /dev/" + name, "List the disks that it is made of."}
		case facts.Safe(name):
			x.look = [2]string{"smartctl -H -A /dev/" + name, "Ask the disk itself how it is (smartmontools)."}
		}
		all = append(all, x)
	}
	return all
}

// brokenMemory returns failed memory, CPUs and buses.
func brokenMemory(f *facts.Facts) []fault {
	x := fault{
		severity: checks.Warning, step: checks.Certain, subject: ofNode("memory"), code: signature.HardwareError,
		look: [2]string{
			"grep -s . /sys/devices/system/edac/mc/mc*/ue_count /sys/devices/system/edac/mc/mc*/ce_count " +
				"/sys/devices/system/edac/mc/mc*/dimm*/dimm_label",
			"Count the errors of each memory controller.",
		},
	}
	if c := facts.Logged(f, signature.HardwareError); c != nil {
		fatal := facts.Says(c.Example+" "+c.Latest, "fatal", "machine check exception")
		hit := slices.ContainsFunc(c.Subjects, func(s journal.SubjectCount) bool {
			return s.Kind == "Process" && journal.TaskRole(s.Name) != journal.RoleOther
		})
		if fatal || hit || c.Count >= repeated {
			x.severity = checks.Critical
		}
		x.summary = textf("the kernel reports %s that the hardware could not correct%s",
			units.Count(int(c.Count), "error"), namedBy(c, " of "))
		x.subject.Name = ifElse(namedBy(c, "") == "", "memory", namedBy(c, ""))
		return []fault{x}
	}
	if c := facts.Logged(f, signature.HardwareErrorCorrected); c != nil && c.Count >= manyCorrected {
		x.code, x.step = signature.HardwareErrorCorrected, checks.Strong
		x.summary = textf("the hardware corrected %s%s: a part may be about to fail", units.Count(int(c.Count), "error"),
			namedBy(c, " of "))
		return []fault{x}
	}
	return nil
}

// namedBy returns what records name most often, after a word; empty where they name nothing.
func namedBy(c *journal.Count, word string) string {
	if len(c.Subjects) == 0 {
		return ""
	}
	return word + facts.Clean(cmp.Or(c.Subjects[0].Name, c.Subjects[0].ID))
}

// brokenCards returns network cards that stopped sending, or whose link comes and goes.
func brokenCards(f *facts.Facts) (all []fault) {
	add := func(code, what string, from int64, severity checks.Severity) {
		c := facts.Logged(f, code)
		if c == nil || c.Count < from {
			return
		}
		name := namedBy(c, "")
		x := fault{
			severity: severity, step: checks.Certain, code: code, subject: ofNode("network card"),
			summary: textf("the network card%s %s %s", namedBy(c, " "), what, units.Times(int(c.Count))),
			look:    [2]string{"ip -s link", "Compare errors and drops of the cards."},
		}
		if facts.Safe(name) {
			x.subject.Name = name
			x.look = [2]string{"ip -s link show " + name + "; ethtool " + name, "Check link, errors and drops of the card."}
		}
		all = append(all, x)
	}
	stuck := facts.Logged(f, signature.NICError)
	add(signature.NICError, "stopped sending", 1,
		criticalIf(stuck != nil && stuck.Count >= repeated && facts.Fresh(f, stuck.Last, stillFaulty)))
	if stuck == nil { // a card that is reset loses its link
		add(signature.LinkDown, "lost its link", repeated, checks.Warning)
	}
	return all
}

// brokenGPUs returns GPUs and other accelerators that fail. The node goes on without them.
func brokenGPUs(f *facts.Facts) []fault {
	c := facts.Logged(f, signature.GPUError)
	if c == nil {
		return nil
	}
	return []fault{{
		severity: checks.Warning, step: checks.Certain, code: signature.GPUError,
		subject: ofNode(strings.TrimSpace("GPU " + namedBy(c, ""))),
		summary: textf("the driver reports %s of a GPU or accelerator%s: pods that use it fail",
			units.Count(int(c.Count), "fault"), namedBy(c, " at ")),
		look: [2]string{"nvidia-smi -q -d ECC,ROW_REMAPPER", "Ask the driver which GPU is there, and how it is."},
	}}
}

// diskOfRuntime holds when a disk fails below a folder that runtime or kubelet need.
func diskOfRuntime(f *facts.Facts) bool {
	return slices.ContainsFunc(facts.FailedDisks(f, signature.BlockIOError), func(d facts.FailedDisk) bool {
		return facts.Needed(d.Folders) && !facts.WritesGoOn(f, d.Folders)
	})
}

// cardFails holds when a network card stops sending or has no link.
func cardFails(f *facts.Facts) bool { return len(brokenCards(f)) > 0 }

func loggedHardwareFault(in *Incident) *Finding {
	return cmp.Or(in.failedDisk("A disk fails: whatever touches it waits, or fails.", signature.BlockIOError),
		in.harmless("Memory, a CPU or a bus failed.", signature.HardwareError))
}

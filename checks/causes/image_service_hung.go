package causes

import (
	"fmt"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

// ImageServiceHung is the code of this cause.
const ImageServiceHung = "ImageServiceHung"

var imageServiceHung = Definition{
	Code:   ImageServiceHung,
	Claims: []string{"image.service"},
	Roots: []Root{
		{Code: DiskFull, When: runtimeDiskFull},
		{Code: IOStall, When: diskStands},
		{Code: FilesystemHung, When: usedMountHangs},
		{Code: FilesExhausted, When: runtimeOutOfFiles},
		{Code: KernelHung},
	},
	Recognise: recogniseImageServiceHung,
}

func recogniseImageServiceHung(f *facts.Facts) *Finding {
	if !f.Calls.Connected || f.Pattern.Hang != facts.HangNone || !f.Calls.AnyList || f.RPC[facts.RPCVersion].Outcome == facts.Hung {
		return nil
	}
	var e checks.Evidence
	hangs := imageCalls(f, &e, facts.Hung)
	if len(hangs) == 0 {
		return imageServiceFails(f)
	}
	addCalls(f, &e.For, isAlive, facts.RPCVersion, facts.RPCStatus, facts.RPCSandboxes, facts.RPCContainers)
	addCalls(f, &e.Against, isAlive, facts.RPCImages, facts.RPCImageFs)
	addCalls(f, &e.Against, isHanging, facts.RPCStatus, facts.RPCSandboxes, facts.RPCContainers)
	missingPatience(f, &e)
	Addf(&e.Missing, "which process holds the image store: snapshotters and pulls were not looked at")
	agrees := fromLog(f, &e.For, signsOfImages()...)
	if f.Pattern.OnlyImageList {
		return imageCause(f, newFinding(checks.Warning, raised(checks.Strong, agrees),
			"ListImages hangs while ImageFsInfo answers: unused images are not removed, and pulls may hang as well", e), hangs)
	}
	rest := "the rest answers"
	if len(f.Sweep.Hung) > 0 {
		rest = "the lists answer"
	}
	c := newFinding(checks.Critical, raised(checks.Certain, agrees),
		fmt.Sprintf("%s %s while %s: no image is pulled, no new container starts, the disk is not watched",
			units.List(hangs), units.Plural(len(hangs), "hangs", "hang"), rest), e)
	return imageCause(f, c, hangs)
}

// imageCalls returns the names of the image RPCs that have the outcome and adds their lines to the evidence.
func imageCalls(f *facts.Facts, e *checks.Evidence, want facts.Outcome) []string {
	var names []string
	for _, name := range []string{facts.RPCImages, facts.RPCImageFs} {
		if r := f.RPC[name]; r.Outcome == want {
			names = append(names, name)
			e.For = append(e.For, facts.CallLine(r.Last()))
		}
	}
	return names
}

// imageServiceFails reports image calls that come back as errors: as blind as a hang, but nothing waits for them.
func imageServiceFails(f *facts.Facts) *Finding {
	var e checks.Evidence
	fails := imageCalls(f, &e, facts.Failed)
	if len(fails) == 0 {
		return nil
	}
	Addf(&e.Against, "the calls are answered, with an error: no lock is held")
	c := newFinding(checks.Warning, checks.Strong,
		fmt.Sprintf("%s %s with an error: image garbage collection and eviction are blind", units.List(fails), units.Plural(len(fails), "comes back", "come back")), e)
	return imageCause(f, c, fails)
}

func imageCause(f *facts.Facts, c *Finding, names []string) *Finding {
	c.Subject = &checks.Subject{Kind: "RPC", Name: names[0]}
	for _, name := range names[1:] {
		c.Related = append(c.Related, checks.Subject{Kind: "RPC", Name: name})
	}
	c.Advise = func(string) []checks.NextStep {
		var s Steps
		addCapture(f, &s)
		s.Add(checks.TouchesNothing, facts.CrictlCommand(f, "imagefsinfo"), "Does it still hang, with more patience?")
		s.Add(checks.TouchesNothing, "systemctl list-units --no-pager '*snapshotter*' '*stargz*' '*nydus*'", "Is there a remote snapshotter? Restart it before the runtime.")
		AddDisk(f, &s, "Is the disk under the image store full?")
		s.Add(checks.TouchesScheduler, `kubectl cordon "$(hostname)"`, "No new pod can start here meanwhile.")
		addRestart(f, &s)
		return s.Done()
	}
	return c
}

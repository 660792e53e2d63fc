package causes

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

// ImageServiceHung is the code of this cause.
const ImageServiceHung = "ImageServiceHung"

var imageServiceHung = cause(ImageServiceHung, recogniseImageServiceHung, nil, "image.service")

func recogniseImageServiceHung(f *facts.Facts) *Finding {
	if !listsAnswer(f) {
		return nil
	}
	var e checks.Evidence
	severity, step := checks.Critical, checks.Certain
	names, summary := addCalls(f, &e.For, isHanging, facts.RPCImages, facts.RPCImageFs), ""
	switch {
	case len(names) == 0: // errors blind the kubelet as a hang does, but nothing waits for them
		names = addCalls(f, &e.For, isFailing, facts.RPCImages, facts.RPCImageFs)
		if len(names) == 0 {
			return nil
		}
		severity, step = checks.Warning, checks.Strong
		summary = units.List(names) + ": answered with an error, so image garbage collection and eviction are blind"
		Addf(&e.Against, "the calls are answered, with an error: no lock is held")
	case f.Pattern.OnlyImageList:
		severity, step = checks.Warning, checks.Strong
		summary = "ListImages hangs while ImageFsInfo answers: unused images stay, and pulls may hang as well"
	default:
		summary = units.List(names) + ": no answer, while the lists answer: no image is pulled, the disk is not watched"
	}
	if f.RPC[names[0]].Outcome == facts.Hung {
		addCalls(f, &e.For, isAlive, facts.RPCVersion, facts.RPCStatus, facts.RPCSandboxes, facts.RPCContainers)
		addCalls(f, &e.Against, isAlive, facts.RPCImages, facts.RPCImageFs)
		addCalls(f, &e.Against, isHanging, facts.RPCStatus, facts.RPCSandboxes, facts.RPCContainers)
		addGaps(f, &e, gapPatience)
		Addf(&e.Missing, "which process holds the image store: snapshotters and pulls were not looked at")
		step = raised(step, fromLog(f, &e.For, signsOfImages...))
	}
	var subjects []checks.Subject
	for _, name := range names {
		subjects = append(subjects, checks.Subject{Kind: "RPC", Name: name})
	}
	return newFinding(severity, step, summary, e, subjects...).advise(func(s *Steps, _ string) {
		addCapture(f, s)
		s.Look(facts.CrictlCommand(f, "imagefsinfo"), "Does it still hang, with more patience?")
		s.Look("systemctl list-units --no-pager '*snapshotter*' '*stargz*' '*nydus*'", "Restart it before the runtime.")
		AddDisk(f, s, "Is the disk under the image store full?")
		s.cordon()
		addRestart(f, s)
	})
}

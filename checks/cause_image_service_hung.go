package checks

import (
	"fmt"

	"github.com/kdiag/kdiag/checks/units"
)

func imageServiceHung() Definition {
	return Definition{
		Code:  codeImageServiceHung,
		Title: "image calls hang while the rest answers",
		Means: "ListImages or ImageFsInfo does not come back, while lists, statuses and Status do. The image store's lock is held: by a pull that hangs, a " +
			"snapshotter that does not answer (soci, stargz, nydus), a garbage collection stuck in the metadata database, or, in CRI-O, " +
			"by containers/storage.\n\n" +
			"PLEG does not ask for images, so the node usually stays Ready. It is an outage all the same: no pull ends and no new container " +
			"is created, image garbage collection and eviction cannot see the disk, and a kubelet that restarts now does not come up, since it needs " +
			"ImageFsInfo to start. That is why it is critical.",
		Confirm: []string{
			"crictl images and crictl imagefsinfo hang; crictl ps and crictl pods answer.",
			"New pods stay in ContainerCreating while old ones are well.",
			"A goroutine dump of the runtime: who holds the metadata or storage lock, and what does it wait for?",
		},
		Fix: []string{
			"Dump goroutines.",
			"Restart the remote snapshotter (soci, stargz, nydus), if there is one: it may have run out of file descriptors.",
			"Free the disk under the image store, or wait for the scan or removal that saturates it.",
			"Restart the runtime. Do not restart the kubelet before the image calls answer again.",
		},
		Mistaken: "RuntimeHung: lists hang too. InspectHang: in containerd and CRI-O a container's status may need the image store; when both hang, this is the root. " +
			"A slow ListImages with thousands of images is not hung: ask with --rpc-timeout 20s --timeout 60s.",
		Sources: []string{
			"cri-o/cri-o#2584 (ps and pods answer, images hangs)",
			"containerd/containerd#13798, soci-snapshotter#1826 (a node Ready for hours that starts nothing)",
			"kubelet start-up: ImageFsInfo must answer; pkg/kubelet/images/image_gc_manager.go",
		},
		RootOf:    []string{codeInspectHang},
		recognise: recogniseImageServiceHung,
	}
}

func recogniseImageServiceHung(f *Facts) *Cause {
	if !f.connected() || f.wholeHang() != hangNone || !f.anyList() || f.rpc(rpcVersion).Outcome == hung {
		return nil
	}
	var e Evidence
	hangs := f.imageCalls(&e, hung)
	if len(hangs) == 0 {
		return f.imageServiceFails()
	}
	f.addCalls(&e.For, isAlive, rpcVersion, rpcStatus, rpcSandboxes, rpcContainers)
	f.addCalls(&e.Against, isAlive, rpcImages, rpcImageFs)
	f.addCalls(&e.Against, isHanging, rpcStatus, rpcSandboxes, rpcContainers)
	f.missingPatience(&e)
	addf(&e.Missing, "which process holds the image store: snapshotters and pulls were not looked at")
	agrees := f.hearImages(&e)
	if f.onlyImageList() {
		return f.imageCause(newCause(codeImageServiceHung, Warning, raised(Strong, agrees),
			"ListImages hangs while ImageFsInfo answers: unused images are not removed, and pulls may hang as well", e), hangs)
	}
	rest := "the rest answers"
	if len(f.inspectionsThat(isHung)) > 0 {
		rest = "the lists answer"
	}
	c := newCause(codeImageServiceHung, Critical, raised(Certain, agrees),
		fmt.Sprintf("%s %s while %s: no image is pulled, no new container starts, the disk is not watched",
			units.List(hangs), verb(len(hangs), "hangs", "hang"), rest), e)
	return f.imageCause(c, hangs)
}

// onlyImageList reports whether ListImages hangs alone: what watches the disk still answers.
func (f *Facts) onlyImageList() bool {
	return f.rpc(rpcImages).Outcome == hung && f.rpc(rpcImageFs).Outcome.alive()
}

// imageCalls returns the names of the image RPCs that have the outcome and adds their lines to the evidence.
func (f *Facts) imageCalls(e *Evidence, want outcome) []string {
	var names []string
	for _, name := range []string{rpcImages, rpcImageFs} {
		if r := f.rpc(name); r.Outcome == want {
			names = append(names, name)
			e.For = append(e.For, callLine(r.last()))
		}
	}
	return names
}

// imageServiceFails reports image calls that come back as errors: as blind as a hang, but nothing waits for them.
func (f *Facts) imageServiceFails() *Cause {
	var e Evidence
	fails := f.imageCalls(&e, failed)
	if len(fails) == 0 {
		return nil
	}
	addf(&e.Against, "the calls are answered, with an error: no lock is held")
	c := newCause(codeImageServiceHung, Warning, Strong,
		fmt.Sprintf("%s %s with an error: image garbage collection and eviction are blind", units.List(fails), verb(len(fails), "comes back", "come back")), e)
	return f.imageCause(c, fails)
}

func (f *Facts) imageCause(c *Cause, names []string) *Cause {
	c.Subject = &Subject{Kind: "RPC", Name: names[0]}
	for _, name := range names[1:] {
		c.Related = append(c.Related, Subject{Kind: "RPC", Name: name})
	}
	var s steps
	f.addCapture(&s)
	s.add(TouchesNothing, f.crictlCommand("imagefsinfo"), "Does it still hang, with more patience?")
	s.add(TouchesNothing, "systemctl list-units --no-pager '*snapshotter*' '*stargz*' '*nydus*'", "Is there a remote snapshotter? Restart it before the runtime.")
	f.addDisk(&s, "Is the disk under the image store full?")
	s.add(TouchesScheduler, `kubectl cordon "$(hostname)"`, "No new pod can start here meanwhile.")
	f.addRestart(&s)
	c.NextSteps = s.done()
	return c
}

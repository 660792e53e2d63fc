package checks

import (
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks/units"
)

func imageService() Check {
	return Check{
		ID:    "image.service",
		Title: "image calls are answered",
		Text: "ListImages and ImageFsInfo. PLEG does not need them, so a node stays Ready without them, but no new container starts, the disk is not watched, and a " +
			"kubelet that restarts does not come up. Warns when the image that sandboxes are made of (pause) is not on the node: the runtime then pulls it before each new pod, and no pod starts where that fails.",
		read: readImageService,
	}
}

func readImageService(f *Facts) Result {
	if r := f.unreached(); r != nil {
		return *r
	}
	var slowest time.Duration
	asked, images := 0, ""
	for _, name := range []string{rpcImages, rpcImageFs} {
		r := f.rpc(name)
		switch r.Outcome {
		case hung:
			if f.onlyImageList() {
				return result(StatusWarning, "%s", callLine(r.last())).took(r.last().Elapsed)
			}
			return result(StatusCritical, "%s", callLine(r.last())).took(r.last().Elapsed)
		case failed:
			return result(StatusWarning, "%s", callLine(r.last())).took(r.last().Elapsed)
		case notAsked:
			continue
		}
		asked++
		slowest = max(slowest, r.last().Elapsed)
		if name == rpcImages {
			images = fmt.Sprintf("%s, ", units.Count(r.last().Items, "image"))
		}
	}
	if asked == 0 {
		return result(StatusUnknown, "%s", or(f.cutOff(rpcImages), "image calls were not asked before the time was up"))
	}
	if image := f.seen().SandboxImage; image.OK && image.Value.Absent {
		return result(StatusWarning, "the sandbox image %s is not on this node: no pod starts unless the runtime can pull it", clean(image.Value.Name)).took(slowest)
	}
	return result(StatusOK, "%sanswered in %s", images, units.Duration(slowest)).took(slowest)
}

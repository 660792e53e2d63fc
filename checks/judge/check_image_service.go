package judge

import (
	"cmp"
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
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

func readImageService(f *facts.Facts) checks.Result {
	if r := unreached(f); r != nil {
		return *r
	}
	var slowest time.Duration
	asked, images := 0, ""
	for _, name := range []string{facts.RPCImages, facts.RPCImageFs} {
		r := f.RPC[name]
		switch r.Outcome {
		case facts.Hung:
			if f.Pattern.OnlyImageList {
				return took(result(checks.StatusWarning, "%s", facts.CallLine(r.Last())), r.Last().Elapsed)
			}
			return took(result(checks.StatusCritical, "%s", facts.CallLine(r.Last())), r.Last().Elapsed)
		case facts.Failed:
			return took(result(checks.StatusWarning, "%s", facts.CallLine(r.Last())), r.Last().Elapsed)
		case facts.NotAsked:
			continue
		}
		asked++
		slowest = max(slowest, r.Last().Elapsed)
		if name == facts.RPCImages {
			images = fmt.Sprintf("%s, ", units.Count(r.Last().Items, "image"))
		}
	}
	if asked == 0 {
		return result(checks.StatusUnknown, "%s", cmp.Or(facts.CutOff(f, facts.RPCImages), "image calls were not asked before the time was up"))
	}
	if image := f.Seen.SandboxImage; image.OK && image.Value.Absent {
		return took(result(checks.StatusWarning, "the sandbox image %s is not on this node: no pod starts unless the runtime can pull it", facts.Clean(image.Value.Name)), slowest)
	}
	return took(result(checks.StatusOK, "%sanswered in %s", images, units.Duration(slowest)), slowest)
}

package checks

import (
	"fmt"
	"time"
)

func imageService() Check {
	return Check{
		ID:    "image.service",
		Title: "image calls are answered",
		Text: "ListImages and ImageFsInfo. PLEG does not need them, so a node stays Ready without them, but no new container starts, the disk is not watched, and a " +
			"kubelet that restarts does not come up.",
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
			images = fmt.Sprintf("%s, ", count(r.last().Items, "image"))
		}
	}
	if asked == 0 {
		return result(StatusUnknown, "image calls were not asked before the time was up")
	}
	return result(StatusOK, "%sanswered in %s", images, duration(slowest)).took(slowest)
}

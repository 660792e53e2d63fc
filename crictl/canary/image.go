package canary

import (
	"cmp"
	"path"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// execProgram is the program of ExecSync.
const execProgram = "true"

// A choice is the image to run.
type choice struct {
	id    string // by which the runtime finds it; empty for no image
	name  string // for a person
	pause bool   // a pause image contains no program but its own, which waits
}

var (
	shellName = lazyregexp.New(`busybox|alpine`) // images with sleep and true
	pauseName = lazyregexp.New(`\bpause\b`)      // the sandboxes' image; also mirrored-pause
)

// choose returns the images to try in order: the smallest with a shell, by its name or tag, and the pause image, which
// is on nearly every node.
func choose(images []*runtimeapi.Image) (choices []choice) {
	sorted := slices.SortedFunc(slices.Values(images), func(a, b *runtimeapi.Image) int {
		return cmp.Or(cmp.Compare(a.GetSize(), b.GetSize()), cmp.Compare(nameOf(a), nameOf(b)))
	})
	for _, kind := range []*lazyregexp.Regexp{shellName, pauseName} {
		i := slices.IndexFunc(sorted, func(image *runtimeapi.Image) bool { return named(nameOf(image), kind) })
		if i >= 0 {
			choices = append(choices, choiceOf(sorted[i], nameOf(sorted[i])))
		}
	}
	return choices
}

// choiceOf returns the choice of an image under the name by which it was found, which may be an id.
func choiceOf(image *runtimeapi.Image, name string) choice {
	return choice{id: image.GetId(), name: name, pause: named(name, pauseName) || named(nameOf(image), pauseName)}
}

// nameOf returns the first tag of an image, else its first digest, else its id.
func nameOf(image *runtimeapi.Image) string {
	return slices.Concat(image.GetRepoTags(), image.GetRepoDigests(), []string{image.GetId()})[0]
}

// named reports whether the last part of an image's name, with its tag, is of a kind.
func named(name string, kind *lazyregexp.Regexp) bool {
	name, _, _ = strings.Cut(path.Base(name), "@")
	return kind.MatchString(name)
}

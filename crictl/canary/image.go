package canary

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// execProgram is what ExecSync runs.
const execProgram = "true"

// A choice is the image to run.
type choice struct {
	id   string // by which the runtime finds it; empty for no image
	name string // for a person
	bare bool   // it holds but its own program, which waits: a pause image
}

// The kinds of images, the best first.
const (
	shell = iota // holds sleep and true, by its name or tag
	pause        // on nearly every node, as the image of sandboxes; nothing can be executed in it
	other        // may hold sleep or not
)

// choose returns the images to try, the one that is most likely to run first: of each kind the smallest, and when that
// makes fewer than maxImages the next ones.
func choose(images []*runtimeapi.Image) []choice {
	sorted := slices.SortedFunc(slices.Values(images), func(a, b *runtimeapi.Image) int {
		return cmp.Or(
			cmp.Compare(kindOf(nameOf(a)), kindOf(nameOf(b))),
			cmp.Compare(a.GetSize(), b.GetSize()),
			cmp.Compare(nameOf(a), nameOf(b)), // the same in every run
		)
	})
	var first, rest []choice
	for i, image := range sorted {
		into := &rest
		if i == 0 || kindOf(nameOf(image)) != kindOf(nameOf(sorted[i-1])) {
			into = &first
		}
		*into = append(*into, choiceOf(image, nameOf(image)))
	}
	all := slices.Concat(first, rest)
	return all[:min(len(all), maxImages)]
}

// choiceOf is the choice of an image under the name by which it was found, which may be an id.
func choiceOf(image *runtimeapi.Image, name string) choice {
	return choice{id: image.GetId(), name: name, bare: kindOf(name) == pause || kindOf(nameOf(image)) == pause}
}

// nameOf returns the usual name of an image.
func nameOf(image *runtimeapi.Image) string {
	return slices.Concat(image.GetRepoTags(), image.GetRepoDigests(), []string{image.GetId()})[0]
}

var (
	shellName = regexp.MustCompile(`busybox|alpine`)
	pauseName = regexp.MustCompile(`\bpause\b`) // also mirrored-pause
)

// kindOf derives from an image's name what it contains.
func kindOf(name string) int {
	name, _, _ = strings.Cut(path.Base(name), "@")
	switch {
	case shellName.MatchString(name):
		return shell
	case pauseName.MatchString(name):
		return pause
	}
	return other
}

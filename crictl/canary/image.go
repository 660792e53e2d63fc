package canary

import (
	"cmp"
	"path"
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
	busybox = iota // holds sleep and true, and is small
	alpine         // holds busybox
	based          // on one of the two, by its name or tag
	pause          // on nearly every node, as the image of sandboxes; nothing can be executed in it
	other          // may hold sleep or not
)

// choose picks the image that is most likely to run, and of its kind the smallest. The zero choice means that there
// is none.
func choose(images []*runtimeapi.Image) choice {
	fit := slices.DeleteFunc(slices.Clone(images), func(i *runtimeapi.Image) bool { return i.GetId() == "" })
	if len(fit) == 0 {
		return choice{}
	}
	best := slices.MinFunc(fit, func(a, b *runtimeapi.Image) int {
		return cmp.Or(
			cmp.Compare(kindOf(nameOf(a)), kindOf(nameOf(b))),
			cmp.Compare(a.GetSize(), b.GetSize()),
			cmp.Compare(nameOf(a), nameOf(b)), // the same in every run
			cmp.Compare(a.GetId(), b.GetId()),
		)
	})
	return choiceOf(best, nameOf(best))
}

// choiceOf is the choice of an image under the name by which it was found.
func choiceOf(image *runtimeapi.Image, name string) choice {
	id := image.GetId()
	kind := kindOf(name)
	if known := nameOf(image); kind == other && known != id { // it was asked for by an id, or a digest
		kind = kindOf(known)
	}
	return choice{id: id, name: name, bare: kind == pause}
}

// nameOf returns the usual name of an image.
func nameOf(image *runtimeapi.Image) string {
	for _, names := range [][]string{image.GetRepoTags(), image.GetRepoDigests()} {
		if len(names) > 0 && names[0] != "" {
			return names[0]
		}
	}
	return image.GetId()
}

// kindOf derives from an image's name what it contains.
func kindOf(name string) int {
	name, _, _ = strings.Cut(name, "@")
	repository, tag := path.Base(name), ""
	if i := strings.IndexByte(repository, ':'); i >= 0 {
		repository, tag = repository[:i], repository[i+1:]
	}
	has := func(s, word string) bool {
		return slices.Contains(strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune("-_.", r) }), word)
	}
	switch {
	case repository == "busybox":
		return busybox
	case repository == "alpine":
		return alpine
	case has(repository, "pause"): // also pause-amd64, mirrored-pause
		return pause
	case has(repository, "busybox"), has(repository, "alpine"), has(tag, "busybox"), strings.Contains(tag, "alpine"):
		return based
	}
	return other
}

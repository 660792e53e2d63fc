package images

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
)

const (
	defaultHost = "docker.io"
	latest      = "latest"
	// longestRepository is how many characters a name may have without host, tag and digest.
	longestRepository = 255
)

var hexDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// reference is the grammar of image names, as the distribution specification has it. It takes 230 kB, which a command that parses
// no name goes without.
var reference = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^((?:` + hostPattern + `/)?(` + componentPattern + `(?:/` + componentPattern + `)*))` +
		`(?::(\w[\w.-]{0,127}))?(?:@(sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}))?$`)
})

const (
	labelPattern     = `[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?`
	hostPattern      = `(?:` + labelPattern + `(?:\.` + labelPattern + `)*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?`
	componentPattern = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`
)

// A name is an image name taken apart.
type name struct {
	repository string // with its host, which is docker.io where the name gives none: docker.io/library/busybox
	tag        string // latest where there is neither a tag nor a digest
	full       string // what the runtime is asked for: as written, with the tag
}

// parseName takes an image name apart: [host[:port]/]path[:tag][@digest].
func parseName(image string) (name, error) {
	full := image
	first, rest, slash := strings.Cut(image, "/")
	switch isHost := slash && (strings.ContainsAny(first, ".:") || first == "localhost" || strings.ToLower(first) != first); {
	case hexDigest.MatchString(image):
		return name{}, fmt.Errorf("couldn't parse image name %q: a name cannot be a bare digest", image)
	case isHost && first == "index."+defaultHost:
		full = defaultHost + "/" + rest
	case !isHost:
		full, rest = defaultHost+"/"+image, image
	}
	if strings.HasPrefix(full, defaultHost+"/") && !strings.Contains(rest, "/") {
		full = defaultHost + "/library/" + rest
	}
	m := reference().FindStringSubmatch(full)
	if m == nil {
		return name{}, fmt.Errorf("couldn't parse image name %q: invalid reference format", image)
	}
	n := name{repository: m[1], tag: m[3], full: image}
	if len(m[2]) > longestRepository {
		return name{}, fmt.Errorf("couldn't parse image name %q: more than %d characters", image, longestRepository)
	}
	if n.tag == "" && m[4] == "" {
		n.tag, n.full = latest, image+":"+latest
	}
	return n, nil
}

// policy is a container's pull policy. One that was not defaulted before pulls the tag latest always.
func policy(c *v1.Container, n name) v1.PullPolicy {
	switch {
	case c.ImagePullPolicy != "":
		return c.ImagePullPolicy
	case n.tag == latest:
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

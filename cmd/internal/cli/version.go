package cli

import (
	"regexp"
	"runtime/debug"
)

// version is set for a release: -ldflags "-X github.com/kdiag/kdiag/cmd/internal/cli.version=v1.2.3".
var version string

// Version returns kdiag's version: that of the release, else the one that the Go command stamps into the binary.
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "devel"
	}
	return info.Main.Version
}

// released matches the versions that have an image; a build between two releases has a longer one.
var released = regexp.MustCompile(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`)

// Image returns the name of the published image of this version, or nothing where it is not a release.
func Image() string {
	if v := Version(); released.MatchString(v) {
		return "ghcr.io/kdiag/kdiag:" + v
	}
	return ""
}

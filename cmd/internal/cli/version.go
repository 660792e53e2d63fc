package cli

import "runtime/debug"

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

package crictl

import (
	"context"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// A knownSocket is where a distribution puts its runtime's socket.
type knownSocket struct {
	path  string
	owner string
}

// wellKnown are the sockets that are looked for, in order.
func wellKnown() []knownSocket {
	return []knownSocket{
		{"/run/containerd/containerd.sock", "containerd"},
		{"/run/crio/crio.sock", "CRI-O"},
		{"/run/cri-dockerd.sock", "cri-dockerd"},
		{"/var/run/cri-dockerd.sock", "cri-dockerd"},
		{"/run/k3s/containerd/containerd.sock", "k3s and RKE2"},
		{"/run/k0s/containerd.sock", "k0s"},
		{"/var/snap/microk8s/common/run/containerd.sock", "MicroK8s"},
	}
}

// IsWellKnown reports whether an endpoint is a socket of a runtime's package or of a distribution, so that its path tells whose it is.
func IsWellKnown(endpoint string) bool {
	path := strings.TrimPrefix(strings.TrimPrefix(endpoint, unixScheme), "/var/run/")
	return slices.ContainsFunc(wellKnown(), func(s knownSocket) bool {
		return s.path == strings.TrimPrefix(endpoint, unixScheme) || s.path == "/run/"+path
	})
}

// fromWellKnown takes the first well-known socket that exists.
func (d *discovery) fromWellKnown(ctx context.Context) bool {
	for _, s := range wellKnown() {
		mode, err := bounded(ctx, lookTimeout, func() (mode fs.FileMode, err error) {
			err = InRoot(d.root, s.path, func(path string) error {
				info, err := os.Stat(path)
				if err == nil {
					mode = info.Mode()
				}
				return err
			})
			return mode, err
		})
		switch {
		case err != nil:
			d.reject(SourceWellKnown, s.path, reasonOf(err))
		case mode.Type() != fs.ModeSocket:
			d.reject(SourceWellKnown, s.path, "is "+kindOf(mode)+", not a socket")
		default:
			return d.use(Endpoint{
				URL: unixScheme + s.path, Source: SourceWellKnown,
				Reason: "the first well-known socket that exists, that of " + s.owner,
			})
		}
	}
	return false
}

// kindOf names a kind of file, with its article.
func kindOf(mode fs.FileMode) string {
	switch mode.Type() {
	case 0:
		return "a regular file"
	case fs.ModeDir:
		return "a directory"
	case fs.ModeSocket:
		return "a socket"
	case fs.ModeNamedPipe:
		return "a named pipe"
	case fs.ModeSymlink:
		return "a symbolic link"
	}
	return "a device"
}

//go:build e2e

package nodebox

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// stubPlugin is a CNI plugin that gives every sandbox the same address and touches no interface, which is enough for
// the runtime. While the file hang exists, ADD and DEL do not return.
const stubPlugin = `#!%[1]s sh
case "$CNI_COMMAND" in
VERSION)
	echo '{"cniVersion":"0.4.0","supportedVersions":["0.3.0","0.3.1","0.4.0"]}'
	exit
	;;
ADD | DEL)
	while [ -e '%[2]s' ]; do %[1]s sleep 0.1; done
	;;
esac
[ "$CNI_COMMAND" = ADD ] || exit 0
cat <<EOT
{"cniVersion":"0.4.0","interfaces":[{"name":"$CNI_IFNAME","sandbox":"$CNI_NETNS"}],
 "ips":[{"version":"4","interface":0,"address":"192.0.2.2/24"}]}
EOT
`

// stubNetwork is the network configuration list that uses the stub.
const stubNetwork = `{"cniVersion":"0.4.0","name":%q,"plugins":[{"type":"bridge"}]}
`

// writeCNI installs the stub under the names of two real plugins, so that their processes are recognised. The
// runtime runs loopback for every sandbox, whatever its configuration.
func (l layout) writeCNI(tb testing.TB) {
	tb.Helper()
	script := fmt.Sprintf(stubPlugin, busybox, l.path("cni/hang"))
	for _, name := range []string{"bridge", "loopback"} {
		must(tb, os.WriteFile(l.path("cni/bin/"+name), []byte(script), 0o755))
	}
	conf := fmt.Sprintf(stubNetwork, filepath.Base(l.dir))
	must(tb, os.WriteFile(l.path("cni/net.d/10-stub.conflist"), []byte(conf), 0o644))
}

// HangCNI makes every run of the CNI plugin hang from now on, as a plugin does whose daemon is gone. It needs
// Options.Network. containerd 1.6 goes on answering Status then, with NetworkReady=true, also when the configuration is
// written anew: the only signs are sandboxes that do not come up, and the plugin's processes, which outlive the
// deadline of their caller.
func (c *Containerd) HangCNI() error {
	return os.WriteFile(c.path("cni/hang"), nil, 0o644)
}

// ReleaseCNI lets hanging CNI plugins return.
func (c *Containerd) ReleaseCNI() error {
	return os.RemoveAll(c.path("cni/hang"))
}

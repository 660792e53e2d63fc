//go:build e2e

package nodebox

import (
	"os"
	"path/filepath"
	"testing"
)

// boxFiles are the files that make a node of the base tree. Sandboxes need /etc/hosts, which the smallest system does
// not have; see layout.toml for containerd's options. Containers whose process 1 ignores SIGTERM would hold
// up a shutdown for systemd's 90 seconds. The journal outlives a boot, as on a node, where its folder exists.
func boxFiles() map[string]string {
	return map[string]string{
		"etc/hosts":    "127.0.0.1 localhost\n",
		"etc/hostname": "node\n",
		"etc/containerd/config.toml": "version = 2\n" +
			"[plugins.\"" + PluginCRI + "\"]\n" +
			"  restrict_oom_score_adj = true\n" +
			"  sandbox_image = \"" + ImagePause + "\"\n" +
			"  stream_server_address = \"127.0.0.1\"\n" +
			"  stream_server_port = \"0\"\n",
		"etc/systemd/system.conf.d/box.conf": "[Manager]\nDefaultTimeoutStopSec=5s\n",
		"var/log/journal/.keep":              "",
	}
}

// maskedUnits fail or wait in a container, and nothing of a node needs them.
func maskedUnits() []string {
	return []string{
		"systemd-networkd-wait-online.service", "systemd-resolved.service", "systemd-timesyncd.service",
		"systemd-logind.service", "apt-daily.timer", "apt-daily-upgrade.timer", "console-getty.service",
	}
}

// furnish writes what the base tree lacks, and our images, into the box.
func (b *Box) furnish(t testing.TB) {
	t.Helper()
	for name, content := range boxFiles() {
		file := filepath.Join(b.Root(), name)
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, []byte(content), 0o644))
	}
	for _, unit := range maskedUnits() {
		link := filepath.Join(b.Root(), "etc/systemd/system", unit)
		must(t, os.RemoveAll(link))
		must(t, os.Symlink("/dev/null", link))
	}
	createImages(t, filepath.Join(b.Root(), imagesInBox))
}

// imagesInBox is where a box finds the archive of our images.
const imagesInBox = "/var/lib/images.tar"

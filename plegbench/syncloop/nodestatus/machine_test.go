package nodestatus

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func TestReadMachine(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"proc/meminfo":                   "MemTotal:       24684096 kB\nMemFree:        17699928 kB\n",
		"proc/sys/kernel/random/boot_id": "7f1d\n",
		"proc/sys/kernel/osrelease":      "6.18.44\n",
		"etc/machine-id":                 "4d2a\n",
		"etc/os-release":                 "NAME=\"X\"\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n",
		"sys/class/dmi/id/product_uuid":  "9c-11\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadMachine(root, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	if got.Cores < 1 {
		t.Errorf("cores %d", got.Cores)
	}
	got.Cores = 0
	want := Machine{
		MachineID: "4d2a", SystemUUID: "9c-11", BootID: "7f1d", KernelVersion: "6.18.44", OSImage: "Debian GNU/Linux 13 (trixie)",
		Memory: 24684096 << 10, Storage: 1 << 40,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := os.WriteFile(filepath.Join(root, "proc/meminfo"), []byte("Cached: 1 kB\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadMachine(root, 0); err == nil {
		t.Error("no error without MemTotal")
	}
	if _, err := ReadMachine(t.TempDir(), 0); err == nil {
		t.Error("no error without proc")
	}
}

func TestAddresses(t *testing.T) {
	want := []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.7"}, {Type: v1.NodeHostName, Address: "node-1"}}
	if diff := cmp.Diff(want, Addresses("node-1", net.ParseIP("192.0.2.7"))); diff != "" {
		t.Error(diff)
	}
	if found := Addresses("node-1", nil); found[len(found)-1] != want[1] {
		t.Errorf("without an address: %v", found)
	}
}

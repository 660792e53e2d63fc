package nodestatus

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadMachine(root, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	want := Machine{
		MachineID: "4d2a", SystemUUID: "9c-11", BootID: "7f1d", KernelVersion: "6.18.44",
		OSImage: "Debian GNU/Linux 13 (trixie)", Cores: runtime.NumCPU(), Memory: 24684096 << 10, Storage: 1 << 40,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := ReadMachine(t.TempDir(), 0); err == nil {
		t.Error("no error without proc")
	}
}

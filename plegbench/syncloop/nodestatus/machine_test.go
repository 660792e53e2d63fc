package nodestatus

import (
	"path/filepath"
	"runtime"
	"testing"

	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
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
		looptest.Write(t, filepath.Join(root, name), content)
	}
	got, err := ReadMachine(root, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	want := Machine{
		MachineID: "4d2a", SystemUUID: "9c-11", BootID: "7f1d", KernelVersion: "6.18.44",
		OSImage: "Debian GNU/Linux 13 (trixie)", Cores: runtime.NumCPU(), Memory: 24684096 << 10, Storage: 1 << 40,
	}
	looptest.Equal(t, "machine", want, got)
	if _, err := ReadMachine(t.TempDir(), 0); err == nil {
		t.Error("no error without proc")
	}
}

package nodestatus

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// A Machine has the facts about the node that do not change while a kubelet runs.
type Machine struct {
	Info    v1.NodeSystemInfo // without the versions of the runtime and the kubelet
	Cores   int
	Memory  uint64 // bytes
	Storage uint64 // bytes of the file system that holds the pods' directories
}

// ReadMachine reads the machine below root, "/" but for tests; storage is the size, in bytes, of the file system with
// the pods' directories. What a machine may lack, such as a machine id, stays empty.
func ReadMachine(root string, storage uint64) (Machine, error) {
	proc, err := procfs.NewFS(filepath.Join(root, "proc"))
	if err != nil {
		return Machine{}, fmt.Errorf("opening proc: %w", err)
	}
	memory, err := proc.Meminfo()
	if err != nil {
		return Machine{}, fmt.Errorf("reading meminfo: %w", err)
	}
	read := func(path string) string {
		data, _ := os.ReadFile(filepath.Join(root, path)) // empty stands for none
		return strings.TrimSpace(string(data))
	}
	return Machine{
		Info: v1.NodeSystemInfo{
			MachineID: read("etc/machine-id"), SystemUUID: read("sys/class/dmi/id/product_uuid"),
			BootID: read("proc/sys/kernel/random/boot_id"), KernelVersion: read("proc/sys/kernel/osrelease"),
			OSImage: prettyName(read("etc/os-release")), OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
		},
		Cores: runtime.NumCPU(), Memory: *memory.MemTotalBytes, Storage: storage,
	}, nil
}

// prettyName is the value of PRETTY_NAME, or Unknown as upstream.
func prettyName(release string) string {
	for line := range strings.Lines(release) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(value, `"'`)
		}
	}
	return "Unknown"
}

// capacity returns the node's resources for pods.
func (m Machine) capacity(maxPods int) v1.ResourceList {
	return v1.ResourceList{
		v1.ResourcePods:             *resource.NewQuantity(int64(maxPods), resource.DecimalSI),
		v1.ResourceCPU:              *resource.NewMilliQuantity(int64(m.Cores)*1000, resource.DecimalSI),
		v1.ResourceMemory:           *resource.NewQuantity(int64(m.Memory), resource.BinarySI),
		v1.ResourceEphemeralStorage: *resource.NewQuantity(int64(m.Storage), resource.BinarySI),
	}
}

// Addresses returns the address of the interface with the default route, if there is one, and the host's name.
func Addresses(hostname string) []v1.NodeAddress {
	name := v1.NodeAddress{Type: v1.NodeHostName, Address: hostname}
	ip, err := utilnet.ChooseHostInterface()
	if err != nil {
		return []v1.NodeAddress{name}
	}
	return []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: ip.String()}, name}
}

package nodestatus

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// A Machine is what does not change while a kubelet runs.
type Machine struct {
	MachineID, SystemUUID, BootID string
	KernelVersion                 string
	OSImage                       string // PRETTY_NAME of os-release
	Cores                         int
	Memory                        uint64 // bytes
	Storage                       uint64 // bytes of the file system that holds the pods' directories
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
	if memory.MemTotalBytes == nil {
		return Machine{}, fmt.Errorf("reading meminfo: no MemTotal in %s", filepath.Join(root, "proc/meminfo"))
	}
	read := func(path string) string {
		data, _ := os.ReadFile(filepath.Join(root, path)) // empty stands for none
		return strings.TrimSpace(string(data))
	}
	return Machine{
		MachineID:     read("etc/machine-id"),
		SystemUUID:    read("sys/class/dmi/id/product_uuid"),
		BootID:        read("proc/sys/kernel/random/boot_id"),
		KernelVersion: read("proc/sys/kernel/osrelease"),
		OSImage:       prettyName(read("etc/os-release")),
		Cores:         runtime.NumCPU(),
		Memory:        *memory.MemTotalBytes,
		Storage:       storage,
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

// capacity is what the node has for pods. What is not known is left out and makes the node NotReady.
func (m Machine) capacity(maxPods int) v1.ResourceList {
	out := v1.ResourceList{v1.ResourcePods: *resource.NewQuantity(int64(maxPods), resource.DecimalSI)}
	if m.Cores > 0 {
		out[v1.ResourceCPU] = *resource.NewMilliQuantity(int64(m.Cores)*1000, resource.DecimalSI)
	}
	if m.Memory > 0 {
		out[v1.ResourceMemory] = *resource.NewQuantity(int64(m.Memory), resource.BinarySI)
	}
	if m.Storage > 0 {
		out[v1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(m.Storage), resource.BinarySI)
	}
	return out
}

// Addresses are the node's: ip, or without one the address of the interface with the default route, and the host's
// name. A machine with neither has its name only.
func Addresses(hostname string, ip net.IP) []v1.NodeAddress {
	if ip == nil {
		ip, _ = utilnet.ChooseHostInterface()
	}
	var out []v1.NodeAddress
	if ip != nil {
		out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.String()})
	}
	return append(out, v1.NodeAddress{Type: v1.NodeHostName, Address: hostname})
}

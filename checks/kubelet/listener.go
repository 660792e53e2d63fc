package kubelet

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/prometheus/procfs"

	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/crictl/proc"
)

// String is a sentence: python3 (pid 4711) listens at 127.0.0.1:10248, not the kubelet.
func (h Holder) String() string {
	who := fmt.Sprintf("%s (pid %d)", h.Name, h.PID)
	if h.PID == 0 {
		who = "a process that kdiag does not see"
	}
	return who + " listens at " + h.Address + ", not the kubelet"
}

// holderOf returns who holds an address of the kubelet; nil where nobody else is known to.
func holderOf(all []Holder, address string) *Holder {
	i := slices.IndexFunc(all, func(h Holder) bool { return h.Address == address })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// holders returns the processes other than the kubelet that listen at its addresses. Where the kubelet's open files may
// not be read, none is known.
func holders(ctx context.Context, root string, s Settings) []Holder {
	var out []Holder
	for _, address := range []string{s.HealthzAddress, s.Address} {
		_, port, _ := net.SplitHostPort(address)
		sockets := listening(root, max(s.PID, 1), port)
		own, seen := holds(root, max(s.PID, 1), sockets)
		if len(sockets) == 0 || s.PID != 0 && (own || !seen) {
			continue
		}
		h := Holder{Address: address}
		entries, _ := os.ReadDir(filepath.Join(root, "proc"))
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil || ctx.Err() != nil {
				continue
			}
			if yes, _ := holds(root, pid, sockets); !yes {
				continue
			}
			comm, _ := kubeletconfig.ReadFile(filepath.Join(root, "proc", e.Name(), "comm"))
			if h.PID, h.Name = pid, oneLine(string(comm)); pid != 1 { // systemd may hold a socket for another
				break
			}
		}
		// A kubelet that starts at this moment does not count. A pod may have a process of that name.
		starts := h.Name == "kubelet" && !proc.Apart(proc.Dir(root, h.PID), proc.Dir(root, max(s.PID, 1)), "mnt")
		if ctx.Err() == nil && !starts && (s.PID != 0 || h.PID != 0) {
			out = append(out, h)
		}
	}
	return out
}

// listening returns the sockets, as /proc/PID/fd shows them, that listen at a port in the network of a process.
func listening(root string, pid int, port string) (sockets []string) {
	const listens = 0x0A // TCP_LISTEN of include/net/tcp_states.h
	number, _ := strconv.ParseUint(port, 10, 16)
	fs, err := procfs.NewFS(proc.Dir(root, pid))
	if err != nil {
		return nil
	}
	//lint:ignore SA1019 netlink shows the network of this process alone
	v4, _ := fs.NetTCP()
	//lint:ignore SA1019 as above
	v6, _ := fs.NetTCP6()
	for _, s := range slices.Concat(v4, procfs.NetTCP(v6)) {
		if s.LocalPort == number && s.St == listens {
			sockets = append(sockets, fmt.Sprintf("socket:[%d]", s.Inode))
		}
	}
	return sockets
}

// holds reports whether a process has one of the sockets open, and whether its open files may be read.
func holds(root string, pid int, sockets []string) (yes, seen bool) {
	dir := filepath.Join(proc.Dir(root, pid), "fd")
	entries, err := os.ReadDir(dir)
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		target, _ := os.Readlink(filepath.Join(dir, e.Name()))
		return slices.Contains(sockets, target)
	}), err == nil
}

package host

import (
	"errors"
	"fmt"
	"io/fs"
)

// ReadConntrack reads the table of tracked connections of the network namespace that kdiag runs in, which is the host's
// in a pod with hostNetwork. Where the module is not loaded there is no table, and no error.
func ReadConntrack(root string) (Conntrack, error) {
	const dir = "proc/sys/net/netfilter"
	count, err := readUint(root, dir, "nf_conntrack_count")
	if errors.Is(err, fs.ErrNotExist) {
		return Conntrack{}, nil
	}
	if err != nil {
		return Conntrack{}, fmt.Errorf("counting tracked connections: %w", err)
	}
	limit, err := readUint(root, dir, "nf_conntrack_max")
	if err != nil {
		return Conntrack{}, fmt.Errorf("reading the limit of tracked connections: %w", err)
	}
	return Conntrack{Usage{Current: count, Max: limit}}, nil
}

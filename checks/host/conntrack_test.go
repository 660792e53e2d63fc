package host

import "testing"

func TestReadConntrack(t *testing.T) {
	n := newNode(t)
	if got, err := ReadConntrack(n.root); err != nil || got != (Conntrack{}) {
		t.Errorf("without the module: %+v, %v", got, err)
	}
	n.write("proc/sys/net/netfilter/nf_conntrack_count", "261000\n")
	if got, err := ReadConntrack(n.root); err == nil {
		t.Errorf("without the limit: %+v, no error", got)
	}
	n.write("proc/sys/net/netfilter/nf_conntrack_max", "262144\n")
	if got, err := ReadConntrack(n.root); err != nil || got.Usage != (Usage{261000, 262144}) {
		t.Errorf("ReadConntrack = %+v, %v", got, err)
	}
	n.write("proc/sys/net/netfilter/nf_conntrack_count", "many\n")
	if got, err := ReadConntrack(n.root); err == nil {
		t.Errorf("of nonsense: %+v, no error", got)
	}
}

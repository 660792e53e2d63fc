package host

// Memory is what /proc/meminfo says, in bytes.
type Memory struct {
	Total, Available, Free uint64
	SwapTotal, SwapFree    uint64
	Dirty, Writeback       uint64 // waiting for a disk
	SlabUnreclaimable      uint64 // kernel memory; leaked cgroups show here
}

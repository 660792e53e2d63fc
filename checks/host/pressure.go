package host

import "time"

// Pressure is what the kernel says of time lost waiting for a resource (PSI, /proc/pressure). A resource that this kernel
// does not account for is nil: PSI needs CONFIG_PSI, and psi=1 where the distribution turned it off.
type Pressure struct {
	CPU, Memory, IO *Stall
}

// A Stall is the pressure on one resource.
type Stall struct {
	Some Averages // at least one task waited
	Full Averages // all tasks that were not idle waited; of the CPU only meaningful below the root cgroup
}

// Averages are shares of time in percent, 0 to 100, over the last 10, 60 and 300 seconds, and the time lost since boot.
type Averages struct {
	Avg10, Avg60, Avg300 float64
	Total                time.Duration
}

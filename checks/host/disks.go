package host

import "time"

// A Disk is a block device's work between two looks at /proc/diskstats.
type Disk struct {
	Name                string  // sda, nvme0n1, dm-0
	Utilisation         float64 // share of the time in which it had work to do, 0 to 1
	ReadAwait           time.Duration
	WriteAwait          time.Duration // mean time of one request, waiting included
	ReadsPerSecond      float64
	WritesPerSecond     float64
	ReadBytesPerSecond  float64
	WriteBytesPerSecond float64
	Queue               float64       // mean number of requests in flight
	InFlight            int           // at the second look
	Folders             []Folder      // that lie on it, through partitions and device mapper
	Over                time.Duration // between the looks
}

// A Writer is a process that wrote much between two looks at /proc/PID/io.
type Writer struct {
	PID            int
	Name           string
	Role           Role
	ObjectID       string // the container it belongs to, if any
	PodUID         string
	BytesPerSecond float64
}

package textlog

import "github.com/kdiag/kdiag/journal/klog"

// A Record is one record of a log. Its slices are valid during the call that gets it.
type Record struct {
	Offset int64 // of its first byte in the unpacked stream
	Raw    []byte
	// Message is Raw without the prefixes of transports, colour codes and a klog header. Of a record in JSON the
	// escapes are undone; klog's JSON is written as its structured text: "msg" key="value".
	Message []byte
	// Outer is the stamp of the transport: journald, syslog, docker, CRI; of a condition of a node, its last heartbeat.
	Outer klog.Stamp
	Inner klog.Stamp // of the program: klog, logrus, JSON
	// Host, Identifier and Units are empty if unknown. Units may hold the name of a container. PID is that of the
	// transport.
	Host, Identifier string
	Units            []string
	PID              int
	Stream           string // of a container that the message is from: stdout, stderr
	Kernel           bool   // written by the kernel
	InnerPID         int    // in klog's header
	// Format names the layers from the outside in, such as "syslog+klog", "docker+klog", "cri+klog",
	// "journal-json+klog", "klog-json", "logrus", "dmesg", "describe", "bare".
	Format string
	Sample bool // contains no literal; yielded for its stamps
}

// Options selects what Scan yields.
type Options struct {
	// Next returns where the first literal in a text begins, or -1; Longest is the length of the longest literal in
	// bytes. Only records that contain one are yielded, and samples. Without Next, no record contains one.
	Next    func([]byte) int
	Longest int
	// Wanted, if set, also has the records yielded for whose text it is true. The text of a record that has one line and
	// no colours is that line, at an offset in the unpacked stream.
	Wanted func(offset int64, line []byte) bool
	// All yields every record.
	All bool
	// Live is set if the text is still being written: nothing is read ahead, and it is not decompressed. When a Read
	// returns neither bytes nor an error, nothing more has been written yet, and the last record is yielded too.
	Live bool
	// SampleEvery yields also every n-th record that has a stamp, and the first and the last. 0 yields none.
	SampleEvery int
	// Progress, if set, is called now and then with the number of bytes of the unpacked stream that were read.
	Progress func(read int64)

	maxRecord int // bounds a record, in bytes; 0 is 1 MiB. The rest of a longer one is not read
}

const defaultMaxRecord = 1 << 20

// Stats counts what Scan has read.
type Stats struct {
	Lines int64 // lines, the last one with or without a line feed
	Bytes int64 // of the unpacked stream, in UTF-8
	// Unparsed counts the lines that are not empty, do not begin a record of a known form and do not continue one,
	// except bare ones with a literal in them.
	Unparsed    int64
	Binary      int64  // of these, the lines that are not text
	Records     int64  // beginnings seen
	Format      string // of most of the records that were yielded; of the first sample if there was none
	Compression string // gzip, xz, zstd, bzip2, or empty
	// Truncated lists the stretches that could not be read in full: records longer than 1 MiB, bytes that are not text,
	// damaged compression. At most 1,000; neighbours are put together.
	Truncated []Range
	// HeaderYear is the year in a head such as "Log file created at:" of klog or "-- Logs begin at" of journalctl; 0 if
	// there is none.
	HeaderYear int
}

const whyLong = "record longer than the limit"

// A Range is a stretch of the unpacked stream. Bytes is -1 if its length is unknown.
type Range struct {
	Offset, Bytes int64
	Why           string
}

const maxRanges = 1000

// addRange notes a stretch that could not be read, together with the one before it if that is of the same kind.
func (s *Stats) addRange(r Range) {
	if n := len(s.Truncated); n > 0 {
		last := &s.Truncated[n-1]
		near := r.Offset-(last.Offset+last.Bytes) <= 1 || n == maxRanges
		if last.Why == r.Why && last.Bytes >= 0 && r.Offset >= last.Offset && near {
			last.Bytes = r.Offset + r.Bytes - last.Offset
			return
		}
		if n == maxRanges {
			return
		}
	}
	s.Truncated = append(s.Truncated, r)
}

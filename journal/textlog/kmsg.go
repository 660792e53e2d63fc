package textlog

import (
	"bytes"
	"strconv"

	"github.com/kdiag/kdiag/journal/klog"
)

// Kmsg parses one record of /dev/kmsg, `6,339,5140900,-;NET: Registered protocol family 10`: priority and facility, number,
// µs since the machine started, flags, text, and lines of key=value behind a blank, which are left out (the kernel's
// Documentation/ABI/testing/dev-kmsg). The slices of the record are parts of b.
func Kmsg(b []byte) (Record, bool) {
	head, text, ok := bytes.Cut(b, []byte(";"))
	parts := bytes.Split(head, []byte(","))
	if !ok || len(head) > 100 || len(parts) < 4 {
		return Record{}, false
	}
	pri, err1 := strconv.ParseUint(string(parts[0]), 10, 16)
	_, err2 := strconv.ParseUint(string(parts[1]), 10, 64)
	micros, err3 := strconv.ParseInt(string(parts[2]), 10, 63)
	if err1 != nil || err2 != nil || err3 != nil || micros < 0 {
		return Record{}, false
	}
	text, _, _ = bytes.Cut(text, []byte("\n"))
	return Record{
		Raw: b, Message: text, Monotonic: micros, Kernel: pri>>3 == 0, Severity: severityOfPriority(int(pri & 7)),
		Outer: klog.Stamp{Micros: micros, Known: true, Monotonic: true}, Format: "kmsg",
	}, true
}

// severityOfPriority returns klog's letter for a level of syslog.
func severityOfPriority(p int) byte {
	switch {
	case p <= 2:
		return 'F'
	case p == 3:
		return 'E'
	case p == 4:
		return 'W'
	}
	return 'I'
}

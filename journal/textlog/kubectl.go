package textlog

import (
	"bytes"
	"time"

	"github.com/kdiag/kdiag/internal/lazyregexp"
	"github.com/kdiag/kdiag/journal/klog"
)

// Rows of kubectl describe node and kubectl get events.
var (
	// conditionRow matches `Ready  False  Fri, 28 Jun 2019 10:19:21 +0800  Thu, ...`; the time is LastHeartbeatTime.
	conditionRow = lazyregexp.New(`^(?:\S+\s+)?(?:True|False|Unknown)\s+` +
		`(\w{3}, \d\d \w{3} \d{4} [0-9:]{8} [-+]\d{4})`)
	// eventRow matches an event: its type stands beside its age, in either order.
	eventRow = lazyregexp.New(`^(?:(?:\S+\s+){0,2}(?:Normal|Warning)\s+\S+\s+` + age + `\s|(?:\S+\s+)?` + age +
		`\s+(?:\S+\s+){0,4}(?:Normal|Warning)\s)`)
	// reasonRow matches the end of a condition: a reason in CamelCase, wide blanks, the message.
	reasonRow = lazyregexp.New(`^[A-Z][a-z]+[A-Z][A-Za-z]{1,60}  +\S`)
)

const age = `(?:(?:\d+[smhdy])+|<unknown>|<invalid>)`

// parseDescribe parses a condition of a node, whole or without its first columns, or an event. The ages of events count
// from an unknown time.
func parseDescribe(b []byte) (s klog.Stamp, ok bool) {
	b = b[:min(len(b), 1024)]
	if bytes.IndexByte(b, ',') < 0 && !bytes.Contains(b, []byte("  ")) && bytes.IndexByte(b, '\t') < 0 {
		return s, false
	}
	if m := conditionRow.FindSubmatch(b); m != nil {
		when, err := time.Parse(time.RFC1123Z, string(m[1]))
		_, offset := when.Zone()
		return klog.Stamp{
			Micros: when.UnixMicro() + int64(offset)*1e6, Known: true, Year: true, Zone: true, Offset: int32(offset),
		}, err == nil
	}
	return s, eventRow.Match(b) || reasonRow.Match(b)
}

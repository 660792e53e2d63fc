package journal

import (
	"bytes"
	"time"
)

// conditionTime reads when a node condition was written: LastHeartbeatTime, as Go prints a time or as JSON has it. It
// tells the year and the zone that klog's header next to it lacks.
//
//	{Type:Ready Status:False LastHeartbeatTime:2017-05-05 13:59:56.872865742 +0000 UTC m=+1.5 LastTransition...
//	{"type":"Ready","status":"False","lastHeartbeatTime":"2026-11-21T00:52:12Z","lastTransitionTime":...
func conditionTime(msg []byte) (us int64, ok bool) {
	if i := bytes.Index(msg, []byte("LastHeartbeatTime:")); i >= 0 {
		rest := msg[i+len("LastHeartbeatTime:"):]
		rest = rest[:min(len(rest), 64)]
		parts := bytes.Fields(rest)
		if len(parts) < 3 {
			return 0, false
		}
		t, err := time.Parse("2006-01-02 15:04:05 -0700", string(parts[0])+" "+string(parts[1])+" "+string(parts[2]))
		return t.UnixMicro(), err == nil
	}
	if i := bytes.Index(msg, []byte("lastHeartbeatTime")); i >= 0 {
		rest := bytes.TrimLeft(msg[i+len("lastHeartbeatTime"):], `\": `)
		end := bytes.IndexAny(rest, `\", }`)
		if end < 0 || end > 40 {
			return 0, false
		}
		t, err := time.Parse(time.RFC3339, string(rest[:end]))
		return t.UnixMicro(), err == nil
	}
	return 0, false
}

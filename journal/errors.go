package journal

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/kdiag/kdiag/journal/klog"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/journal/textlog"
)

// An ErrorGroup is a group of error and warning records of one daemon that differ only in their variable parts:
// numbers, ids, names, times. Records that a healthy daemon writes too are in none.
type ErrorGroup struct {
	Lane     string     `json:"lane"`               // kubelet or runtime
	Unit     string     `json:"unit,omitempty"`     // of systemd, or the daemon's name, where the source knows it
	Severity string     `json:"severity,omitempty"` // error or warning
	Template string     `json:"template"`           // the text that they share, with <*> for each variable part
	Example  string     `json:"example"`            // the newest record, cleaned; of a long one both its ends
	Code     string     `json:"code,omitempty"`     // the signature of the catalogue that matches it, if one does
	Count    int64      `json:"count"`
	First    *time.Time `json:"first,omitempty"`
	Last     *time.Time `json:"last,omitempty"`
	Since    *time.Time `json:"since,omitempty"` // from when to Last no two records lie farther apart than ErrorPause
	Pods     []string   `json:"pods,omitempty"`  // namespace/name of the pods that they name; bounded
}

// ErrorPause is the longest time between two records of an error that goes on: the kubelet tries again to start a pod
// after 10 to 15 s (backOffPeriod and workerBackOffPeriodJitterFactor in
// pkg/kubelet/kubelet.go and pod_workers.go), and a pause of 24 s was measured with one pod.
const ErrorPause = 40 * time.Second

// Bounds of the groups.
const (
	maxErrorGroups = 200 // of a source: beyond, the one that was silent for longest goes
	mostErrors     = 100 // of a report
	mostErrorPods  = 10  // of a group
)

// The severities of records.
const (
	severityError   = "error"
	severityWarning = "warning"
)

// severity returns how serious a record is by its first bytes: error, warning, or empty for less and for records in
// another form than the kubelet's and the runtimes': klog, logrus, and the JSON of both. It allocates nothing.
func severity(b []byte) string {
	const near = 256 // bytes in which a level stands
	if len(b) < 20 {
		return ""
	}
	switch b[0] {
	case 'E', 'F', 'W':
		if !klog.Begins(b) {
			return ""
		}
		if b[0] == 'W' {
			return severityWarning
		}
		return severityError
	case 't', 'l':
		if head := b[:min(len(b), 64)]; bytes.HasPrefix(b, []byte(`time="`)) || bytes.HasPrefix(b, []byte("level=")) {
			if i := bytes.Index(head, []byte("level=")); i >= 0 {
				return level(head[i+len("level="):])
			}
		}
	case '{':
		head := b[:min(len(b), near)]
		if i := bytes.Index(b, []byte(`"level":"`)); i >= 0 {
			return level(b[i+len(`"level":"`):])
		}
		// klog's JSON has no level: each record but an error has its verbosity.
		if bytes.HasPrefix(head, []byte(`{"ts":`)) && bytes.Contains(head, []byte(`"caller":"`)) &&
			!bytes.Contains(b, []byte(`"v":`)) {
			return severityError
		}
	}
	return ""
}

// level returns the severity of a level of logrus, by its first four letters.
func level(b []byte) string {
	switch begin := string(b[:min(len(b), 4)]); begin {
	case "erro", "fata", "pani":
		return severityError
	case "warn":
		return severityWarning
	}
	return ""
}

// lineSeverity is severity for a line of a text, which may begin with what syslog puts in front.
func lineSeverity(b []byte) string {
	if s := severity(b); s != "" {
		return s
	}
	const longest = 128 // bytes of what syslog puts in front
	if i := bytes.Index(b[:min(len(b), longest)], []byte("]: ")); i >= 0 {
		return severity(b[i+len("]: "):])
	}
	return ""
}

// mayBeError reports whether a line of a text can be an error of the last minutes. A file that did not change within
// the range asked for has none of them, and of a long one only the end can.
func (s *source) mayBeError(offset int64, line []byte) bool {
	return s.reader.opts.everySync && s.size-offset <= mostText && !s.changed.Before(s.reader.opts.Since) &&
		(lineSeverity(line) != "" || isOutput(line))
}

// An errorGroup is a group of one source, whose times are not resolved yet.
type errorGroup struct {
	ErrorGroup
	first, last, since timestamp
	example            []byte
}

// An errorKey holds the facts that records of a group share.
type errorKey struct{ lane, unit, severity, template string }

// errorRecord counts a record in its group if it is an error or a warning of the kubelet or the runtime, within the
// range asked for, and one that a healthy daemon does not write.
func (s *source) errorRecord(r *textlog.Record, t timestamp) {
	if !s.reader.opts.everySync {
		return
	}
	how := lineSeverity(r.Raw)
	if how == "" || s.side(t) != 0 || ofCanary(r) {
		return
	}
	lane, unit := daemonOf(r)
	message := withoutSpec(signature.Unstamped(r.Message[:min(len(r.Message), 8*exampleLength)]))
	if lane == "" || signature.Ordinary(lane, message) {
		return
	}
	key := errorKey{string(lane), unit, how, template(message)}
	g := s.matches.errors[key]
	if g == nil {
		g = s.matches.newErrorGroup(key, t)
	}
	if before(g.last, t) {
		at, known := t.raw()
		if last, ok := g.last.raw(); known && ok && at-last > ErrorPause.Microseconds() {
			g.since = t
		}
		g.last, g.example = t, append(g.example[:0], message...)
	}
	g.Count++
	if len(s.found) > 0 && g.Code == "" {
		g.Code = s.found[0].Signature.Code
	}
	if pod := signature.PodOf(message); pod != "" {
		g.addPods(pod)
	}
}

func (g *ErrorGroup) addPods(names ...string) {
	for _, pod := range names {
		if len(g.Pods) < mostErrorPods && !slices.Contains(g.Pods, pod) {
			g.Pods = append(g.Pods, pod)
		}
	}
}

// newErrorGroup adds a group. When there are too many, the one whose last record is oldest goes.
func (s *matches) newErrorGroup(key errorKey, t timestamp) *errorGroup {
	if len(s.errors) >= maxErrorGroups {
		var oldest errorKey
		at := timestamp{seq: 1<<32 - 1}
		for k, g := range s.errors {
			if g.last.seq < at.seq {
				oldest, at = k, g.last
			}
		}
		delete(s.errors, oldest)
	}
	g := &errorGroup{ErrorGroup: ErrorGroup{
		Lane: key.lane, Unit: key.unit, Severity: key.severity, Template: key.template,
	}, first: t, since: t}
	s.errors[key] = g
	return g
}

// daemonOf returns whether a record is of the kubelet or the runtime, and the unit or the program that wrote it.
func daemonOf(r *textlog.Record) (lane signature.Lane, unit string) {
	role, name := senderRole(r)
	switch role {
	case RoleKubelet:
		lane = signature.Kubelet
	case RoleRuntime:
		lane = signature.Runtime
	}
	return lane, Clean(name, 100)
}

// withoutSpec takes out of an error of the kubelet the dump of a container, which has its environment and its command
// (startContainer in pkg/kubelet/kuberuntime/kuberuntime_manager.go, up to 1.33), and the command of an ExecSync.
func withoutSpec(message []byte) []byte {
	for _, part := range [...]struct{ begin, end string }{
		{"&Container{", "} start failed in pod "},
		{" cmd=[", "]"},
		{` cmd="`, `" `},
	} {
		begin := bytes.Index(message, []byte(part.begin))
		if begin < 0 {
			continue
		}
		begin += len(part.begin)
		out := append(slices.Clone(message[:begin]), "…"...)
		if end := bytes.LastIndex(message[begin:], []byte(part.end)); end >= 0 {
			out = append(out, message[begin+end:]...)
		}
		message = out
	}
	return message
}

// errorGroups returns the groups of all sources with the same daemon and template as one, the most often first.
func (h *history) errorGroups() []ErrorGroup {
	var parts []*errorGroup
	for _, s := range h.sources {
		for _, g := range s.matches.errors {
			part := *g // the source goes on with its own
			for _, t := range []*timestamp{&part.first, &part.last, &part.since} {
				t.at, t.known = s.cal.instant(*t)
			}
			part.Example = ends(string(part.example))
			part.First, part.Last, part.Since = part.first.time(), part.last.time(), part.since.time()
			part.Pods = slices.Clone(part.Pods)
			parts = append(parts, &part)
		}
	}
	slices.SortStableFunc(parts, func(a, b *errorGroup) int { return byTime(a.First, b.First, 0) })
	all := map[errorKey]*ErrorGroup{}
	for _, g := range parts {
		key := errorKey{g.Lane, g.Unit, g.Severity, g.Template}
		if all[key] == nil {
			all[key] = &g.ErrorGroup
		} else {
			all[key].join(&g.ErrorGroup)
		}
	}
	var out []ErrorGroup
	for _, g := range all {
		slices.Sort(g.Pods)
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b ErrorGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), byTime(a.First, b.First, 0), cmp.Compare(a.Lane, b.Lane),
			cmp.Compare(a.Template, b.Template), cmp.Compare(a.Unit, b.Unit), cmp.Compare(a.Severity, b.Severity))
	})
	return out[:min(len(out), mostErrors)]
}

// join adds a group of another source that began later: the next file of a journal that was rotated.
func (g *ErrorGroup) join(o *ErrorGroup) {
	g.Count += o.Count
	if g.Last == nil || o.Last != nil && o.Last.After(*g.Last) {
		if g.Last == nil || o.Since == nil || o.Since != nil && o.Since.Sub(*g.Last) > ErrorPause ||
			o.First != nil && !o.Since.Equal(*o.First) {
			g.Since = o.Since
		}
		g.Last, g.Example = o.Last, o.Example
	}
	g.Code = cmp.Or(g.Code, o.Code)
	g.addPods(o.Pods...)
}

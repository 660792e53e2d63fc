package signature

import "strings"

// unitSuffixes are the kinds of units that processes run in.
func unitSuffixes() []string { return []string{".service", ".scope", ".slice"} }

// readUnitOf reads systemd's message about a unit: its name, what it is, how it ended, and counters.
func readUnitOf(s string, h *Hit) {
	h.Unit, h.Role = unitOf(s, len(s))
	if rest, ok := after(s, " messages from "); ok {
		unit := upTo(strings.TrimRight(rest, ". \n"), " \n")
		if _, last, ok := cutLast(unit, "/"); ok {
			unit = last
		}
		h.Unit, h.Role = keep(unit), roleOf(unit)
	}
	if before, rest, ok := strings.Cut(s, "uppressed "); ok && len(before) > 0 {
		h.Count = leadingInt(rest)
	}
	if rest, ok := after(s, "restart counter is at "); ok {
		h.Count = leadingInt(rest)
	}
	if rest, ok := after(s, "process exited, "); ok {
		h.ErrorText = errorText(upTo(rest, "\n"))
	} else if rest, ok := after(s, "result '"); ok {
		h.ErrorText = errorText(upTo(rest, "'\n"))
	}
	if rest, ok := after(s, "timeout (limit "); ok {
		h.Seconds = span(upTo(rest, ")"))
	}
}

// span reads a time span in seconds as systemd prints it, such as "1min 30s" or "500ms".
func span(s string) float64 {
	seconds := 0.0
	for _, part := range strings.Fields(s) {
		n := float64(leadingInt(part))
		switch strings.TrimLeft(part, "0123456789.") {
		case "h":
			seconds += 3600 * n
		case "min":
			seconds += 60 * n
		case "s":
			seconds += n
		case "ms":
			seconds += n / 1000
		}
	}
	return seconds
}

// unitOf returns the unit that a record is about, and its role. The nearest name that ends before an offset comes first, since systemd's
// messages begin with it. Where only the description of a known unit stands, it returns that.
func unitOf(s string, at int) (name string, role Lane) {
	for _, part := range []string{s[:min(at, len(s))], s} {
		name = unitBefore(part)
		if role = roleOf(name); role != "" {
			return keep(name), role
		}
	}
	for _, n := range unitNames() {
		if strings.Contains(s, n.text) && !strings.HasSuffix(n.text, ".service") {
			return n.text, n.role
		}
	}
	for _, verb := range []string{"Started Kubelet", "Stopped Kubelet", "Stopping Kubelet", "Failed to start Kubelet"} {
		if strings.Contains(s, verb) {
			return "Kubelet", Kubelet
		}
	}
	if _, program, ok := strings.Cut(s, " INFO "); ok {
		return supervisedUnit(program)
	}
	return keep(name), ""
}

// UnitLane tells what a unit is, Kubelet, Runtime or empty, by its name or its description.
func UnitLane(name string) Lane {
	_, lane := unitOf(name, len(name))
	return lane
}

// supervisedUnit reads the program in supervisord's "success: kubelet entered RUNNING state" and "exited: docker (exit status 2)".
func supervisedUnit(s string) (name string, role Lane) {
	_, rest, _ := strings.Cut(s, ": ")
	name = upTo(rest, " ,\n")
	return keep(name), roleOf(name + ".service")
}

// unitBefore returns the last unit name in s.
func unitBefore(s string) string {
	end := -1
	for _, suffix := range unitSuffixes() {
		if i := strings.LastIndex(s, suffix); i >= 0 {
			end = max(end, i+len(suffix))
		}
	}
	if end < 0 {
		return ""
	}
	begin := end
	for begin > 0 && (isWord(s[begin-1]) || strings.IndexByte(`.-@:\`, s[begin-1]) >= 0) {
		begin--
	}
	return strings.Trim(s[begin:end], ":")
}

// roleOf tells what a unit is by its name.
func roleOf(name string) Lane {
	name = strings.TrimPrefix(name, "snap.microk8s.daemon-")
	for _, n := range unitNames() {
		if name == n.text {
			return n.role
		}
	}
	return ""
}

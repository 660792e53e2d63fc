package facts

import "cmp"

// systemdSilent reports whether systemd is there and does not answer.
func systemdSilent(f *Facts) bool {
	l := f.Seen.Systemd
	return !l.Value.Answered && (l.Value.Hung || l.Hung && !l.OK)
}

// busSilent reports whether systemd answers on its own socket, and not over the message bus by which runc and the kubelet ask it.
func busSilent(f *Facts) bool {
	s := f.Seen.Systemd.Value
	return s.Answered && s.BusHung && !s.BusAnswered
}

// systemdSlow reports whether systemd took too long for an answer.
func systemdSlow(f *Facts) bool {
	s, limit := f.Seen.Systemd.Value, f.Limits.Node.SlowSystemd
	return s.Answered && limit > 0 && s.Took >= limit
}

// unitsLeak reports whether units pile up that are over.
func unitsLeak(f *Facts) bool {
	limit := f.Limits.Node.LeakedUnits
	return limit > 0 && f.Seen.Systemd.Value.Inactive >= limit
}

// jobsWait reports whether systemd is behind with what it was asked to do. At boot that is so for a while.
func jobsWait(f *Facts) bool {
	s, limit := f.Seen.Systemd.Value, f.Limits.Node.WaitingJobs
	return limit > 0 && s.Jobs >= limit && s.State != "starting" && s.State != "initializing"
}

// systemdDriver says by what containers get their cgroups: systemd, cgroupfs, or empty when it is not known.
func systemdDriver(f *Facts) string {
	n := f.Seen
	return cmp.Or(n.RuntimeDriver.Value, n.Settings.Value.CgroupDriver)
}

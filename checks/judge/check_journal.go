package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// logged reads a check that needs the logs of the node.
func logged(read func(*facts.Facts) checks.Result) func(*facts.Facts) checks.Result {
	return func(f *facts.Facts) checks.Result {
		if status, why := facts.LogUnread(f); status != "" {
			return result(status, "%s", why)
		}
		return read(f)
	}
}

// quietKubelet is the result when the journal holds nothing bad of the kubelet: one that does not log there is not
// known to be well.
func quietKubelet(f *facts.Facts, good string) checks.Result {
	if !facts.KubeletLogs(f) && f.Kubelet == nil {
		return skipped("no kubelet entries, and no kubelet runs on this host")
	}
	if why := f.Log.KubeletElsewhere; why != "" {
		return unknown("no kubelet entries: %s", why)
	}
	return ok("%s in the last %s", good, units.Duration(f.Log.Window))
}

func readLogOfPLEG(f *facts.Facts) checks.Result {
	if line := facts.PLEGRecovered(f); line != "" {
		return ok("%s", line)
	}
	if line := facts.PLEGLine(f); line != "" { // of another runtime than the one that was asked
		return warning("%s", line)
	}
	return quietKubelet(f, "no record of PLEG being unhealthy")
}

func readLogOfKubelet(f *facts.Facts) checks.Result {
	if r := f.Log.Restarts; r.Count > 0 {
		return warning("%s", r.Line)
	}
	if c := facts.Logged(f, signature.WatchdogWithheld); c != nil {
		return warning("the kubelet withheld its watchdog signal%s: its loop stood still, and systemd will kill it",
			causes.Often(c.Count))
	}
	return quietKubelet(f, "no restart, fatal error or watchdog kill")
}

func readLogOfAPIServer(f *facts.Facts) checks.Result {
	record := facts.Quote(f, f.Log.APIFailure.Record)
	if f.Log.APIOut {
		return critical("the kubelet's calls to it fail %s: %s", facts.SinceText(f, f.Log.APIOutage.From), record)
	}
	if c := facts.Logged(f, signature.CertificateExpired); c != nil {
		return warning("certificates: %s", facts.Quote(f, c.Newest()))
	}
	if last := facts.LastOf(f, signature.APIServerFailed, signature.Unauthorized); last != nil {
		return warning("calls failed, the last at %s: %s", facts.ClockText(f, *last), record)
	}
	return quietKubelet(f, "no failing call to it")
}

func readLogOfKernel(f *facts.Facts) checks.Result {
	if kills := facts.OwnKills(f); len(kills) > 0 {
		return ok("%s", kills[0])
	}
	return ok("no hung task, lockup or kill for memory in the last %s", units.Duration(f.Log.Window))
}

package judge

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

func judgeSettings(f *facts.Facts, s kubelet.Settings) checks.Result {
	own := ""
	if s.Own != "" {
		own = "; " + facts.Clean(s.Own)
	}
	differs := f.Seen.Health.Value.Differs
	switch {
	case len(s.Harmful) > 0:
		h := s.Harmful[0]
		more := ""
		if n := len(s.Harmful) - 1; n > 0 {
			more = "; " + units.Count(n, "other setting") + " as well"
		}
		return warning("%s is %s: %s%s", facts.Clean(h.Name), cmp.Or(facts.Clean(h.Value), "empty"),
			strings.TrimSuffix(facts.Clean(h.Harm), "."), more)
	case len(differs) > 0:
		d := differs[0]
		return warning("the kubelet runs with %s %s; its files and flags have %s, which needs a restart",
			facts.Clean(d.Name), facts.Clean(d.Running), facts.Clean(d.Configured))
	case len(s.Problems) > 0:
		return unknown("%s%s", facts.Clean(s.Problems[0]), own)
	}
	return ok("%s read, no harmful setting%s", units.Count(len(s.Files), "file"), own)
}

func judgeHealthz(f *facts.Facts, h kubelet.Health) checks.Result {
	p := h.Ping
	if p == nil {
		return skipped("the kubelet has no health port")
	}
	url := facts.Clean(p.URL)
	switch {
	case p.Hung:
		return critical("%s: no reply in %s", url, units.Duration(p.Took))
	case p.Status == 200:
		return ok("%s answers; this ping checks neither PLEG nor the runtime", url)
	case p.Status != 0:
		return critical("%s answers HTTP %d", url, p.Status)
	case f.KubeletState.NeverCameUp != nil:
		return critical("%s: %s", url, facts.Clean(p.Err))
	}
	return warning("%s: %s", url, facts.Clean(p.Err))
}

// notRead is the result of a path of the kubelet's server that was not read.
func notRead(f *facts.Facts, h kubelet.Health, path string) checks.Result {
	i := slices.IndexFunc(h.Unread, func(line string) bool { return strings.HasPrefix(line, path+":") })
	switch {
	case h.Missing == "" && i >= 0:
		return unknown("%s", facts.Clean(h.Unread[i]))
	case f.KubeletState.Runs && h.SyncLoop != nil && h.SyncLoop.Denied &&
		h.SyncLoop.Status != http.StatusInternalServerError:
		return unknown("%s: use --kubelet-token FILE (kdiag node --help has the commands)", facts.Clean(h.Missing))
	case f.KubeletState.Runs:
		return unknown("%s", facts.Clean(cmp.Or(h.Missing, "no credential opens it")))
	}
	return skipped("%s", facts.Clean(cmp.Or(h.Missing, "no kubelet runs here")))
}

func judgeServer(f *facts.Facts, h kubelet.Health) checks.Result {
	a := h.SyncLoop
	switch {
	case a == nil || a.Denied:
		return notRead(f, h, "/healthz/syncloop")
	case f.KubeletState.ServerWaits:
		return unknown("%s", causes.ServerWaitsLine(f))
	case a.Hung:
		return critical("%s: no reply in %s", facts.Clean(a.URL), units.Duration(a.Took))
	case a.Status >= 500:
		return critical("%s answers HTTP %d: the sync loop stands still", facts.Clean(a.URL), a.Status)
	case a.Status != 200:
		return unknown("%s: %s", facts.Clean(a.URL), cmp.Or(facts.Clean(a.Err), "no usable answer"))
	}
	return ok("the sync loop ran in the last 5m")
}

func judgeMetrics(f *facts.Facts, h kubelet.Health) checks.Result {
	m, limit := h.Metrics, f.Calls.Threshold
	if m == nil {
		return notRead(f, h, "/metrics")
	}
	if !f.KubeletState.PLEGKnown {
		return unknown("the metrics have no time of a last relist")
	}
	line := fmt.Sprintf("the last good relist began %s ago; the threshold is %s", units.Duration(f.KubeletState.PLEGAge),
		units.Duration(limit))
	switch {
	case f.KubeletState.PLEGAge > limit:
		return critical("%s", line)
	case f.KubeletState.PLEGAge > limit/3:
		return warning("%s", line)
	case m.Relists > 0:
		line += fmt.Sprintf("; %s relists so far, %s in the mean", units.Number(int(min(m.Relists, 1<<62))),
			units.Seconds(m.RelistSeconds/float64(m.Relists)))
	}
	return ok("%s", line)
}

func judgeCertificates(f *facts.Facts, all []kubelet.Certificate) checks.Result {
	if i := slices.IndexFunc(all, func(c kubelet.Certificate) bool { return c.Err != "" }); i >= 0 {
		return unknown("%s: %s", facts.Clean(all[i].Path), facts.Clean(all[i].Err))
	}
	old, rest := replaced(f, all)
	rest = slices.DeleteFunc(slices.Clone(rest), func(c kubelet.Certificate) bool { return causes.IsSelfMade(f, c) })
	switch {
	case len(rest) == 0 && len(all) > 0:
		return ok("the kubelet has only a self-signed serving certificate")
	case len(rest) == 0:
		return skipped("the kubelet has no certificates")
	}
	if i := slices.IndexFunc(rest, func(c kubelet.Certificate) bool { return endsSoon(f, c) }); i >= 0 {
		return warning("the kubelet's %s certificate expires at %s and was not renewed", facts.Clean(rest[i].Role),
			causes.Stamp(rest[i].NotAfter))
	}
	if old != nil {
		return warning("%s holds a certificate until %s only: the kubelet has a newer one, but may not come up again",
			facts.Clean(old.Path), causes.Stamp(old.NotAfter))
	}
	next := slices.MinFunc(rest, func(a, b kubelet.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	return ok("%s, valid until %s at least", units.Count(len(rest), "certificate"), causes.Stamp(next.NotAfter))
}

// replaced takes from the certificates a client's that is over, or nearly so, while another is good.
func replaced(f *facts.Facts, all []kubelet.Certificate) (old *kubelet.Certificate, others []kubelet.Certificate) {
	outdated := func(c kubelet.Certificate) bool { return causes.IsInvalid(c, f.Now) || endsSoon(f, c) }
	client := func(c kubelet.Certificate) bool { return c.Role == facts.ClientCertificate }
	i := slices.IndexFunc(all, func(c kubelet.Certificate) bool { return client(c) && outdated(c) })
	if i < 0 || !slices.ContainsFunc(all, func(c kubelet.Certificate) bool { return client(c) && !outdated(c) }) {
		return nil, all
	}
	return &all[i], slices.Delete(slices.Clone(all), i, i+1)
}

// endsSoon reports whether a certificate should have been renewed by now: the kubelet does so by nine tenths of its
// life.
func endsSoon(f *facts.Facts, c kubelet.Certificate) bool {
	return c.NotAfter.Sub(f.Now) < min(f.Limits.Node.CertificateSoon, c.NotAfter.Sub(c.NotBefore)/10)
}

func judgeAPIServer(f *facts.Facts, s kubelet.Server) checks.Result {
	url := facts.Clean(s.URL)
	switch {
	case url == "": // look has the reason
		return unknown("the API server is not known")
	case !s.Reachable && f.KubeletState.APIQuiet:
		return warning("kdiag cannot reach %s; the kubelet logs no failing call", url)
	case !s.Reachable, s.TLSError != "":
		return critical("cannot reach %s: %s", url, cmp.Or(facts.Clean(s.TLSError+s.Err), "no answer"))
	case s.Status >= 500:
		return warning("%s answers HTTP %d: it is not ready", url, s.Status)
	case s.SkewKnown && s.Skew.Abs() > time.Minute:
		return warning("the API server's clock differs by %s from this one", units.Duration(s.Skew.Abs()))
	case !s.LeaseRead:
		return ok("%s answers in %s (HTTP %d); the lease was not read: %s", url, units.Duration(s.Took), s.Status,
			facts.Clean(s.LeaseErr))
	}
	return ok("%s answers in %s; the lease was renewed %s ago", url, units.Duration(s.Took), units.Duration(s.LeaseAge))
}

// judgeNodeObject reads the check of this node's object.
func judgeNodeObject(f *facts.Facts, s kubelet.Server) checks.Result {
	ready := s.Node.Condition("Ready")
	switch {
	case s.NodeGone:
		return critical("the API server has no Node object for this node")
	case ready == nil:
		return unknown("the Node object was not read: %s", cmp.Or(facts.Clean(s.NodeErr), "no API server was reached"))
	case ready.Status != "True":
		return critical("%s", causes.NotReadyLine(f))
	}
	for _, kind := range []string{"MemoryPressure", "DiskPressure", "PIDPressure"} {
		if line := causes.PressureLine(f, kind); line != "" {
			return warning("%s", line)
		}
	}
	line := "Ready since " + facts.MomentText(f, ready.LastTransitionTime)
	taints := s.Node.Spec.Taints
	for i, taint := range taints[:min(len(taints), facts.MostNamed)] {
		line += []string{"; taints: ", ", "}[min(i, 1)] + facts.Clean(taint.Key+":"+taint.Effect)
	}
	return ok("%s", line)
}

func judgeCgroupDriver(f *facts.Facts, _ string) checks.Result {
	driver, _, known := causes.CgroupDrivers(f)
	settings := f.Seen.Settings
	switch {
	case settings.Skipped:
		return skipped("%s", settings.Why())
	case !settings.OK:
		return unknown("the kubelet's driver is unknown: %s", settings.Why())
	case !known:
		return unknown("the driver of the kubelet or the runtime is not known")
	case f.Target.OtherEndpoint:
		return skipped("%s", facts.EndpointProblem(f))
	}
	return ok("both use %s", driver)
}

func judgeCNI(f *facts.Facts, c kubelet.CNI) checks.Result {
	file := facts.Clean(c.File)
	switch {
	case c.File == "" && f.KubeletState.NetworkReady:
		return skipped("the runtime reports NetworkReady; its configuration is in none of the usual folders")
	case causes.PassedOver(f, c) && f.KubeletState.NetworkReady:
		return skipped("the runtime reports NetworkReady: CRI-O passes over %s, which cannot be used", file)
	}
	var e checks.Evidence
	switch why := causes.CNIEvidence(f, &e); {
	case len(facts.CutOff(f)) > 0:
		return warning("the bridge %s of %s is gone, or pods are not attached to it any more",
			facts.Clean(c.LostBridge), file)
	case c.Apart != "":
		return warning("the %s is in a network namespace of its own", facts.Clean(c.Apart))
	case len(e.Missing) > 0:
		return unknown("%s", e.Missing[0])
	case why != "" || c.Problem != "":
		return warning("%s", e.For[0])
	}
	return ok("%s, network %s, %s", file, cmp.Or(facts.Clean(c.Name), "without a name"),
		units.Count(len(c.Plugins), "plugin"))
}

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
	if line := causes.PLEGRecovered(f); line != "" {
		return ok("%s", line)
	}
	if line := causes.PLEGLine(f); line != "" { // of another runtime than the one that was asked
		return warning("%s", line)
	}
	return quietKubelet(f, "no record of PLEG being unhealthy")
}

func readLogOfKubelet(f *facts.Facts) checks.Result {
	if r := f.Log.Restarts; r.Count > 0 {
		return warning("%s, last at %s", r.Line, facts.ClockText(f, *cmp.Or(r.Last, &f.Now)))
	}
	if c := facts.Logged(f, signature.WatchdogWithheld); c != nil {
		return warning("the kubelet withheld its watchdog signal%s: its loop stood still, and systemd will kill it",
			causes.Often(c.Count))
	}
	return quietKubelet(f, "no restart, fatal error or watchdog kill")
}

func readLogOfAPIServer(f *facts.Facts) checks.Result {
	record := causes.Quote(f.Log.APIFailure.Record)
	if f.Log.APIOutage != nil {
		return critical("the kubelet's calls to it fail %s: %s", facts.SinceText(f, f.Log.APIOutage.From), record)
	}
	if c := facts.Logged(f, signature.CertificateExpired); c != nil {
		return warning("certificates: %s", causes.Quote(c.Newest()))
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
	if c := facts.Logged(f, signature.ConntrackFull); c != nil {
		return warning("packets are dropped%s: %s", causes.Often(c.Count), causes.Quote(c.Newest()))
	}
	for _, code := range []string{
		signature.BlockIOError, signature.FilesystemError, signature.HardwareErrorCorrected, signature.LinkDown,
		signature.GPUProgramError, signature.ProcessCrashed,
	} {
		if c := facts.Logged(f, code); c != nil {
			return ok("%s, %s: %s", c.Title, units.Times(int(c.Count)), causes.Quote(c.Newest()))
		}
	}
	return ok("no hung task, lockup or kill for memory in the last %s", units.Duration(f.Log.Window))
}

package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
)

// kubeletChecks are the checks of the kubelet.
func kubeletChecks() []Check {
	return []Check{
		{
			ID:    "kubelet.unit",
			Title: "the kubelet's unit runs",
			Text:  "Asks systemd for the state of the kubelet's unit, its last result and how often systemd restarted it. A host without such a unit is no node, or runs its kubelet in another way: then this is skipped.",
			read:  reading(func(n *facts.Node) facts.Reading[host.Systemd] { return n.Systemd }, judgeKubeletUnit),
		},
		{
			ID:    "kubelet.settings",
			Title: "the kubelet's settings do no harm",
			Text: "Reads the kubelet's configuration file, its drop-ins and its flags, and names what harms the node or hides its trouble: eviction that is turned off, a call deadline that is too short, evented PLEG, and the like. Also settings that " +
				"were changed in the files and that the kubelet, not restarted since, does not run with. What a distribution has by default is told, and is not called harm.",
			read: reading(func(n *facts.Node) facts.Reading[kubelet.Settings] { return n.Settings }, judgeKubeletSettings),
		},
		{
			ID:    "kubelet.healthz",
			Title: "the kubelet's process answers its ping",
			Text:  "Asks the kubelet's health port (10248). It is a ping, which answers as long as the process runs: it sees neither PLEG nor the sync loop nor the runtime, and stays green through an outage of them. kubelet.server looks at those.",
			read:  reading(func(n *facts.Node) facts.Reading[kubelet.Health] { return n.Health }, judgeKubeletHealthz),
		},
		{
			ID:    "kubelet.server",
			Title: "the kubelet's sync loop is at work",
			Text: "Asks /healthz/syncloop on the kubelet's server (10250), which fails when the loop was not entered for five minutes; systemd's watchdog, where the unit sets one, is fed by the same. It needs a credential, and a kubelet that " +
				"reaches the API server to ask whether that lets kdiag in: without either the answer is unknown.",
			read: reading(func(n *facts.Node) facts.Reading[kubelet.Health] { return n.Health }, judgeKubeletServer),
		},
		{
			ID:    "kubelet.metrics",
			Title: "the kubelet's own PLEG is recent",
			Text:  "Reads kubelet_pleg_last_seen_seconds, the time at which the last good relist began. The histogram of relists stays flat while one hangs, since it counts those that ended; this one does not. It needs a credential.",
			read:  reading(func(n *facts.Node) facts.Reading[kubelet.Health] { return n.Health }, judgeKubeletMetrics),
		},
		{
			ID:    "kubelet.certificates",
			Title: "the kubelet's certificates are valid",
			Text: "Reads from when to when the kubelet's client and serving certificates hold. One that is not valid now is critical for the client and a warning for the server; one that ends within seven days, or is in the last tenth of a shorter life, was not renewed when it should " +
				"have been, and is a warning. The one that the kubelet signed itself (kubelet.crt) verifies for nobody and is passed over. A kubelet that renews its certificate goes by the newest; an old one " +
				"that its kubeconfig still holds is a warning, since a start with --bootstrap-kubeconfig looks at that one: its client-certificate and client-key should name kubelet-client-current.pem.",
			read: reading(func(n *facts.Node) facts.Reading[[]kubelet.Certificate] { return n.Certificates }, judgeKubeletCertificates),
		},
		{
			ID:    "kubelet.apiserver",
			Title: "the API server is reached, and has a fresh lease",
			Text: "Asks the API server that the kubelet's kubeconfig names whether it is ready, and for the lease of this node. 401 and 403 are answers: the way is free. A lease older than 40 s (50 s since Kubernetes 1.32) makes the node Unknown. A clock that differs by more than a " +
				"minute is a warning.",
			read: reading(func(n *facts.Node) facts.Reading[kubelet.Server] { return n.Server }, judgeKubeletAPIServer),
		},
		{
			ID:    "kubelet.cgroupdriver",
			Title: "kubelet and runtime use the same cgroup driver",
			Text:  "Compares the kubelet's cgroupDriver with what the runtime says to RuntimeConfig (containerd 2.0, CRI-O 1.28). Where they differ, containers do not start, or run beside the control groups of their pods.",
			read:  reading(func(n *facts.Node) facts.Reading[string] { return n.RuntimeDriver }, judgeKubeletCgroupDriver),
		},
		{
			ID:    "kubelet.cni",
			Title: "a network configuration and its plugins are there",
			Text: "Reads the first file of the CNI folder as the runtime would, and looks for the programs that it names. Without a file that can be used the runtime says NetworkReady=false; without a program that says ready, and pods with a " +
				"network of their own do not start.",
			read: reading(func(n *facts.Node) facts.Reading[kubelet.CNI] { return n.CNI }, judgeKubeletCNI),
		},
	}
}

func judgeKubeletUnit(f *facts.Facts, s host.Systemd) checks.Result {
	return readUnit(f, s, s.Kubelet)
}

// readUnit is the result for a unit that nobody has called down yet.
func readUnit(f *facts.Facts, s host.Systemd, u *host.Unit) checks.Result {
	switch {
	case !s.Answered:
		return result(checks.StatusUnknown, "systemd did not answer")
	case u == nil || u.Load == "not-found":
		return result(checks.StatusSkipped, "systemd has no such unit")
	case u.Active == "activating" || u.Active == "deactivating":
		return result(checks.StatusWarning, "%s", causes.UnitLine(f, u))
	case u.Restarts >= facts.LoopRestarts && !u.Since.IsZero() && f.Now.Sub(u.Since) < facts.LoopFresh:
		return result(checks.StatusWarning, "%s: it does not stay up", causes.UnitLine(f, u))
	case causes.UnitDown(u):
		return result(checks.StatusSkipped, "%s: it is not in use here", causes.UnitLine(f, u))
	}
	return result(checks.StatusOK, "%s", causes.UnitLine(f, u))
}

func judgeKubeletSettings(f *facts.Facts, s kubelet.Settings) checks.Result {
	differs := f.Seen.Health.Value.Differs
	switch {
	case len(s.Harmful) > 0:
		h := s.Harmful[0]
		more := ""
		if n := len(s.Harmful) - 1; n > 0 {
			more = "; " + units.Count(n, "other setting") + " as well"
		}
		return result(checks.StatusWarning, "%s is %s: %s%s", facts.Clean(h.Name), cmp.Or(facts.Clean(h.Value), "empty"), strings.TrimSuffix(facts.Clean(h.Harm), "."), more)
	case len(differs) > 0:
		d := differs[0]
		return result(checks.StatusWarning, "the kubelet runs with %s %s; its files and flags have %s, and take effect with a restart",
			facts.Clean(d.Name), facts.Clean(d.Running), facts.Clean(d.Configured))
	}
	own := ""
	if s.Own != "" {
		own = "; " + facts.Clean(s.Own)
	}
	if len(s.Problems) > 0 {
		return result(checks.StatusUnknown, "%s%s", facts.Clean(s.Problems[0]), own)
	}
	return result(checks.StatusOK, "%s read, nothing in them that harms%s", units.Count(len(s.Files), "file"), own)
}

func judgeKubeletHealthz(f *facts.Facts, h kubelet.Health) checks.Result {
	switch p := h.Ping; {
	case p == nil:
		return result(checks.StatusSkipped, "the kubelet has no health port")
	case p.Hung:
		return result(checks.StatusCritical, "%s accepted and did not answer in %s", facts.Clean(p.URL), units.Duration(p.Took))
	case p.Status == 200:
		return result(checks.StatusOK, "%s answers; it is a ping, and sees neither PLEG nor the runtime", facts.Clean(p.URL))
	case p.Status == 0 && f.Agent.NeverCameUp != nil:
		return result(checks.StatusCritical, "%s: %s", facts.Clean(p.URL), facts.Clean(p.Err))
	case p.Status == 0:
		return result(checks.StatusWarning, "%s: %s", facts.Clean(p.URL), facts.Clean(p.Err))
	default:
		return result(checks.StatusCritical, "%s says %d", facts.Clean(p.URL), p.Status)
	}
}

// notRead is the result of what the kubelet's server did not tell, with the reason.
func notRead(f *facts.Facts, h kubelet.Health, path string) checks.Result {
	if h.Missing == "" {
		for _, line := range h.Unread {
			if strings.HasPrefix(line, path+":") {
				return result(checks.StatusUnknown, "%s", facts.Clean(line))
			}
		}
	}
	status := checks.StatusUnknown
	if !f.Agent.Runs {
		status = checks.StatusSkipped
	}
	return result(status, "%s", cmp.Or(facts.Clean(h.Missing), "no credential opens it"))
}

func judgeKubeletServer(f *facts.Facts, h kubelet.Health) checks.Result {
	switch a := h.SyncLoop; {
	case a == nil || a.Denied:
		return notRead(f, h, "/healthz/syncloop")
	case f.Agent.ServerWaits:
		return result(checks.StatusUnknown, "%s", causes.ServerWaitsLine(f))
	case a.Hung:
		return result(checks.StatusCritical, "%s did not answer in %s", facts.Clean(a.URL), units.Duration(a.Took))
	case a.Status >= 500:
		return result(checks.StatusCritical, "%s says %d: the sync loop stands still", facts.Clean(a.URL), a.Status)
	case a.Status != 200:
		return result(checks.StatusUnknown, "%s: %s", facts.Clean(a.URL), cmp.Or(facts.Clean(a.Err), "an answer that says nothing"))
	}
	return result(checks.StatusOK, "the sync loop was entered in the last five minutes")
}

func judgeKubeletMetrics(f *facts.Facts, h kubelet.Health) checks.Result {
	if h.Metrics == nil {
		return notRead(f, h, "/metrics")
	}
	m := h.Metrics
	history := ""
	if m.Relists > 0 {
		history = fmt.Sprintf("; %s relists so far, %s in the mean", units.Number(int(min(m.Relists, 1<<62))), units.Seconds(m.RelistSeconds/float64(m.Relists)))
	}
	what := "the last good relist began"
	if f.Kubelet != nil && f.Kubelet.EventedPLEG {
		what = "the sync loop last looked at PLEG" // pkg/kubelet/pleg/evented.go writes the time of each look (Healthy)
	}
	switch age, known := f.Agent.PLEGAge, f.Agent.PLEGKnown; {
	case !known:
		return result(checks.StatusUnknown, "no time of a last relist among the metrics%s", history)
	case age > f.Calls.Threshold:
		return result(checks.StatusCritical, "%s %s ago; the threshold is %s", what, units.Duration(age), units.Duration(f.Calls.Threshold))
	case age > f.Calls.Threshold/3:
		return result(checks.StatusWarning, "%s %s ago; the threshold is %s", what, units.Duration(age), units.Duration(f.Calls.Threshold))
	default:
		return result(checks.StatusOK, "%s %s ago%s", what, units.Duration(age), history)
	}
}

func judgeKubeletCertificates(f *facts.Facts, all []kubelet.Certificate) checks.Result {
	var first kubelet.Certificate
	valid := 0
	old, all := replaced(f, all)
	for _, c := range all {
		if c.Err != "" {
			return result(checks.StatusUnknown, "%s: %s", facts.Clean(c.Path), facts.Clean(c.Err))
		}
		if causes.IsSelfMade(f, c) {
			continue
		}
		valid++
		if first.NotAfter.IsZero() || c.NotAfter.Before(first.NotAfter) {
			first = c
		}
	}
	due := slices.IndexFunc(all, func(c kubelet.Certificate) bool { return !causes.IsSelfMade(f, c) && endsSoon(f, c) })
	switch {
	case valid == 0 && len(all) > 0:
		return result(checks.StatusOK, "the kubelet has only the serving certificate that it signed itself")
	case first.NotAfter.IsZero():
		return result(checks.StatusSkipped, "the kubelet has no certificates of its own")
	case due >= 0:
		c := all[due]
		return result(checks.StatusWarning, "the kubelet's %s certificate ends in %s, at %s, and was not renewed", facts.Clean(c.Role), days(c.NotAfter.Sub(f.Now)), causes.Stamp(c.NotAfter))
	case old != nil:
		return result(checks.StatusWarning, "%s holds a certificate until %s only: the kubelet goes by a newer one, but may not come up when it is started anew", facts.Clean(old.Path), causes.Stamp(old.NotAfter))
	default:
		return result(checks.StatusOK, "%s valid, the first until %s", units.Plural(valid, "1 certificate is", units.Number(valid)+" certificates are"), causes.Stamp(first.NotAfter))
	}
}

// replaced takes from the certificates a client's that is over, or nearly so, while another is good.
func replaced(f *facts.Facts, all []kubelet.Certificate) (old *kubelet.Certificate, others []kubelet.Certificate) {
	outdated := func(c kubelet.Certificate) bool {
		return c.Role == facts.ClientCertificate && c.Err == "" && (causes.IsInvalid(c, f.Now) || endsSoon(f, c))
	}
	good := func(c kubelet.Certificate) bool {
		return c.Role == facts.ClientCertificate && c.Err == "" && !outdated(c)
	}
	i := slices.IndexFunc(all, outdated)
	if i < 0 || !slices.ContainsFunc(all, good) {
		return nil, all
	}
	return &all[i], slices.Delete(slices.Clone(all), i, i+1)
}

// endsSoon reports whether a certificate should have been renewed by now: the kubelet does so by nine tenths of its life.
func endsSoon(f *facts.Facts, c kubelet.Certificate) bool {
	return c.NotAfter.Sub(f.Now) < min(f.Limits.Node.CertificateSoon, c.NotAfter.Sub(c.NotBefore)/10)
}

// days writes a time that is long: 3 days, 5h.
func days(d time.Duration) string {
	if d < 48*time.Hour {
		return units.Duration(d.Truncate(time.Minute))
	}
	return units.Count(int(d/(24*time.Hour)), "day")
}

func judgeKubeletAPIServer(f *facts.Facts, s kubelet.Server) checks.Result {
	switch {
	case !s.Reachable && f.Agent.APIQuiet:
		return result(checks.StatusWarning, "kdiag does not reach %s; the kubelet's log shows no failing call", facts.Clean(s.URL))
	case !s.Reachable, s.TLSError != "":
		return result(checks.StatusCritical, "%s is not reached: %s", facts.Clean(s.URL), cmp.Or(facts.Clean(s.TLSError+s.Err), "no answer"))
	case s.Status >= 500:
		return result(checks.StatusWarning, "%s answers %d: it is not ready", facts.Clean(s.URL), s.Status)
	case s.SkewKnown && s.Skew.Abs() > time.Minute:
		return result(checks.StatusWarning, "the API server's clock differs by %s from this one", units.Duration(s.Skew.Abs()))
	case !s.LeaseRead:
		return result(checks.StatusOK, "%s answers in %s (HTTP %d); the lease was not read: %s", facts.Clean(s.URL), units.Duration(s.Took), s.Status, cmp.Or(facts.Clean(s.LeaseErr), "nobody said why"))
	}
	return result(checks.StatusOK, "%s answers in %s; the lease was renewed %s ago", facts.Clean(s.URL), units.Duration(s.Took), units.Duration(s.LeaseAge))
}

func judgeKubeletCgroupDriver(f *facts.Facts, _ string) checks.Result {
	kubelet, _, known := causes.CgroupDrivers(f)
	settings := f.Seen.Settings
	switch {
	case settings.Skipped:
		return result(checks.StatusSkipped, "%s", settings.Why())
	case !settings.OK:
		return result(checks.StatusUnknown, "the kubelet's driver is not known: %s", settings.Why())
	case !known && kubelet == "":
		return result(checks.StatusUnknown, "the kubelet's driver is not known")
	case !known:
		return result(checks.StatusUnknown, "the runtime did not say which driver it uses")
	case f.Target.OtherEndpoint:
		return result(checks.StatusSkipped, "%s", facts.EndpointProblem(f))
	}
	return result(checks.StatusOK, "both use %s", kubelet)
}

func judgeKubeletCNI(f *facts.Facts, c kubelet.CNI) checks.Result {
	switch {
	case c.File == "" && f.Agent.NetworkReady:
		return result(checks.StatusSkipped, "the runtime says NetworkReady; its configuration is in none of the usual folders")
	case c.File == "" && c.Problem != "":
		return result(checks.StatusWarning, "%s", facts.Clean(c.Problem))
	case causes.PassedOver(f, c) && f.Agent.NetworkReady:
		return result(checks.StatusSkipped, "the runtime says NetworkReady: CRI-O passes over %s, which cannot be used, and loads another file", facts.Clean(c.File))
	case c.Problem != "":
		return result(checks.StatusWarning, "%s: %s", facts.Clean(c.ConfDir), facts.Clean(c.Problem))
	case len(c.Missing) > 0:
		return result(checks.StatusWarning, "%s needs %s, which %s not there", facts.Clean(c.File), facts.Clean(units.List(facts.Head(c.Missing, facts.MostNamed))), units.Plural(len(c.Missing), "is", "are"))
	case len(c.BinDirs) == 0:
		return result(checks.StatusUnknown, "%s needs %s, and none of the usual folders of plugins is there", facts.Clean(c.File), facts.Clean(units.List(facts.Head(c.Plugins, facts.MostNamed))))
	}
	return result(checks.StatusOK, "%s, network %s, %s", facts.Clean(c.File), cmp.Or(facts.Clean(c.Name), "without a name"), units.Count(len(c.Plugins), "plugin"))
}

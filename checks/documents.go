package checks

import (
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/plegbench"
)

// The kinds of JSON documents.
const (
	KindReport          = "Report"
	KindRuntimeProbe    = "RuntimeProbe"
	KindRelistBenchmark = "RelistBenchmark"
)

// fill completes a header: what the caller left empty is taken from the facts.
func (h Header) fill(kind string, f *Facts) Header {
	h.APIVersion, h.Kind = APIVersion, kind
	if h.GeneratedAt.IsZero() && f != nil {
		h.GeneratedAt = f.Now
	}
	h.Host = clean(h.Host)
	return h
}

// NewReport judges the facts and makes the document of kdiag pleg and kdiag node.
func NewReport(h Header, f *Facts) *Report {
	causes := noNil(Judge(f))
	v := VerdictOf(f, causes)
	return &Report{
		Header: h.fill(KindReport, f), Runtime: f.runtime(), Status: v, Causes: causes, Relist: f.summary(),
		Checks: noNil(Results(f)), Problems: f.problems(v, scopeSweep),
	}
}

// withoutJournal returns the facts without what the node's logs say: the verdict on a socket, or on a series of relists, is
// not one on the node.
func withoutJournal(f *Facts) *Facts {
	if f == nil {
		return nil
	}
	alone := *f
	alone.Journal, alone.JournalProblem = nil, ""
	return &alone
}

// NewRuntimeProbe judges the facts and makes the document of kdiag runtime. That probe asks for no status of containers,
// so the verdict does not wait for them.
func NewRuntimeProbe(h Header, f *Facts) *RuntimeProbe {
	f = withoutJournal(f)
	causes := noNil(Judge(f))
	v := verdict(f, causes, scopeProbes)
	p := &RuntimeProbe{
		Header: h.fill(KindRuntimeProbe, f), Runtime: f.runtime(), Status: v, Causes: causes,
		Conditions: []Condition{}, RPCs: []RPC{}, Problems: f.problems(v, scopeProbes),
	}
	if f == nil || f.Measurement == nil {
		return p
	}
	m := f.Measurement
	p.Connect = ConnectInfo{
		State: string(m.Connect.State), Seconds: m.Connect.Elapsed.Seconds(), Error: clean(m.Connect.Err), Peer: f.peer(),
	}
	if m.Status != nil {
		for _, c := range m.Status.Conditions {
			p.Conditions = append(p.Conditions, Condition{Type: clean(c.Type), Status: c.Status, Reason: clean(c.Reason), Message: clean(c.Message)})
		}
	}
	for _, c := range m.Probes {
		p.RPCs = append(p.RPCs, RPC{
			Name: clean(c.Method), Seconds: c.Elapsed.Seconds(), Code: clean(string(c.Code)), Error: clean(c.Err),
			Bytes: measured(c.Bytes, c.OK()), Items: measured(c.Items, c.OK() && c.Method != rpcVersion && c.Method != rpcStatus),
		})
	}
	return p
}

// NewRelistBenchmark judges the facts and makes the document of kdiag relist. Its verdict waits for the status of what
// runs only if the benchmark asked for it.
func NewRelistBenchmark(h Header, f *Facts) *RelistBenchmark {
	f = withoutJournal(f)
	causes := noNil(Judge(f))
	want := scopeProbes
	if f != nil && len(f.inspections()) > 0 {
		want = scopeSweep
	}
	v := verdict(f, causes, want)
	problems := f.problems(v, want)
	if line := f.kubeletStands(); line != "" {
		problems = append(problems, line)
	}
	b := &RelistBenchmark{
		Header: h.fill(KindRelistBenchmark, f), Runtime: f.runtime(), Status: v, Causes: causes, Relist: f.summary(),
		RPCs: []plegbench.RPCSummary{}, Samples: []RelistSample{}, Problems: problems,
	}
	if f == nil || f.Measurement == nil {
		return b
	}
	b.RPCs = noNil(plegbench.SummarizeRPCs(f.Measurement))
	if f.Summary != nil {
		b.Forecast = plegbench.ForecastOf(f.Measurement.Samples, f.Summary)
	}
	for _, s := range f.Measurement.Samples {
		b.Samples = append(b.Samples, sampleOf(s))
	}
	return b
}

// kubeletStands says that the kubelet is stopped and so makes no relists of its own: a benchmark measures the runtime, and says
// nothing of the kubelet else.
func (f *Facts) kubeletStands() string {
	if f == nil {
		return ""
	}
	for _, p := range f.processes(host.RoleKubelet) {
		if isStopped(&p) {
			return processLabel(p) + " is " + p.StateWord() + " and makes no relists of its own; these are kdiag's: kdiag pleg looks at the kubelet"
		}
	}
	return ""
}

// sampleOf describes one timed relist.
func sampleOf(s plegbench.Sample) RelistSample {
	out := RelistSample{
		At: s.At, Seconds: max(s.Elapsed(), time.Duration(0)).Seconds(),
		Containers: measured(s.Containers.Items, s.Containers.OK()), Bytes: measured(max(s.Sandboxes.Bytes, s.Containers.Bytes), s.OK()),
	}
	switch {
	case !s.Sandboxes.OK():
		out.Error = callLine(s.Sandboxes)
	case !s.Containers.OK():
		out.Error = callLine(s.Containers)
	}
	return out
}

// measured returns a number that was measured: 0 is one only in an answer.
func measured(n int, answered bool) *int {
	if n == 0 && !answered {
		return nil
	}
	return &n
}

// runtime is Runtime, completed from the answer to Version and safe to print.
func (f *Facts) runtime() Runtime {
	if f == nil {
		return Runtime{}
	}
	r := f.Runtime
	if m := f.Measurement; m != nil && m.Version != nil {
		r.Name = or(r.Name, m.Version.RuntimeName)
		r.Version = or(r.Version, m.Version.RuntimeVersion)
		r.APIVersion = or(r.APIVersion, m.Version.RuntimeAPIVersion)
	}
	return Runtime{
		Endpoint: clean(r.Endpoint), EndpointSource: clean(r.EndpointSource), EndpointReason: clean(r.EndpointReason),
		Name: clean(r.Name), Version: clean(r.Version), APIVersion: clean(r.APIVersion), Simulate: clean(r.Simulate),
	}
}

// summary is Summary with texts that are safe to print.
func (f *Facts) summary() *plegbench.Summary {
	if f == nil || f.Summary == nil {
		return nil
	}
	s := *f.Summary
	s.ResponseRPC = clean(s.ResponseRPC)
	if s.Sweep != nil {
		sweep := *s.Sweep
		sweep.SlowestID, sweep.Reach = clean(sweep.SlowestID), clean(sweep.Reach)
		s.Sweep = &sweep
	}
	return &s
}

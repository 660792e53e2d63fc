package judge

import (
	"fmt"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
)

func hostPressure() Check {
	return Check{
		ID:    "host.pressure",
		Title: "nothing waits long for CPU, memory or disks",
		Text: "Reads /proc/pressure (PSI): the share of the last ten seconds in which tasks waited. io full from 20, memory full from 5 and cpu some from 60 are worth a look; by themselves they " +
			"are no cause, since an idle node with one busy process has them as well. Needs a kernel with PSI.",
		read: func(f *facts.Facts) checks.Result {
			return readReading(f, func(n *facts.Node) facts.Reading[host.Pressure] { return n.Pressure }, func(v0 host.Pressure) checks.Result { return judgePressure(f, v0) })
		},
	}
}

func judgePressure(f *facts.Facts, p host.Pressure) checks.Result {
	l := f.Limits.Node
	var lines []string
	status := checks.StatusOK
	add := func(what string, value, limit float64) {
		lines = append(lines, fmt.Sprintf("%s %.0f%%", what, value))
		if value >= limit {
			status = checks.StatusWarning
		}
	}
	if p.CPU != nil {
		add("cpu some", p.CPU.Some.Avg10, l.CPUSome)
	}
	if p.Memory != nil {
		add("memory full", p.Memory.Full.Avg10, l.MemoryFull)
	}
	if p.IO != nil {
		add("io full", p.IO.Full.Avg10, l.IOFull)
	}
	if len(lines) == 0 {
		return result(checks.StatusSkipped, "this kernel does not account for pressure (PSI)")
	}
	return result(status, "of the last 10 s: %s", strings.Join(lines, ", "))
}

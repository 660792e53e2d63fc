package checks

import (
	"fmt"
	"strings"

	"github.com/kdiag/kdiag/checks/host"
)

func hostPressure() Check {
	return Check{
		ID:    "host.pressure",
		Title: "nothing waits long for CPU, memory or disks",
		Text: "Reads /proc/pressure (PSI): the share of the last ten seconds in which tasks waited. io full from 20, memory full from 5 and cpu some from 60 are worth a look; by themselves they " +
			"are no cause, since an idle node with one busy process has them as well. Needs a kernel with PSI.",
		read: func(f *Facts) Result {
			return readLook(f, func(n *Node) Look[host.Pressure] { return n.Pressure }, f.judgePressure)
		},
	}
}

func (f *Facts) judgePressure(p host.Pressure) Result {
	l := f.nodeLimits()
	var lines []string
	status := StatusOK
	add := func(what string, value, limit float64) {
		lines = append(lines, fmt.Sprintf("%s %.0f%%", what, value))
		if value >= limit {
			status = StatusWarning
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
		return result(StatusSkipped, "this kernel does not account for pressure (PSI)")
	}
	return result(status, "of the last 10 s: %s", strings.Join(lines, ", "))
}

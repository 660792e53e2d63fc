package stacks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// roleNames has names for the roles of checks.Process.
var roleNames = map[string]string{"shim": "shim", "oci": "OCI runtime", "cni": "CNI plugin", "": "child process"}

// Tie names the processes on this host that the holders wait for, and the objects that these serve, where exactly one
// fits: the shim that does not answer, the runc child, the CNI plugin. It is pure.
func Tie(r *checks.StacksReport, all []Candidate) {
	for i := range r.Holders {
		h := &r.Holders[i]
		if h.Process != nil || h.Source < 0 || h.Source >= len(r.Sources) || r.Sources[h.Source].PID == 0 {
			continue // a dump of an unknown process may be of another host
		}
		own := r.Sources[h.Source].PID
		switch h.WaitsFor {
		case WaitsTTRPC:
			shims, runc := stuck(of(all, "shim", own)), stuck(of(all, "oci", own))
			if len(shims) == 0 && len(runc) > 0 { // a shim that runs waits itself where runc hangs
				tie(h, "oci", runc)
			} else {
				tie(h, "shim", shims)
			}
		case WaitsRunc:
			tie(h, "oci", doing(of(all, "oci", own), h.Why))
		case WaitsCNI:
			tie(h, "cni", doing(of(all, "cni", own), h.Why))
		case WaitsChild:
			tie(h, "", slices.DeleteFunc(slices.Clone(all), func(c Candidate) bool { return c.Parent != own }))
		}
	}
}

// of returns the candidates of a role that belong to a daemon or shim, if no other candidate started them.
func of(all []Candidate, role string, own int) (some []Candidate) {
	has := map[int]bool{} // pids of the role
	for _, c := range all {
		has[c.Process.PID] = c.Process.Role == role
	}
	for _, c := range all {
		if c.Process.Role == role && (c.Daemon == own || c.Parent == own) && !has[c.Parent] {
			some = append(some, c)
		}
	}
	return some
}

// command matches the command of an OCI runtime or a CNI plugin in StackHolder.Why.
var command = lazyregexp.New(`runc (\w+)|CNI plugin \((\w+)\)`)

// doing returns the candidates whose command is not another than the one in why.
func doing(all []Candidate, why string) []Candidate {
	m := command.FindStringSubmatch(why)
	return slices.DeleteFunc(all, func(c Candidate) bool {
		return m != nil && c.Work != "" && !strings.EqualFold(c.Work, m[1]+m[2])
	})
}

func stuck(all []Candidate) []Candidate {
	return slices.DeleteFunc(slices.Clone(all), func(c Candidate) bool { return c.Stuck == "" })
}

// tie sets the process of a holder if one fits, or one of several looks stuck. Else it notes as missing why there is
// none.
func tie(h *checks.StackHolder, role string, fit []Candidate) {
	if s := stuck(fit); len(s) > 0 {
		fit = s
	}
	what := roleNames[role]
	missing := fmt.Sprintf("which %s: %d fit", what, len(fit))
	switch {
	case len(fit) == 1:
		p := fit[0].Process
		h.Process, h.Subject = &p, fit[0].Subject
		line := fmt.Sprintf("%s %s (pid %d) is the only one that fits", what, p.Name, p.PID)
		if fit[0].Stuck != "" {
			line += ": " + fit[0].Stuck
		}
		h.Evidence.For = append(h.Evidence.For, line)
		return
	case len(fit) > 0:
		var pids []string
		for _, c := range fit[:min(len(fit), 5)] {
			pids = append(pids, fmt.Sprint(c.Process.PID))
		}
		missing += " (pid " + strings.Join(pids, ", ") + ")"
	case h.WaitsFor == WaitsTTRPC:
		missing = "which shim: none looks stuck"
	default:
		missing = "which " + what + ": none was found that belongs to this process"
	}
	h.Evidence.Missing = append(h.Evidence.Missing, missing)
}

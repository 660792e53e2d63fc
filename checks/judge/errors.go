package judge

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// errorsCheck is the check of the errors that a daemon logs again and again. No cause claims it: what a cause explains
// is left out of it.
const errorsCheck = "journal.errors"

// readErrors is the check before causes are known.
func readErrors(f *facts.Facts) checks.Result {
	if lines := errorLines(f, f.Errors.Repeating); len(lines) > 0 {
		return warning("%s", strings.Join(lines, "; "))
	}
	return quietKubelet(f, "no error logged again and again")
}

// explained is the check where causes explain all errors.
func explained(j judgement) checks.Result {
	return checks.Result{
		ID: errorsCheck, Status: checks.StatusOK,
		Summary: units.Count(len(j.facts.Errors.Repeating), "error") + " repeated while there is " + j.causes[0].Code,
	}
}

// unexplained returns the errors that are repeated and that no cause explains: each follows from a critical cause, and
// those of which the catalogue says so follow from any other.
func unexplained(j judgement) []journal.ErrorGroup {
	if slices.ContainsFunc(j.causes, func(c checks.Cause) bool { return c.Severity == checks.Critical }) {
		return nil
	}
	implies := map[string][]string{}
	for _, s := range signature.Catalogue() {
		implies[s.Code] = s.Implies
	}
	return slices.DeleteFunc(slices.Clone(j.facts.Errors.Repeating), func(g journal.ErrorGroup) bool {
		return slices.ContainsFunc(j.causes, func(c checks.Cause) bool { return slices.Contains(implies[g.Code], c.Code) })
	})
}

// errorLines describes the errors of each daemon by one of them: one that names pods, and is short.
func errorLines(f *facts.Facts, all []journal.ErrorGroup) []string {
	var lines []string
	for _, lane := range []signature.Lane{signature.Kubelet, signature.Runtime} {
		groups := slices.DeleteFunc(slices.Clone(all), func(g journal.ErrorGroup) bool { return g.Lane != string(lane) })
		if len(groups) == 0 {
			continue
		}
		g := slices.MinFunc(groups, func(a, b journal.ErrorGroup) int {
			return cmp.Or(cmp.Compare(min(len(b.Pods), 1), min(len(a.Pods), 1)), cmp.Compare(b.Count, a.Count),
				cmp.Compare(len(a.Example), len(b.Example)))
		})
		line := "the " + string(lane) + " logs an error again and again " + facts.SinceText(f, *g.Since) +
			causes.Often(g.Count) + ": " + causes.Quote(facts.ErrorWords(g.Example))
		if n := len(g.Pods); n > 0 {
			line += "; it names " + units.Plural(n, "pod ", "pods ") +
				facts.Clean(units.List(g.Pods[:min(n, facts.MostNamed)]))
		}
		lines = append(lines, line)
	}
	return lines
}

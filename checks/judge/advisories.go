package judge

import (
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/advisories"
	"github.com/kdiag/kdiag/checks/facts"
)

// advisoryLine is the index of the line about a known bug in the evidence: after the first observation.
const advisoryLine = 1

// withAdvisories adds the known bug that best fits the versions of the node to each cause as which it shows: a line of
// evidence, and a last step. Causes and confidence do not change.
func withAdvisories(f *facts.Facts, all []checks.Cause) []checks.Cause {
	if f.Target.Simulated {
		return all // its versions are made up
	}
	r := facts.RuntimeOf(f)
	runtime := r.Name + "://" + r.Version
	if node := f.Seen.Server.Value.Node; r.Version == "" && node != nil { // a runtime that hangs does not report it
		runtime = node.Status.NodeInfo.ContainerRuntimeVersion
	}
	have := advisories.NodeVersions(runtime, facts.KubeletVersion(f.Seen), f.Kernel)
	have["systemd"] = f.Seen.Systemd.Value.Version
	for i := range all {
		c := &all[i]
		if c.CausedBy != "" {
			continue // its reason is known
		}
		fit := slices.DeleteFunc(advisories.Match(have, c.Code), func(a advisories.Advisory) bool {
			return !a.Shows(append([]string{c.Summary}, c.Evidence.For...)...)
		})
		if len(fit) == 0 {
			continue
		}
		line, step := knownBug(fit[0], have[fit[0].Component])
		for _, other := range fit[1:] {
			line += ", also " + other.ID
		}
		at := min(len(c.Evidence.For), advisoryLine)
		c.Evidence.For = slices.Insert(slices.Clone(c.Evidence.For), at, facts.Clean(line))
		step.Why = facts.Clean(step.Why)
		c.NextSteps = append(slices.Clone(c.NextSteps), step)
	}
	return all
}

// knownBug describes an advisory that fits a version of its component.
func knownBug(a advisories.Advisory, version string) (string, checks.NextStep) {
	name := strings.ReplaceAll(a.Component, "cri-o", "CRI-O")
	line := "known bug of " + name + " " + strings.TrimPrefix(version, "v") + ": " + a.Title + " (" + a.Thread() + ")"
	step := checks.NextStep{Command: "kdiag explain " + a.ID, Touches: checks.TouchesNothing}
	fixed := a.FixedAfter(version)
	if fixed == "" {
		step.Why = "Read about the known bug: no release has a fix"
		return line + ", not fixed in any release", step
	}
	if name == "kernel" || name == "kubelet" {
		name = "the " + name
	}
	step.Why = "Upgrade " + name + " to " + fixed + " or later: a known bug fits"
	if advisories.Packaged(version) && a.Component != "kernel" {
		step.Why += ". This is a distribution's build, which may have the fix"
	}
	return line + ", fixed in " + fixed, step
}

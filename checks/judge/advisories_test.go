package judge

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/kubelet"
)

// TestKnownBugs has one hung status judged with versions that have a known bug and with some that have none: nothing
// changes but a line of evidence and a last step.
func TestKnownBugs(t *testing.T) {
	judged := func(change func(*facts.Input)) checks.Cause {
		in := node(statusHangs("container1-0"))
		in.Runtime.Name, in.Runtime.Version = "containerd", "2.3.4"
		change(in)
		return only(t, in, causes.InspectHang)
	}
	plain := judged(func(*facts.Input) {})
	for _, c := range []struct {
		name       string
		change     func(*facts.Input)
		line, last string // empty for none
	}{
		{"a version with the fix", func(in *facts.Input) { in.Runtime.Version = "v1.7.17" }, "", ""},
		{
			"two bugs", func(in *facts.Input) { in.Runtime.Version = "v1.7.4" },
			"known bug of containerd 1.7.4: the shim deadlocks when a container exits while it is created " +
				"(containerd#9103), fixed in 1.7.8, also ttrpc-168",
			"Upgrade containerd to 1.7.8 or later: a known bug fits: kdiag explain containerd-9103",
		},
		{
			"a distribution's build", func(in *facts.Input) { in.Runtime.Version = "1.6.23~ds1-1+deb12u1" },
			"known bug of containerd 1.6.23~ds1-1+deb12u1: the shim deadlocks when a container exits while it is " +
				"created (containerd#9103), fixed in 1.6.25",
			"Upgrade containerd to 1.6.25 or later: a known bug fits. This is a distribution's build, which may have " +
				"the fix: kdiag explain containerd-9103",
		},
		{
			"a kernel", func(in *facts.Input) { in.Kernel = "5.4.217-126.408.amzn2.x86_64" },
			"known bug of kernel 5.4.217-126.408.amzn2.x86_64: tasks of a container hang in the kernel of Amazon " +
				"Linux 2 (amazon-eks-ami#1071), fixed in 5.4.219-126.411",
			"Upgrade the kernel to 5.4.219-126.411 or later: a known bug fits: kdiag explain amazon-eks-ami-1071",
		},
		{"a simulation", func(in *facts.Input) {
			in.Runtime.Version, in.Runtime.EndpointSource = "v1.7.4", "simulated"
		}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := judged(c.change)
			isKnown := func(line string) bool { return strings.HasPrefix(line, "known bug of ") }
			if i := slices.IndexFunc(got.Evidence.For, isKnown); i < 0 != (c.line == "") {
				t.Fatalf("evidence %q", got.Evidence.For)
			} else if i >= 0 {
				if diff := cmp.Diff(c.line, got.Evidence.For[i]); diff != "" {
					t.Errorf("line (-want +got):\n%s", diff)
				}
				last := got.NextSteps[len(got.NextSteps)-1]
				if diff := cmp.Diff(c.last, last.Why+": "+last.Command); diff != "" {
					t.Errorf("step (-want +got):\n%s", diff)
				}
				got.Evidence.For = slices.DeleteFunc(got.Evidence.For, isKnown)
				got.NextSteps = got.NextSteps[:len(got.NextSteps)-1]
			}
			if c.name == "a simulation" {
				return // whose steps are others
			}
			if diff := cmp.Diff(plain, got); diff != "" {
				t.Errorf("the cause has changed (-without +with):\n%s", diff)
			}
		})
	}
}

// TestNoBugWithoutTheSymptom checks that a version alone says nothing, and that what a row wants to see must be there.
func TestNoBugWithoutTheSymptom(t *testing.T) {
	in := node()
	in.Runtime.Name, in.Runtime.Version, in.Kernel = "containerd", "1.2.0", "5.4.217-126.408.amzn2.x86_64"
	if r := NewReport(checks.Header{}, in); strings.Contains(string(encode(t, r)), "known bug") || len(r.Causes) > 0 {
		t.Errorf("a healthy node: %s", encode(t, r))
	}
	in = node(hangs(everyRPC()...))
	in.Runtime.Name, in.Runtime.Version, in.Measurement.Version = "", "", nil
	in.Node = &facts.Node{}
	in.Node.Server.Value.Node = &kubelet.NodeObject{}
	in.Node.Server.Value.Node.Status.NodeInfo.ContainerRuntimeVersion = "containerd://1.4.3"
	if c := only(t, in, causes.RuntimeHung); !mentions(c.Evidence.For, "containerd#4905") {
		t.Errorf("a runtime that hangs, with the version of the node object: %q", c.Evidence.For)
	}
	in = node(hangs(facts.RPCContainers)) // by what an update of resources is not seen to be behind
	for _, c := range Judge(in) {
		if mentions(c.Evidence.For, "12680") {
			t.Errorf("%s: %q", c.Code, c.Evidence.For)
		}
	}
}

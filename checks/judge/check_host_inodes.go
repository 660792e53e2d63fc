package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
)

func hostInodes() Check {
	return Check{
		ID:    "host.inodes",
		Title: "file systems of runtime, kubelet and logs have inodes",
		Text:  "As host.space, for the number of files that can still be made (5 % is the kubelet's threshold). A file system without a fixed number has enough.",
		read: func(f *facts.Facts) checks.Result {
			return readReading(f, func(n *facts.Node) facts.Reading[[]host.Space] { return n.Spaces }, func(s []host.Space) checks.Result { return judgeSpaces(f, s, true) })
		},
	}
}

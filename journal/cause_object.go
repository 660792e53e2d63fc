package journal

import (
	"fmt"

	"github.com/kdiag/kdiag/journal/signature"
)

// objectCauses look for single objects that hold up the rest: a container, a shim, a list that is too large, CNI.
func objectCauses(c *caseFile) []*suspect {
	k := c.tally()
	var out []*suspect
	for _, judge := range []func(*caseFile, calls) *suspect{
		inspectHang, shimStuck, taskStuck, listTooLarge, tooManyExited, cniHung, networkNotReady,
	} {
		if s := judge(c, k); s != nil {
			out = append(out, s)
		}
	}
	return out
}

// inspectHang is for status calls of single pods or containers that do not come back.
func inspectHang(c *caseFile, k calls) *suspect {
	if k.inspectLate == 0 && (k.peak == 0 && !k.relists.hung() || k.down || k.lists > 0) {
		return nil
	}
	s := accuse("InspectHang", tierObject, 0.25, "Single pods or containers cannot be inspected; the relist waits two minutes for each.")
	if k.inspectLate > 0 {
		s.Confidence += 0.5
		s.because(c.says(signature.InspectFailed))
		if who := c.f.culprits(c.byCode[signature.InspectFailed].bursts); len(who) > 0 {
			s.Confidence += 0.05
		}
	} else {
		s.lacks("records that name what could not be inspected; identical ones are printed once a minute at most")
	}
	switch {
	case k.relists.hung():
		s.Confidence += 0.4
		if k.inspectLate > 0 {
			s.Confidence -= 0.3 // told by the records already
		}
		s.because(k.relists.text())
	case k.peak > 0:
		s.Confidence += 0.1
		s.because(fmt.Sprintf("the worst age is near %d times the 2 min deadline of a call: %d calls hung one after the other", k.peak, k.peak))
	}
	if k.listsLate > 0 || k.down {
		s.Confidence -= 0.4
		s.against("lists or the status do not come back either, so the trouble is wider than these objects")
	}
	return s
}

func shimStuck(c *caseFile, k calls) *suspect {
	n := c.count(signature.ShimUnresponsive, signature.KillFailed, signature.ExitEventFailed)
	if n == 0 && k.objectOps == 0 {
		return nil
	}
	s := accuse("ShimStuck", tierObject, 0.3, "A container's shim or its process does not react.").
		because(c.says(signature.ShimUnresponsive), c.says(signature.KillFailed), c.says(signature.ExitEventFailed), c.says(signature.StopFailed))
	if c.count(signature.ShimUnresponsive) > 0 {
		s.Confidence += 0.35
	}
	if c.count(signature.KillFailed, signature.ExitEventFailed) > 0 {
		s.Confidence += 0.2
	}
	if k.listsLate > 0 && k.down {
		s.Confidence -= 0.1
		s.against("the whole runtime hangs; stopping containers fails in its wake")
	}
	return s
}

func taskStuck(c *caseFile, _ calls) *suspect {
	if c.count(signature.ProcessBlocked) == 0 {
		return nil
	}
	return accuse("TaskStuck", tierObject, 0.6, "A container's process cannot be killed: it waits in the kernel.").because(c.says(signature.ProcessBlocked))
}

func listTooLarge(c *caseFile, k calls) *suspect {
	v := c.byCode[signature.MessageTooLarge]
	if v == nil {
		return nil
	}
	s := accuse("ListTooLarge", tierObject, 0.93, "The answer to a list is larger than gRPC lets through, so no relist can succeed.")
	for _, b := range v.bursts {
		d := c.f.pool.detailOf(b.detail)
		if d.Size == 0 {
			continue
		}
		side := "the kubelet refuses to receive it"
		if d.Sending {
			side = "the runtime refuses to send it"
		}
		s.because(fmt.Sprintf("%d bytes against a limit of %d: %s", d.Size, d.Limit, side))
		break
	}
	if k.lists > 0 {
		s.because(c.says(signature.RelistFailed))
	}
	return s.because(c.says(signature.MessageTooLarge))
}

func tooManyExited(c *caseFile, k calls) *suspect {
	gc := c.count(signature.ContainerGCFailed, signature.RemoveFailed)
	if gc == 0 || k.tooLarge == 0 && c.count(signature.RemoveFailed) < 5 {
		return nil
	}
	s := accuse("TooManyExited", tierObject, 0.35, "Dead containers or sandboxes are not removed and pile up.").
		because(c.says(signature.ContainerGCFailed), c.says(signature.RemoveFailed)).
		lacks("how many there are")
	if k.tooLarge > 0 {
		s.Confidence += 0.25
		s.because("the lists have grown too large to be sent")
	}
	return s
}

// cniHung: the runtime's status takes CNI's lock, so a hung plugin makes the kubelet call the runtime down while lists answer.
func cniHung(c *caseFile, k calls) *suspect {
	n := c.count(signature.CNIFailed)
	if n == 0 {
		return nil
	}
	s := accuse("CNIHung", tierObject, 0.25, "CNI plugins fail or hang: pods cannot be set up or torn down.").because(c.says(signature.CNIFailed))
	if v := c.calls(deadline, nil, signature.CNIFailed); v > 0 {
		s.Confidence += 0.25
		s.because("they miss their deadline")
	}
	if k.down && k.lists == 0 {
		s.Confidence += 0.2
		s.because("the runtime's status hangs and no list is on record as failing, as when CNI's lock is held")
	}
	if k.listsLate > 0 {
		s.Confidence -= 0.15
		s.against("the lists hang too, and these do not wait for CNI")
	}
	return s
}

func networkNotReady(c *caseFile, _ calls) *suspect {
	if c.count(signature.NetworkNotReady, signature.CNINotInitialized) == 0 {
		return nil
	}
	return accuse("NetworkNotReady", tierSymptom, 0.25, "The runtime has no working pod network.").
		because(c.says(signature.NetworkNotReady), c.says(signature.CNINotInitialized)).
		against("a missing network does not make PLEG unhealthy")
}

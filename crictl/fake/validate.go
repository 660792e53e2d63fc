package fake

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Limits on what a scenario may ask for, so that a typing error does not eat the machine's memory.
const (
	maxObjects = 1_000_000 // sandboxes and containers
	maxEntries = 1 << 30   // bytes of both lists

	// MaxOversize bounds Fault.Oversize, in bytes.
	MaxOversize = 256 << 20

	entryBytes = 1_000 // of one list entry without padding, generously
)

// validate reports the first mistake in a scenario, naming the field.
func (s *Scenario) validate() error {
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`).MatchString(s.Name) {
		return fmt.Errorf("name: %q is not 1 to 64 letters, digits, dots, dashes and underscores", s.Name)
	}
	if s.Extends != "" {
		return errors.New("extends: resolved by Parse only")
	}
	return cmp.Or(s.validateRuntime(), validateLatency(s.Latency), validateFaults(s.Faults), s.validatePods())
}

func (s *Scenario) validateRuntime() error {
	switch s.Socket {
	case SocketListen, SocketMissing, SocketRefuse, SocketSilent:
	default:
		return fmt.Errorf("socket: unknown mode %q; one of missing, refuse, silent, or nothing", s.Socket)
	}
	switch s.Runtime.CgroupDriver {
	case "", "systemd", "cgroupfs":
	default:
		return fmt.Errorf("runtime.cgroupDriver: unknown driver %q; systemd or cgroupfs", s.Runtime.CgroupDriver)
	}
	if s.Limits.Send < 0 || s.Limits.Receive < 0 {
		return errors.New("limits: a negative number of bytes")
	}
	for i, c := range s.Conditions {
		if c.Type == "" {
			return fmt.Errorf("conditions[%d].type: missing", i)
		}
	}
	return nil
}

func validateLatency(latencies []Latency) error {
	for i, l := range latencies {
		at := fmt.Sprintf("latency[%d]", i)
		if err := checkRPC(l.RPC); err != nil {
			return fmt.Errorf("%s.rpc: %w", at, err)
		}
		if l.Base < 0 || l.PerItem < 0 || l.Jitter < 0 {
			return fmt.Errorf("%s: a negative duration", at)
		}
	}
	return nil
}

func validateFaults(faults []Fault) error {
	for i, f := range faults {
		if err := f.validate(); err != nil {
			return fmt.Errorf("faults[%d]%w", i, err)
		}
	}
	return nil
}

// Validate returns the first mistake in a fault, in one line.
func (f *Fault) Validate() error {
	if err := f.validate(); err != nil {
		return errors.New(strings.TrimLeft(err.Error(), ".: "))
	}
	return nil
}

// validate returns errors that begin with the field's name and a dot, or a colon.
func (f *Fault) validate() error {
	if err := checkRPC(f.RPC); err != nil {
		return fmt.Errorf(".rpc: %w", err)
	}
	for _, pattern := range []string{f.Object.ID, f.Object.Namespace, f.Object.Pod, f.Object.Container} {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf(".object: %q is not a pattern", pattern)
		}
	}
	if f.Error != "" {
		if _, err := parseRPCError(f.Error); err != nil {
			return fmt.Errorf(".error: %w", err)
		}
	}
	switch {
	case f.Object.Sandbox && f.Object.Container != "":
		return errors.New(".object: sandbox and container exclude each other")
	case min(f.Delay, f.From, f.Until, f.Every, f.For) < 0:
		return errors.New(": a negative duration")
	case f.First < 0 || f.After < 0:
		return errors.New(": a negative count")
	case f.Until != 0 && f.Until <= f.From:
		return errors.New(".until: not after from")
	case (f.Every == 0) != (f.For == 0):
		return errors.New(": every and for belong together")
	case f.For > f.Every:
		return errors.New(".for: longer than every")
	}
	return f.validateAction()
}

// validateAction checks what the fault does to a call, apart from when and to which.
func (f *Fault) validateAction() error {
	switch {
	case f.Oversize < 0 || f.Oversize > MaxOversize:
		return fmt.Errorf(".oversize: not between 1 and %d bytes", MaxOversize)
	case !f.Hang && f.Delay == 0 && f.Error == "" && !f.Drop && f.Oversize == 0:
		return errors.New(": does nothing; give hang, delay, error, drop or oversize")
	case f.Hang && (f.Error != "" || f.Delay != 0):
		return errors.New(": a call that hangs has neither delay nor error")
	case (f.Drop || f.Oversize != 0) && (f.Error != "" || f.Hang && !f.Thaw) || f.Drop && f.Oversize != 0:
		return errors.New(": hang, error, drop and oversize exclude each other")
	case f.Thaw && !f.Hang:
		return errors.New(".thaw: only with hang")
	}
	return nil
}

func (s *Scenario) validatePods() error {
	objects, size := 0, 0
	for i, g := range s.Pods {
		if err := g.validate(); err != nil {
			return fmt.Errorf("pods[%d]%w", i, err)
		}
		perPod := 1 + g.DeadBefore
		for _, c := range g.Containers {
			perPod += 1 + c.Exited
		}
		objects += max(g.Count, 1) * perPod
		size += max(g.Count, 1) * perPod * (entryBytes + g.Padding)
		switch {
		case objects > maxObjects:
			return fmt.Errorf("pods[%d]: more than %d sandboxes and containers in all", i, maxObjects)
		case size > maxEntries:
			return fmt.Errorf("pods[%d]: the lists would be larger than %d MiB", i, maxEntries>>20)
		}
	}
	return nil
}

func (g *PodGroup) validate() error {
	switch {
	case g.Name == "":
		return errors.New(".name: missing")
	case min(g.Count, g.DeadBefore, g.Padding) < 0:
		return errors.New(": a negative count")
	case max(g.Count, g.DeadBefore, g.Padding) > maxObjects:
		return fmt.Errorf(": a count above %d", maxObjects)
	case g.Age < 0:
		return errors.New(".age: a negative duration")
	}
	seen := map[string]bool{}
	for i, c := range g.Containers {
		if err := c.validate(); err != nil {
			return fmt.Errorf(".containers[%d]%w", i, err)
		}
		if seen[c.Name] {
			return fmt.Errorf(".containers[%d].name: %q is given twice", i, c.Name)
		}
		seen[c.Name] = true
	}
	return nil
}

func (c *ContainerGroup) validate() error {
	_, known := containerState(c.State)
	switch {
	case !known:
		return fmt.Errorf(".state: unknown state %q; one of running, created, exited, unknown", c.State)
	case c.Name == "":
		return errors.New(".name: missing")
	case c.Exited < 0 || c.Exited > maxObjects:
		return fmt.Errorf(".exited: not between 0 and %d", maxObjects)
	case c.ExitCode < 0 || c.ExitCode > 255:
		return errors.New(".exitCode: not between 0 and 255")
	case c.Every < 0:
		return errors.New(".every: a negative duration")
	}
	return nil
}

// containerState returns the CRI state of a scenario's name for it; the empty name means running.
func containerState(word string) (runtimeapi.ContainerState, bool) {
	switch word {
	case "", "running":
		return runtimeapi.ContainerState_CONTAINER_RUNNING, true
	case "created":
		return runtimeapi.ContainerState_CONTAINER_CREATED, true
	case "exited":
		return runtimeapi.ContainerState_CONTAINER_EXITED, true
	case "unknown":
		return runtimeapi.ContainerState_CONTAINER_UNKNOWN, true
	}
	return 0, false
}

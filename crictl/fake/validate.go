package fake

import (
	"cmp"
	"errors"
	"fmt"
	"path"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// Limits of a scenario, so that a typing error does not use up the machine's memory.
const (
	maxObjects = 1_000_000 // sandboxes and containers
	maxEntries = 1 << 30   // bytes of both lists

	maxOversize = 256 << 20 // bytes of Fault.Oversize

	entryBytes = 1_000 // of one list entry without padding, generously
)

// containerStates are the states of a container by their names in a scenario.
var containerStates = map[string]runtimeapi.ContainerState{
	"":        runtimeapi.ContainerState_CONTAINER_RUNNING,
	"running": runtimeapi.ContainerState_CONTAINER_RUNNING,
	"created": runtimeapi.ContainerState_CONTAINER_CREATED,
	"exited":  runtimeapi.ContainerState_CONTAINER_EXITED,
	"unknown": runtimeapi.ContainerState_CONTAINER_UNKNOWN,
}

// validName is a scenario's name, which may be empty.
var validName = lazyregexp.New(`^[A-Za-z0-9._-]{0,64}$`)

// validate reports the first mistake in a scenario, naming the field.
func (s *Scenario) validate() error {
	switch {
	case !validName.MatchString(s.Name):
		return fmt.Errorf("name: %q is not up to 64 letters, digits, dots, dashes and underscores", s.Name)
	case s.Extends != "":
		return errors.New("extends: resolved by Parse only")
	case s.Socket != SocketListen && s.Socket != SocketRefuse:
		return fmt.Errorf("socket: unknown mode %q; refuse, or nothing", s.Socket)
	}
	for i, e := range s.Exits {
		if err := e.Object.validate(); err != nil || e.After < 0 {
			return cmp.Or(err, fmt.Errorf("exits[%d]: a negative duration", i))
		}
	}
	return cmp.Or(validateLatency(s.Latency), validateFaults(s.Faults), s.validatePods())
}

func validateLatency(latencies []Latency) error {
	for i, l := range latencies {
		if err := checkRPC(l.RPC); err != nil {
			return fmt.Errorf("latency[%d].rpc: %w", i, err)
		}
		if min(l.Base, l.PerItem, l.Jitter) < 0 {
			return fmt.Errorf("latency[%d]: a negative duration", i)
		}
	}
	return nil
}

func validateFaults(faults []Fault) error {
	for i, f := range faults {
		if err := f.validate(); err != nil {
			return fmt.Errorf("faults[%d]: %w", i, err)
		}
	}
	return nil
}

func (o Object) validate() error {
	for _, pattern := range []string{o.ID, o.Namespace, o.Pod, o.Container} {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("object: %q is not a pattern", pattern)
		}
	}
	return nil
}

// validate returns the first mistake in a fault, in one line.
func (f *Fault) validate() error {
	if err := checkRPC(f.RPC); err != nil {
		return fmt.Errorf("rpc: %w", err)
	}
	if err := f.Object.validate(); err != nil {
		return err
	}
	actions := 0
	for _, given := range []bool{f.Hang, f.Error != "", f.Drop, f.Oversize != 0} {
		if given {
			actions++
		}
	}
	if f.Error != "" {
		if _, err := parseRPCError(f.Error); err != nil {
			return fmt.Errorf("error: %w", err)
		}
	}
	switch {
	case actions == 0 && f.Delay == 0:
		return errors.New("does nothing; give hang, delay, error, drop or oversize")
	case actions > 1 || f.Hang && f.Delay != 0:
		return errors.New("hang, error, drop and oversize exclude each other, and hang and delay")
	case f.Oversize > maxOversize:
		return fmt.Errorf("oversize: more than %d bytes", maxOversize)
	case min(f.Delay, f.From, f.Until, f.Every, f.For) < 0 || min(f.First, f.After, f.Oversize) < 0:
		return errors.New("a negative duration or number")
	case f.Until != 0 && f.Until <= f.From:
		return errors.New("until: not after from")
	case (f.Every == 0) != (f.For == 0) || f.For > f.Every:
		return errors.New("every and for belong together, and for is not longer")
	}
	return nil
}

func (s *Scenario) validatePods() error {
	objects, size := 0, 0
	for i, g := range s.Pods {
		if g.Name == "" {
			return fmt.Errorf("pods[%d].name: missing", i)
		}
		perPod := 1 + g.DeadBefore
		lowest, highest := min(g.Count, g.DeadBefore, g.Padding), max(g.Count, g.DeadBefore, g.Padding)
		seen := map[string]bool{}
		for j, c := range g.Containers {
			at := fmt.Sprintf("pods[%d].containers[%d]", i, j)
			if _, known := containerStates[c.State]; !known {
				return fmt.Errorf("%s.state: unknown state %q; one of running, created, exited, unknown", at, c.State)
			}
			if c.Name == "" || seen[c.Name] {
				return fmt.Errorf("%s.name: %q is missing or given twice", at, c.Name)
			}
			seen[c.Name] = true
			perPod += 1 + c.Exited
			lowest, highest = min(lowest, c.Exited, int(c.Every)), max(highest, c.Exited)
		}
		if lowest < 0 || g.Age < 0 || highest > maxObjects {
			return fmt.Errorf("pods[%d]: a number that is negative or above %d", i, maxObjects)
		}
		objects += max(g.Count, 1) * perPod
		size += max(g.Count, 1) * perPod * (entryBytes + g.Padding)
		if objects > maxObjects || size > maxEntries {
			return fmt.Errorf("pods[%d]: more than %d sandboxes and containers, or than %d MiB, in all", i, maxObjects,
				maxEntries>>20)
		}
	}
	return nil
}

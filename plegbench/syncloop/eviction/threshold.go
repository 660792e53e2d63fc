package eviction

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A Signal is a resource of which a node may run out.
type Signal string

// The signals.
const (
	MemoryAvailable   Signal = "memory.available"
	NodeFsAvailable   Signal = "nodefs.available"
	NodeFsInodesFree  Signal = "nodefs.inodesFree"
	ImageFsAvailable  Signal = "imagefs.available"
	ImageFsInodesFree Signal = "imagefs.inodesFree"
	PIDAvailable      Signal = "pid.available"
)

// Names of resources that only evictions know.
const (
	inodes v1.ResourceName = "inodes"
	pids   v1.ResourceName = "pids"
)

// resource is what a signal is about; empty for a signal that does not exist.
func (s Signal) resource() v1.ResourceName {
	switch s {
	case MemoryAvailable:
		return v1.ResourceMemory
	case NodeFsAvailable, ImageFsAvailable:
		return v1.ResourceEphemeralStorage
	case NodeFsInodesFree, ImageFsInodesFree:
		return inodes
	case PIDAvailable:
		return pids
	}
	return ""
}

// condition is the node's condition that a signal causes.
func (s Signal) condition() v1.NodeConditionType {
	switch s.resource() {
	case v1.ResourceMemory:
		return v1.NodeMemoryPressure
	case pids:
		return v1.NodePIDPressure
	}
	return v1.NodeDiskPressure
}

// A Value is an amount, or a share of what there is.
type Value struct {
	Quantity *resource.Quantity // nil: Share counts
	Share    float32            // 0 to 1
}

// of is the amount, given what there is. A share is in the kubelet's single precision.
func (v Value) of(capacity *resource.Quantity) resource.Quantity {
	if v.Quantity != nil {
		return v.Quantity.DeepCopy()
	}
	return *resource.NewQuantity(int64(float64(capacity.Value())*float64(v.Share)), resource.BinarySI)
}

// A Threshold is met when less than its value is left.
type Threshold struct {
	Signal     Signal
	Value      Value
	Grace      time.Duration // how long it must be met; 0 for a hard threshold
	MinReclaim *Value        // once it is met it stays so until that much more is left
}

// Statements are thresholds as a KubeletConfiguration has them, by signal.
type Statements struct {
	Hard, Soft, SoftGrace, MinReclaim map[string]string
}

// Parse reads thresholds such as memory.available: 100Mi or nodefs.available: 10%.
func Parse(s Statements) ([]Threshold, error) {
	var all []Threshold
	for _, part := range []struct {
		statements map[string]string
		soft       bool
	}{{s.Hard, false}, {s.Soft, true}} {
		for _, key := range slices.Sorted(maps.Keys(part.statements)) {
			t, ignored, err := parseThreshold(Signal(key), part.statements[key])
			if err != nil {
				return nil, err
			}
			if part.soft {
				if t.Grace, err = time.ParseDuration(s.SoftGrace[key]); err != nil || t.Grace < 0 {
					return nil, fmt.Errorf("the soft eviction threshold %s needs a grace period, not %q", key, s.SoftGrace[key])
				}
			}
			if !ignored {
				all = append(all, t)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.MinReclaim)) {
		least, err := parseValue(s.MinReclaim[key])
		if err == nil && Signal(key).resource() == "" {
			err = errNoSignal
		}
		if err != nil {
			return nil, fmt.Errorf("the least amount %q to reclaim of %s: %w", s.MinReclaim[key], key, err)
		}
		for i := range all {
			if string(all[i].Signal) == key {
				all[i].MinReclaim = &least
			}
		}
	}
	return all, nil
}

var errNoSignal = errors.New("there is no such eviction signal")

// parseThreshold reads one threshold. Shares of 0 and 100 % are ignored: they are how a default is switched off.
func parseThreshold(signal Signal, text string) (t Threshold, ignored bool, err error) {
	if signal.resource() == "" {
		return t, false, fmt.Errorf("eviction threshold %s: %w", signal, errNoSignal)
	}
	value, err := parseValue(text)
	if err == nil && value.Quantity != nil && value.Quantity.Sign() <= 0 {
		err = errors.New("must be positive")
	}
	if err != nil {
		return t, false, fmt.Errorf("eviction threshold %s=%s: %w", signal, text, err)
	}
	return Threshold{Signal: signal, Value: value}, text == "0%" || text == "100%", nil
}

// parseValue reads 10% or 1Gi.
func parseValue(text string) (Value, error) {
	if share, ok := strings.CutSuffix(text, "%"); ok {
		percent, err := strconv.ParseFloat(share, 32)
		if err != nil || !(percent >= 0 && percent <= 100) {
			return Value{}, errors.New("must be between 0% and 100%")
		}
		return Value{Share: float32(percent) / 100}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err == nil && q.Sign() < 0 {
		err = errors.New("must not be negative")
	}
	return Value{Quantity: &q}, err
}

// String writes a threshold as the kubelet's log lines do.
func (t Threshold) String() string {
	return fmt.Sprintf("threshold(signal=%v, operator=LessThan, value={%v %v}, gracePeriod=%v)", t.Signal, t.Value.Quantity, t.Value.Share, t.Grace)
}

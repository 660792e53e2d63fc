package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// parsePods counts the pods of a PodList as it comes, so that one pod at a time is held.
func parsePods(body io.Reader) (*Pods, error) {
	dec := json.NewDecoder(body)
	if err := enter(dec, "items"); err != nil {
		return nil, fmt.Errorf("reading the kubelet's pods: %w", err)
	}
	pods := &Pods{ByPhase: map[string]int{}}
	for dec.More() {
		var pod struct {
			Status struct {
				Phase string `json:"phase"`
			} `json:"status"`
		}
		if err := dec.Decode(&pod); err != nil {
			return nil, fmt.Errorf("reading the kubelet's pods: %w", err)
		}
		pods.Total++
		switch phase := pod.Status.Phase; phase {
		case "Pending", "Running", "Succeeded", "Failed":
			pods.ByPhase[phase]++
		default:
			pods.ByPhase["Unknown"]++
		}
	}
	// A list that was cut by a bound or a lost connection is no count.
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("reading the kubelet's pods: %w", err)
	}
	return pods, nil
}

// enter goes to the first element of the list that stands at a key of the outermost object. A list that is null is empty.
func enter(dec *json.Decoder, key string) error {
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errors.New("no list")
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		if name != key {
			var skipped json.RawMessage
			if err := dec.Decode(&skipped); err != nil {
				return err
			}
			continue
		}
		switch t, err := dec.Token(); {
		case err != nil:
			return err
		case t == nil, t == json.Delim('['):
			return nil
		}
		return errors.New("no list")
	}
	return errors.New("no list")
}

package reproduce

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// real turns a time at the kubelet's pace into one of this run.
func (r *run) real(d time.Duration) time.Duration { return time.Duration(float64(d) / r.cfg.Speed) }

// Times at the kubelet's pace.
const (
	startWithin   = 3 * time.Minute
	recoverWithin = 8 * time.Minute // what hangs may hang for 2 m more, and a back-off follows
	pollEvery     = 500 * time.Millisecond
)

// play goes through the phases: all well, fault, NotReady or not, end of the fault, all well.
func (r *run) play(ctx context.Context) error {
	if err := r.await(ctx, startWithin, r.well); err != nil {
		return r.fail(ctx, "the node did not come up", err)
	}
	r.timeline.event(PodRunning, fmt.Sprintf("all %d pods run", r.want))
	s := &r.cfg.Scenario
	for i := range max(1, s.Times) {
		if i > 0 {
			if err := r.wait(ctx, s.Pause); err != nil {
				return err
			}
		}
		if err := r.injectFault(ctx); err != nil {
			return err
		}
	}
	message, notReady := r.timeline.sawNotReady()
	if problem := judge(s.NotReady, message, notReady); problem != "" {
		_ = r.fail(ctx, problem, nil)
	}
	if err := r.await(ctx, recoverWithin, r.well); err != nil {
		return r.fail(ctx, "the node has not recovered", err)
	}
	r.recovered = time.Now()
	r.timeline.event(Recovered, fmt.Sprintf("the node is Ready and all %d pods run", r.want))
	return nil
}

// injectFault lets the fault come, do its work, and go.
func (r *run) injectFault(ctx context.Context) error {
	s := &r.cfg.Scenario
	if err := r.setFault(ctx, true); err != nil {
		return err
	}
	start := time.Now()
	until := func(at time.Duration) error {
		return r.wait(ctx, at-time.Duration(float64(time.Since(start))*r.cfg.Speed))
	}
	err := func() error {
		for _, step := range s.Steps {
			if err := errors.Join(until(step.At), ctx.Err()); err != nil {
				return err
			}
			if err := r.step(ctx, step); err != nil {
				return err
			}
		}
		return until(s.Hold)
	}()
	if ctx.Err() != nil {
		r.stop() // first, so that what the end of the fault releases is not part of the incident
	}
	return errors.Join(err, r.setFault(context.WithoutCancel(ctx), false))
}

// setFault begins or ends what goes wrong.
func (r *run) setFault(ctx context.Context, on bool) error {
	s := &r.cfg.Scenario
	text := "the fault ends"
	if on {
		text = s.Summary
	}
	r.timeline.setFault(on, s.Cause != "", text)
	if r.cfg.Fault != nil {
		return r.cfg.Fault(ctx, on)
	}
	if !on {
		s = &Scenario{}
	}
	conditions := s.Conditions
	if len(conditions) == 0 {
		conditions = r.usual
	}
	r.proxy.SetConditions(conditions)
	return errors.Join(r.proxy.SetDown(s.Down), r.proxy.SetFaults(s.faster(r.cfg.Speed)))
}

// step does something to the pods.
func (r *run) step(ctx context.Context, s Step) error {
	switch s.Do {
	case Die:
		return r.kill(ctx, podName(s.Pod))
	case DieAll:
		for i := range r.cfg.Pods {
			if err := r.kill(ctx, podName(i)); err != nil {
				return err
			}
		}
	case Add:
		r.watch.mu.Lock()
		r.watch.late = true
		r.watch.mu.Unlock()
		r.want++
		r.timeline.event(PodAdded, latePod+": its manifest is there")
		return r.writeManifest(latePod)
	case Flood:
		start := time.Now()
		if err := r.flood(ctx, podName(0), r.cfg.Exited); err != nil {
			return err
		}
		r.flooded = r.cfg.Exited
		r.timeline.event(Flooded, fmt.Sprintf("%s: %d containers have come and exited within %s", podName(0), r.flooded,
			time.Since(start).Round(time.Millisecond)))
	}
	return nil
}

// well returns nil once the node is Ready, the loop turns, all pods run, and nothing is left of a flood.
func (r *run) well(ctx context.Context) error {
	if err := r.watch.settled(r.loop.Snapshot().Pods, r.want); err != nil {
		return err
	}
	if !r.timeline.well() {
		return errors.New("the node is not Ready")
	}
	if r.flooded == 0 {
		return nil
	}
	n, err := r.floodLeft(ctx)
	if err != nil || n > 1 {
		return errors.Join(err, fmt.Errorf("%d exited containers are left", n))
	}
	r.timeline.event(Collected, fmt.Sprintf("%d exited containers are collected; the newest stays", r.flooded-n))
	r.flooded = 0
	return nil
}

// await looks around until a condition holds or its time, at the kubelet's pace and some more, is over. Its error is
// what was still missing.
func (r *run) await(ctx context.Context, within time.Duration, until func(context.Context) error) error {
	deadline := time.Now().Add(r.real(within) + least)
	for {
		if err := r.look(ctx, r.real(pollEvery)); err != nil {
			return err
		}
		if err := until(ctx); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// wait looks around for a time at the kubelet's pace.
func (r *run) wait(ctx context.Context, d time.Duration) error {
	end := time.Now().Add(r.real(d))
	for left := time.Until(end); left > 0; left = time.Until(end) {
		if err := r.look(ctx, min(left, r.real(pollEvery))); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// look sees what has happened after a pause.
func (r *run) look(ctx context.Context, pause time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(max(pause, 5*time.Millisecond)):
		r.watch.look(r.loop.Snapshot())
		return nil
	}
}

// fail records a difference from the scenario. An interrupt is returned instead.
func (r *run) fail(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		what += ": " + err.Error()
	}
	r.missed = append(r.missed, what)
	r.timeline.event(Missed, what)
	return nil
}

// Package reproduce plays an incident from end to end: a runtime, the fault proxy before it, a syncLoop with some
// pods, the fault and its end, until all is well again. It always removes the objects that it creates.
//
// The runtime is the embedded one or a real one; on a real one it runs additional pods on an image that is present,
// and the fault is in the proxy only, so that other clients of the runtime are not affected.
package reproduce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2/textlogger"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fault"
	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop"
)

// A Config configures a run. Scenario, Pods, Speed and Dir are required.
type Config struct {
	Scenario Scenario
	Endpoint string    // of a real runtime; empty: the embedded one
	Pods     int       // at least 2 and the scenario's MinPods
	Exited   int       // how many containers a flood makes
	Image    string    // of the pods, one that runs by itself; empty: the pause image that is there
	Speed    float64   // shortens all times of the kubelet's and the scenario's
	Dir      string    // where to make the folder of the run
	Log      io.Writer // takes the kubelet's log; nil: discarded
	Notify   func(Event)
	Made     func(*syncloop.SyncLoop) // is called with the syncLoop before it runs; may be nil
	// Pause is called before the fault, before its end and before the clean-up, which wait for it; it may be nil. A fault
	// that is held for longer may have more effects than the scenario expects.
	Pause func(ctx context.Context, before string) error
	// Listen and Dialer make and reach the sockets of the embedded runtime and the proxy in memory; nil: the kernel's.
	Listen fake.ListenFunc
	Dialer func(ctx context.Context, socket string) (net.Conn, error)
}

const (
	// least is added to the time of each phase, for a busy machine.
	least = 20 * time.Second
	// cleaning bounds the clean-up, which happens also after an interrupt.
	cleaning = 2 * time.Minute
	// verbosity of the log, as in most distributions.
	verbosity = 2
	// Times at the kubelet's pace.
	startWithin   = 3 * time.Minute
	recoverWithin = 8 * time.Minute // a call may hang for 2 m more, and a back-off follows
	pollEvery     = 500 * time.Millisecond
)

// A run is one play.
type run struct {
	cfg      Config
	folder   *folder
	timeline timeline
	image    string // of the pods
	endpoint string // of the runtime itself
	direct   *remote.Service
	proxy    *fault.Proxy
	loop     *syncloop.SyncLoop
	stop     func()           // begins the end of loop
	usual    []fake.Condition // that Status answers without a fault; empty: the runtime's own
	want     int              // pods
	flooded  int
	report   Report // without the events
}

// Run plays the scenario. The error is one of the surroundings, or the end of ctx; differences from the scenario are
// in the report, which is nil only if nothing could be begun.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if cfg.Log == nil {
		cfg.Log = io.Discard
	}
	f, err := newFolder(cfg.Dir, cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	r := &run{cfg: cfg, folder: f, want: cfg.Pods, endpoint: cfg.Endpoint}
	s, t, out := &cfg.Scenario, &r.timeline, &r.report
	*out = Report{
		Scenario: s.Name, Summary: s.Summary, Cause: s.Cause, Endpoint: cfg.Endpoint, Speed: cfg.Speed, Pods: cfg.Pods,
		NotReadyExpected: s.NotReady != "", Why: s.Why, Missed: []string{}, CleanedUp: true,
	}
	r.timeline = timeline{notify: cfg.Notify, speed: cfg.Speed, node: f.node(), seen: map[string]bool{}}
	err = r.surround(ctx)
	out.Interrupted = ctx.Err() != nil
	out.Events = append([]Event{}, t.events...)
	if !t.notReady.IsZero() {
		out.Reason, out.Message = "KubeletNotReady", t.message
		out.NotReadyAfterSeconds, out.NotReadyAfterKubeletSeconds = t.seconds(t.notReady.Sub(t.first))
	}
	if !out.CleanedUp && cfg.Endpoint != "" {
		return out, err // the folder stays: --cleanup needs it
	}
	return out, errors.Join(err, f.close())
}

// surround starts the runtime and the proxy, plays, and removes everything.
func (r *run) surround(ctx context.Context) error {
	apart := context.WithoutCancel(ctx) // runtime and proxy outlive an interrupt, until they are cleaned
	if r.endpoint == "" {
		healthy, _ := fake.Builtin("healthy")
		_, healthy.Latency = faster(nil, healthy.Latency, r.cfg.Speed)
		server, err := fake.New(healthy)
		if err != nil {
			return err
		}
		server.Listen = r.cfg.Listen
		path := r.folder.path("cri.sock")
		r.endpoint = "unix://" + path
		stop, err := fake.Listen(apart, server, path)
		if err != nil {
			return err
		}
		defer stop()
	}
	var err error
	if r.direct, err = remote.Dial(r.endpoint, remote.Options{
		Timeout: cleaning / 4, Log: logr.Discard(), Dialer: r.cfg.Dialer,
	}); err != nil {
		return err
	}
	defer r.direct.Close()
	if err := r.prepare(ctx); err != nil { // nothing has been made in the runtime yet
		return err
	}
	r.proxy, err = fault.New(fault.Config{
		Backend: r.endpoint, Listen: r.folder.path("proxy.sock"), Dialer: r.cfg.Dialer, Socket: r.cfg.Listen,
	})
	if err != nil {
		return err
	}
	r.proxy.SetConditions(r.usual)
	proxied, stop := context.WithCancel(apart)
	ended := make(chan error, 1)
	go func() { ended <- r.proxy.Run(proxied) }()
	r.report.CleanedUp = false
	err = r.withLoop(ctx)
	stop()
	return errors.Join(err, <-ended, r.clean(apart))
}

// prepare reads the runtime's version and status, chooses the pods' image and writes their manifests.
func (r *run) prepare(ctx context.Context) error {
	version, err := r.direct.Version(ctx)
	if err != nil {
		return fmt.Errorf("asking the runtime at %s for its version: %w", r.endpoint, err)
	}
	r.report.Runtime = version.GetRuntimeName() + " " + version.GetRuntimeVersion()
	status, err := r.direct.Status(ctx)
	if err != nil {
		return fmt.Errorf("asking the runtime at %s for its status: %w", r.endpoint, err)
	}
	for _, c := range status.GetConditions() {
		// A node without CNI will do: the pods are on the host's network.
		if c.GetType() == runtimeapi.NetworkReady && !c.GetStatus() {
			r.usual = []fake.Condition{{Type: runtimeapi.NetworkReady, Status: true}}
		}
	}
	if r.image = r.cfg.Image; r.image == "" {
		list, err := r.direct.ListImages(ctx)
		if err != nil {
			return fmt.Errorf("listing the runtime's images: %w", err)
		}
		if r.image, err = pauseImage(list); err != nil {
			return err
		}
	}
	for i := range r.cfg.Pods {
		if err := r.writeManifest(podName(i)); err != nil {
			return err
		}
	}
	return nil
}

// withLoop runs the syncLoop and plays the scenario meanwhile. It is a kubelet that collects no images and evicts no
// pods: the runtime may be in use.
func (r *run) withLoop(ctx context.Context) error {
	k, _, err := syncloop.LoadKubelet("", nil)
	if err != nil {
		return err
	}
	k.ImageGCHighThresholdPercent, k.EvictionHard = 100, map[string]string{}
	if r.cfg.Endpoint != "" {
		k.CgroupRoot = "/" + r.folder.node() // apart from a kubelet's, and easily removed
	}
	log := textlogger.NewLogger(textlogger.NewConfig(
		textlogger.Output(&syncWriter{w: r.cfg.Log}), textlogger.Verbosity(verbosity)))
	recorder := syncloop.NewRecorder(nil, r.folder.node(), log)
	defer recorder.Shutdown()
	r.loop, err = syncloop.New(ctx, syncloop.Config{
		Endpoint: "unix://" + r.folder.path("proxy.sock"), NodeName: r.folder.node(), RootDir: r.folder.path("root"),
		LogDir:  r.folder.path("log"),
		Kubelet: k, Periods: syncloop.PeriodsFor(k).Faster(r.cfg.Speed), Manifests: r.folder.path("manifests"),
		Log: log, Recorder: recorder, Notify: r.timeline.notified,
		Dialer: r.cfg.Dialer, PollManifests: r.cfg.Dialer != nil,
	})
	if err != nil {
		return err
	}
	if r.cfg.Made != nil {
		r.cfg.Made(r.loop)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx)) // an interrupt comes to it by stop
	r.stop = stop
	ended := make(chan error, 1)
	r.timeline.event(Started, fmt.Sprintf("a syncLoop on %s, %d pods", r.report.Runtime, r.cfg.Pods))
	go func() { ended <- r.loop.Run(running) }()
	err = r.play(ctx)
	stop()
	return errors.Join(err, <-ended)
}

// A syncWriter serializes the lines of a log, which come from many goroutines.
type syncWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *syncWriter) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(line)
}

// imageEnds is when a real container has ended that ends by itself, and the runtime reports it. It is no time of the
// kubelet, so that it does not pass faster.
const imageEnds = 500 * time.Millisecond

// play goes through the phases: all well, fault, NotReady or not, end of the fault, all well.
func (r *run) play(ctx context.Context) error {
	err := r.await(ctx, startWithin)
	if err == nil && r.cfg.Endpoint != "" {
		time.Sleep(imageEnds)
		err = r.await(ctx, startWithin)
	}
	if err != nil {
		return r.miss(ctx, fmt.Sprintf("the node did not come up: %v", err))
	}
	r.timeline.event(PodRunning, fmt.Sprintf("all %d pods run", r.want))
	s := &r.cfg.Scenario
	for i := range max(1, s.Times) {
		if i > 0 {
			if err := r.wait(ctx, time.Duration(s.Pause)); err != nil {
				return err
			}
		}
		if err := r.injectFault(ctx); err != nil {
			return err
		}
	}
	message, notReady := r.timeline.sawNotReady()
	if problem := judge(s.NotReady, message, notReady); problem != "" {
		_ = r.miss(ctx, problem)
	}
	if err := r.await(ctx, recoverWithin); err != nil {
		return r.miss(ctx, fmt.Sprintf("the node has not recovered: %v", err))
	}
	r.report.RecoveredAfterSeconds, r.report.RecoveredAfterKubeletSeconds = r.timeline.seconds(
		time.Since(r.timeline.lifted))
	r.timeline.event(Recovered, fmt.Sprintf("the node is Ready and all %d pods run", r.want))
	return r.pause(ctx, "the clean-up")
}

// pause waits for Config.Pause, if there is one.
func (r *run) pause(ctx context.Context, before string) error {
	if r.cfg.Pause == nil {
		return nil
	}
	return r.cfg.Pause(ctx, before)
}

// miss records a difference from the scenario. An interrupt is returned instead.
func (r *run) miss(ctx context.Context, what string) error {
	if ctx.Err() == nil {
		r.report.Missed = append(r.report.Missed, what)
		r.timeline.event(Missed, what)
	}
	return ctx.Err()
}

// injectFault begins the fault, takes the steps, and ends it.
func (r *run) injectFault(ctx context.Context) error {
	s := &r.cfg.Scenario
	if err := r.pause(ctx, "the fault"); err != nil {
		return err
	}
	if err := r.setFault(ctx, true); err != nil {
		return err
	}
	start := time.Now()
	until := func(at fake.Duration) error {
		return r.wait(ctx, time.Duration(at)-time.Duration(float64(time.Since(start))*r.cfg.Speed))
	}
	var err error
	for _, step := range s.Steps {
		if err = until(step.At); err == nil {
			err = r.step(ctx, step)
		}
		if err != nil {
			break
		}
	}
	if err == nil {
		err = until(s.Hold)
	}
	if err == nil {
		err = r.pause(ctx, "the end of the fault")
	}
	if ctx.Err() != nil {
		r.stop() // first, so that calls released by the end of the fault are not part of the incident
	}
	return errors.Join(err, r.setFault(context.WithoutCancel(ctx), false))
}

// setFault begins or ends the fault.
func (r *run) setFault(ctx context.Context, on bool) error {
	s := &r.cfg.Scenario
	text := "the fault ends"
	if on {
		text = s.Summary
	}
	r.timeline.setFault(on, s.Cause != "", text)
	if !on {
		s = &Scenario{}
	}
	conditions := s.Conditions
	if len(conditions) == 0 {
		conditions = r.usual
	}
	r.proxy.SetConditions(conditions)
	return errors.Join(r.proxy.SetDown(s.Down), r.proxy.SetFaults(faster(s.Faults, s.Latency, r.cfg.Speed)))
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
		r.want++
		r.timeline.expect(PodAdded, latePod, "", "its manifest is there")
		return r.writeManifest(latePod)
	case Flood:
		return r.flood(ctx, podName(0), r.cfg.Exited)
	}
	return nil
}

// well returns nil once the node and the pods are well and nothing is left of a flood.
func (r *run) well(ctx context.Context) error {
	err := r.timeline.settled(r.loop.Snapshot().Pods, r.want)
	if err != nil || r.flooded == 0 {
		return err
	}
	n, err := r.floodLeft(ctx)
	if err != nil || n > 1 {
		return errors.Join(err, fmt.Errorf("%d exited containers are left", n))
	}
	r.timeline.event(Collected, fmt.Sprintf("%d exited containers are collected; the newest stays", r.flooded-n))
	r.flooded = 0
	return nil
}

// await waits until all is well, or its time, at the kubelet's pace and some more, is over. Its error names
// the missing parts.
func (r *run) await(ctx context.Context, within time.Duration) error {
	deadline := time.Now().Add(time.Duration(float64(within)/r.cfg.Speed) + least)
	for {
		if err := r.wait(ctx, pollEvery); err != nil {
			return err
		}
		if err := r.well(ctx); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// wait waits for a time at the kubelet's pace, and polls the syncLoop meanwhile.
func (r *run) wait(ctx context.Context, d time.Duration) error {
	end := time.Now().Add(time.Duration(float64(d) / r.cfg.Speed))
	for left := time.Until(end); left > 0; left = time.Until(end) {
		poll := time.Duration(float64(pollEvery) / r.cfg.Speed)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(min(left, poll), 5*time.Millisecond)):
			r.timeline.poll(r.loop.Snapshot())
		}
	}
	return ctx.Err()
}

// clean removes the run's objects from the runtime.
func (r *run) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleaning)
	defer cancel()
	done, err := r.folder.clean(ctx, r.endpoint, r.cfg.Dialer)
	if err != nil {
		return fmt.Errorf("cleaning up: %w", err)
	}
	r.report.CleanedUp = true
	r.timeline.event(CleanedUp, fmt.Sprintf("%d sandboxes and their containers are removed, nothing is left",
		done.Sandboxes))
	return nil
}

// A Report is what a run has shown.
type Report struct {
	Scenario string  `json:"scenario"`
	Summary  string  `json:"summary"`         // what goes wrong in it
	Cause    string  `json:"cause,omitempty"` // cause code of kdiag pleg
	Runtime  string  `json:"runtime"`         // name and version
	Endpoint string  `json:"endpoint"`        // empty for the embedded runtime
	Speed    float64 `json:"speed"`           // by which all periods of the kubelet were shortened
	Pods     int     `json:"pods"`
	Events   []Event `json:"events"`

	NotReadyExpected bool `json:"notReadyExpected"`
	// From the first fault to the first NotReady, in this run and at a kubelet's own pace. Absent if the node stayed
	// Ready.
	NotReadyAfterSeconds        *float64 `json:"notReadyAfterSeconds,omitempty"`
	NotReadyAfterKubeletSeconds *float64 `json:"notReadyAfterKubeletSeconds,omitempty"`
	Reason                      string   `json:"reason,omitempty"`  // of the Ready condition then
	Message                     string   `json:"message,omitempty"` // of the Ready condition then
	// From the end of the fault until the node was Ready and all pods ran. Absent if that was not reached.
	RecoveredAfterSeconds        *float64 `json:"recoveredAfterSeconds,omitempty"`
	RecoveredAfterKubeletSeconds *float64 `json:"recoveredAfterKubeletSeconds,omitempty"`

	Why         string   `json:"why"`           // the node turns NotReady, or does not
	Missed      []string `json:"missed"`        // differences from the scenario; empty if there are none
	Interrupted bool     `json:"interrupted"`   // it was cut short, and all after it did not happen
	CleanedUp   bool     `json:"cleanedUp"`     // nothing of the run is left in the runtime
	Log         string   `json:"log,omitempty"` // file with the kubelet's log of the run
}

// judge compares the node's condition with the scenario. The result is empty if they agree.
func judge(want, message string, notReady bool) string {
	switch {
	case want == "" && notReady:
		return "the node turned NotReady, which it should not: " + message
	case want != "" && !notReady:
		return "the node stayed Ready; it should have turned NotReady with " + want
	case !strings.Contains(message, want):
		return fmt.Sprintf("the node turned NotReady with %q, which lacks %s", message, want)
	}
	return ""
}

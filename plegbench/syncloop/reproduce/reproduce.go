// Package reproduce plays an incident from end to end: a runtime, the fault proxy before it, a syncLoop with some
// pods, the fault and its end, until all is well again. What it makes it removes, whatever happens.
//
// The runtime is the embedded one or a real one; on a real one it runs additional pods on an image that is present,
// and the fault is in the proxy only, so that other clients of the runtime are not affected.
package reproduce

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// A Config is what to play. Scenario, Pods, Speed and Dir are required.
type Config struct {
	Scenario Scenario
	Endpoint string    // of a real runtime; empty: the embedded one
	Pods     int       // at least 2 and the scenario's MinPods
	Exited   int       // how many containers a flood makes
	Image    string    // of the pods, one that runs by itself; empty: one that is there already
	Speed    float64   // shortens all times of the kubelet's and the scenario's
	Dir      string    // where to make the folder of the run
	Log      io.Writer // takes the kubelet's log; nil: discarded
	Notify   func(Event)
	// Fault replaces what the scenario does at the proxy, such as by freezing the runtime's process. It may be nil.
	Fault func(ctx context.Context, on bool) error
}

const (
	// least is what a phase may take beside its time at the kubelet's pace, for a busy machine.
	least = 20 * time.Second
	// cleaning bounds the clean-up, which happens also after an interrupt.
	cleaning = 2 * time.Minute
	// verbosity of the log: what most distributions' kubelets show.
	verbosity = 2
)

// A run is one play.
type run struct {
	cfg      Config
	folder   *folder
	timeline timeline
	watch    watch
	image    image
	runtime  string
	endpoint string // of the runtime itself
	direct   *remote.Service
	proxy    *fault.Proxy
	loop     *syncloop.SyncLoop
	stop     func()           // begins the end of loop
	usual    []fake.Condition // that Status answers without a fault; empty: the runtime's own
	want     int              // pods
	flooded  int

	missed    []string
	recovered time.Time
	cleaned   bool
}

// Run plays the scenario. The error is one of the surroundings, or the end of ctx; differences from the scenario are
// in the report, which is nil only if nothing could be begun.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if cfg.Log == nil {
		cfg.Log = io.Discard
	}
	if least := max(2, cfg.Scenario.MinPods); cfg.Pods < least {
		return nil, fmt.Errorf("%s shows with %d pods or more", cfg.Scenario.Name, least)
	}
	f, err := newFolder(cfg.Dir, cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	r := &run{cfg: cfg, folder: f, want: cfg.Pods, endpoint: cfg.Endpoint}
	r.timeline.notify, r.timeline.speed, r.timeline.seen = cfg.Notify, cfg.Speed, map[string]bool{}
	r.watch.timeline, r.watch.speed, r.watch.node = &r.timeline, cfg.Speed, f.node()
	err = r.surround(ctx)
	if !r.cleaned && cfg.Endpoint != "" {
		return r.report(), err // the folder stays: it records what is left to remove
	}
	return r.report(), errors.Join(err, f.close())
}

// surround starts what lies below the syncLoop, plays, and removes everything.
func (r *run) surround(ctx context.Context) error {
	apart := context.WithoutCancel(ctx) // what is below outlives an interrupt, until it is cleaned
	if r.endpoint == "" {
		stop, err := r.embed(apart)
		if err != nil {
			return err
		}
		defer stop()
	}
	var err error
	if r.direct, err = remote.Dial(r.endpoint, remote.Options{Timeout: cleaning / 4, Log: logr.Discard()}); err != nil {
		return err
	}
	defer r.direct.Close()
	version, err := r.direct.Version(ctx)
	if err != nil {
		r.cleaned = true
		return fmt.Errorf("asking the runtime at %s for its version: %w", r.endpoint, err)
	}
	if r.usual, err = r.hideNetwork(ctx); err != nil {
		r.cleaned = true
		return err
	}
	r.runtime = version.GetRuntimeName() + " " + version.GetRuntimeVersion()
	if err := r.choose(ctx); err != nil { // nothing has been made in the runtime yet
		r.cleaned = true
		return err
	}
	r.proxy, err = fault.New(fault.Config{Backend: r.endpoint, Listen: r.folder.path("proxy.sock")})
	if err != nil {
		return err
	}
	r.proxy.SetConditions(r.usual)
	proxied, stop := context.WithCancel(apart)
	ended := make(chan error, 1)
	go func() { ended <- r.proxy.Run(proxied) }()
	err = r.withLoop(ctx)
	stop()
	return errors.Join(err, <-ended, r.clean(apart))
}

// embed starts the embedded runtime, with a healthy node's pods of others on it.
func (r *run) embed(ctx context.Context) (stop func(), err error) {
	healthy, ok := fake.Builtin("healthy")
	if !ok {
		return nil, errors.New("there is no embedded scenario healthy")
	}
	_, healthy.Latency = (&Scenario{Latency: healthy.Latency}).faster(r.cfg.Speed)
	server, err := fake.New(healthy)
	if err != nil {
		return nil, err
	}
	path := r.folder.path("cri.sock")
	r.endpoint = "unix://" + path
	return fake.Listen(ctx, server, path)
}

// hideNetwork returns the condition that makes a node without CNI usable here: the pods are on the host's network.
func (r *run) hideNetwork(ctx context.Context) ([]fake.Condition, error) {
	status, err := r.direct.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking the runtime at %s for its status: %w", r.endpoint, err)
	}
	for _, c := range status.GetConditions() {
		if c.GetType() == runtimeapi.NetworkReady && !c.GetStatus() {
			return []fake.Condition{{Type: runtimeapi.NetworkReady, Status: true}}, nil
		}
	}
	return nil, nil
}

// choose takes the pods' image and writes their manifests.
func (r *run) choose(ctx context.Context) error {
	if r.cfg.Image != "" {
		r.image = image{r.cfg.Image, true}
	} else {
		list, err := r.direct.ListImages(ctx)
		if err != nil {
			return fmt.Errorf("listing the runtime's images: %w", err)
		}
		if r.image, err = chooseImage(list); err != nil {
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

// withLoop runs the syncLoop and plays the scenario meanwhile.
func (r *run) withLoop(ctx context.Context) error {
	cfg, err := r.loopConfig()
	if err != nil {
		return err
	}
	if r.loop, err = syncloop.New(ctx, cfg); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx)) // an interrupt comes to it by stop
	r.stop = stop
	ended := make(chan error, 1)
	text := fmt.Sprintf("a syncLoop on %s, %d pods", r.runtime, r.cfg.Pods)
	if len(r.usual) > 0 {
		text += "; that the runtime says NetworkReady=false is hidden from it, because its pods need no CNI"
	}
	r.timeline.event(Started, text)
	go func() { ended <- r.loop.Run(running) }()
	err = r.play(ctx)
	stop()
	select {
	case loopErr := <-ended:
		return errors.Join(err, loopErr)
	case <-time.After(least):
		return errors.Join(err, errors.New("the syncLoop does not end"))
	}
}

// loopConfig is that of a kubelet that collects no images and evicts no pods: the runtime may be in use.
func (r *run) loopConfig() (syncloop.Config, error) {
	k, _, err := syncloop.LoadKubelet("", nil)
	if err != nil {
		return syncloop.Config{}, err
	}
	k.ImageGCHighThresholdPercent, k.EvictionHard, k.EvictionSoft = 100, map[string]string{}, map[string]string{}
	if r.cfg.Endpoint != "" {
		k.CgroupRoot = "/" + r.folder.node() // apart from a kubelet's, and easily removed
	}
	out := textlogger.NewConfig(textlogger.Output(&oneAtATime{w: r.cfg.Log}), textlogger.Verbosity(verbosity))
	log := newTap(textlogger.NewLogger(out), func(err error, msg string, kv []any) {
		r.timeline.logged(err, msg)
		r.watch.logged(msg, kv)
	})
	recorder := syncloop.NewRecorder(nil, r.folder.node(), log)
	return syncloop.Config{
		Endpoint: "unix://" + r.folder.path("proxy.sock"), NodeName: r.folder.node(), RootDir: r.folder.path("root"), LogDir: r.folder.path("log"),
		Kubelet: k, Periods: syncloop.PeriodsFor(k).Faster(r.cfg.Speed), Manifests: r.folder.path("manifests"),
		Log: log, Recorder: recorder, Notify: r.notified,
	}, nil
}

// notified takes the events of the syncLoop. The beginning of a skip comes with the log's line.
func (r *run) notified(e syncloop.Event) {
	switch e.What {
	case "ready":
		r.timeline.condition(true, e.Detail)
	case "not-ready":
		r.timeline.condition(false, e.Detail)
	case "resume":
		r.timeline.resumed(e.Detail)
	}
}

// clean removes what the run made in the runtime, and looks whether anything is left.
func (r *run) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleaning)
	defer cancel()
	done, err := r.folder.clean(ctx, r.endpoint)
	sandboxes, containers, leftErr := r.left(ctx)
	if err = errors.Join(err, leftErr); err != nil {
		return fmt.Errorf("cleaning up: %w", err)
	}
	if n := len(sandboxes) + len(containers); n > 0 {
		return fmt.Errorf("cleaning up: left in the runtime: %s", strings.Join(append(sandboxes, containers...), ", "))
	}
	r.cleaned = true
	r.timeline.event(CleanedUp, fmt.Sprintf("%d sandboxes and their containers are removed, nothing is left", done.Sandboxes))
	return nil
}

// oneAtATime lets one line through at a time.
type oneAtATime struct {
	mu sync.Mutex
	w  io.Writer
}

func (o *oneAtATime) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(p)
}

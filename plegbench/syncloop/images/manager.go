// Package images sees that the images of containers are there, and removes those that nobody needs: the kubelet's image
// manager (pkg/kubelet/images/image_manager.go) and its image garbage collector (image_gc_manager.go).
//
// Left out are credential providers, the node's own docker configuration, the record of which credentials pulled which
// image, and images by runtime class.
package images

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// Why an image is not there; the texts are the reasons of waiting containers.
var (
	ErrImagePull           = errors.New("ErrImagePull")
	ErrImagePullBackOff    = errors.New("ImagePullBackOff")
	ErrImageNeverPull      = errors.New("ErrImageNeverPull")
	ErrImageInspect        = errors.New("ImageInspectError")
	ErrInvalidImageName    = errors.New("InvalidImageName")
	ErrRegistryUnavailable = errors.New("RegistryUnavailable")       // the runtime said so
	ErrSignatureValidation = errors.New("SignatureValidationFailed") // likewise
)

// unknownCode begins an error of the runtime that has no code of its own. The kubelet's client takes it off.
const unknownCode = "rpc error: code = Unknown desc = "

// A Puller is the part of the runtime's image service that pulls.
type Puller interface {
	// ImageStatus returns nil for an image that is not there.
	ImageStatus(ctx context.Context, image string) (*runtimeapi.Image, error)
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error)
}

// Config is what a Manager is made of.
type Config struct {
	Service     Puller
	Recorder    record.EventRecorder
	Log         logr.Logger
	Metrics     *metrics.Metrics
	Serialize   bool    // serializeImagePulls: one pull at a time
	MaxParallel *int32  // maxParallelImagePulls, without Serialize; nil or below 1: no bound
	QPS         float32 // registryPullQPS; 0: no limit
	Burst       int     // registryBurst
	// BackOff and MaxBackOff bound the pause after a failed pull, which doubles: imageBackOffPeriod, 10 s, and MaxImageBackOff, 5 m.
	BackOff, MaxBackOff time.Duration
}

// A Manager pulls images. It is safe for use by several goroutines.
type Manager struct {
	cfg     Config
	backOff *flowcontrol.Backoff    // by pod UID and image
	limiter flowcontrol.RateLimiter // nil: no limit
	// slots holds as many tokens as pulls run. Who waits for one gets it in turn, so that a single slot is the kubelet's
	// serial queue: one pull that hangs, and pulls have no deadline, stops all later ones and the pod workers behind them.
	slots chan struct{} // nil: no bound

	mu   sync.Mutex
	last map[string]string // by the key of backOff, what went wrong with the last pull
}

// New makes a Manager.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg, backOff: flowcontrol.NewBackOff(cfg.BackOff, cfg.MaxBackOff), last: map[string]string{}}
	switch {
	case cfg.Serialize:
		m.slots = make(chan struct{}, 1)
	case cfg.MaxParallel != nil && *cfg.MaxParallel > 0:
		m.slots = make(chan struct{}, *cfg.MaxParallel)
	}
	if cfg.QPS > 0 {
		m.limiter = flowcontrol.NewTokenBucketRateLimiter(cfg.QPS, cfg.Burst)
	}
	return m
}

// EnsureImage sees that a container's image is there and returns the runtime's reference to it. If it is not, reason is one
// of the errors above, or what is wrong with a pull secret, and message says more.
//
//lint:ignore ST1008 a waiting container has a reason and a message, in this order
func (m *Manager) EnsureImage(ctx context.Context, p *v1.Pod, c *v1.Container, pullSecrets []v1.Secret, sandbox *runtimeapi.PodSandboxConfig) (ref string, reason error, message string) {
	object := pod.Reference(p, c)
	warn := func(event, format string, args ...any) string {
		message := fmt.Sprintf(format, args...)
		m.cfg.Recorder.Event(object, v1.EventTypeWarning, event, message)
		return message
	}
	parsed, err := parseName(c.Image)
	if err != nil {
		return "", ErrInvalidImageName, warn("InspectFailed", "Failed to apply default image tag %q: %v", c.Image, err)
	}
	wanted := policy(c, parsed)
	if wanted != v1.PullAlways {
		image, err := m.cfg.Service.ImageStatus(ctx, parsed.full)
		switch {
		case err != nil:
			return "", ErrImageInspect, warn("InspectFailed", "Failed to inspect image %q: %v", c.Image, err)
		case image != nil:
			m.cfg.Recorder.Eventf(object, v1.EventTypeNormal, "Pulled",
				"Container image %q already present on machine and can be accessed by the pod", c.Image)
			return image.GetId(), nil, ""
		case wanted == v1.PullNever:
			return "", ErrImageNeverPull, warn("ErrImageNeverPull", "Container image %q is not present with pull policy of Never", c.Image)
		}
	}
	auths, err := credentials(pullSecrets, parsed.repository)
	if err != nil {
		return "", err, err.Error()
	}
	key := string(p.UID) + "_" + c.Image
	if m.backOff.IsInBackOffSinceUpdate(key, time.Now()) {
		message = fmt.Sprintf("Back-off pulling image %q", c.Image)
		m.cfg.Recorder.Event(object, v1.EventTypeNormal, "BackOff", message)
		if last := m.lastError(key); last != "" {
			message += ": " + last
		}
		return "", ErrImagePullBackOff, message
	}
	m.setLastError(key, "")
	m.cfg.Recorder.Eventf(object, v1.EventTypeNormal, "Pulling", "Pulling image %q", c.Image)
	start := time.Now()
	spec := &runtimeapi.ImageSpec{Image: parsed.full, UserSpecifiedImage: c.Image, Annotations: p.Annotations}
	done, err := m.pull(ctx, spec, auths, sandbox)
	if err != nil {
		warn("Failed", "Failed to pull image %q: %v", c.Image, err)
		message, reason = explain(c.Image, err)
		m.backOff.Next(key, time.Now())
		m.setLastError(key, reason.Error()+": "+message)
		return "", reason, message
	}
	waited := time.Since(start).Truncate(time.Millisecond)
	m.cfg.Recorder.Eventf(object, v1.EventTypeNormal, "Pulled",
		"Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.",
		c.Image, done.took.Truncate(time.Millisecond), waited, done.size)
	m.cfg.Metrics.ImagePullDuration.WithLabelValues(sizeClass(done.size)).Observe(waited.Seconds())
	m.forget()
	return done.ref, nil, ""
}

// A pulled is a pull that succeeded.
type pulled struct {
	ref  string
	size uint64        // bytes; 0 if the runtime did not say
	took time.Duration // without the wait for a slot
}

// pull waits for a slot and then pulls with each of the credentials until one does.
func (m *Manager) pull(
	ctx context.Context, spec *runtimeapi.ImageSpec, auths []*runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig,
) (pulled, error) {
	if m.slots != nil {
		select {
		case m.slots <- struct{}{}:
			defer func() { <-m.slots }()
		case <-ctx.Done():
			return pulled{}, ctx.Err()
		}
	}
	start := time.Now()
	if m.limiter != nil && !m.limiter.TryAccept() {
		return pulled{}, errors.New("pull QPS exceeded")
	}
	if len(auths) == 0 {
		m.cfg.Log.V(3).Info("Pulling image without credentials", "image", spec.GetImage())
		auths = []*runtimeapi.AuthConfig{nil}
	}
	var failed []error
	for _, auth := range auths {
		ref, err := m.cfg.Service.PullImage(ctx, spec, auth, sandbox)
		if err == nil {
			done := pulled{ref: ref}
			if image, err := m.cfg.Service.ImageStatus(ctx, spec.GetImage()); err == nil {
				done.size = image.GetSize()
			}
			done.took = time.Since(start)
			return done, nil
		}
		if text, ok := strings.CutPrefix(err.Error(), unknownCode); ok {
			err = errors.New(text)
		}
		if auth == nil {
			m.cfg.Log.Error(err, "Failed to pull image", "image", spec.GetImage())
		}
		failed = append(failed, err)
	}
	return pulled{}, utilerrors.NewAggregate(failed)
}

// explain turns the error of a pull into the message and the reason of a waiting container. Runtimes begin the text of
// some errors with a reason of their own (k8s.io/cri-api/pkg/errors).
func explain(image string, err error) (message string, reason error) {
	for _, known := range []struct {
		reason error
		why    string
	}{
		{ErrRegistryUnavailable, "the registry is unavailable"},
		{ErrSignatureValidation, "the signature validation failed"},
	} {
		if rest, ok := strings.CutPrefix(err.Error(), known.reason.Error()); ok {
			return fmt.Sprintf("image pull failed for %s because %s%s", image, known.why, rest), known.reason
		}
	}
	return err.Error(), ErrImagePull
}

func (m *Manager) lastError(key string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last[key]
}

func (m *Manager) setLastError(key, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if text == "" {
		delete(m.last, key)
		return
	}
	m.last[key] = text
}

// forget drops what is known of pulls that failed long ago: their pods may be gone.
func (m *Manager) forget() {
	m.backOff.GC()
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.last {
		if m.backOff.Get(key) == 0 {
			delete(m.last, key)
		}
	}
}

// sizeClass is the label of an image's size in image_pull_duration_seconds (pkg/kubelet/metrics/metrics.go).
func sizeClass(size uint64) string {
	const mb, gb = 1 << 20, 1 << 30
	if size == 0 {
		return "N/A"
	}
	for _, c := range []struct {
		above uint64
		label string
	}{
		{100 * gb, "GT100GB"},
		{60 * gb, "60GB-100GB"},
		{40 * gb, "40GB-60GB"},
		{30 * gb, "30GB-40GB"},
		{20 * gb, "20GB-30GB"},
		{10 * gb, "10GB-20GB"},
		{5 * gb, "5GB-10GB"},
		{gb, "1GB-5GB"},
		{500 * mb, "500MB-1GB"},
		{100 * mb, "100MB-500MB"},
		{10 * mb, "10MB-100MB"},
	} {
		if size > c.above {
			return c.label
		}
	}
	return "0-10MB"
}

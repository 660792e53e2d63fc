// Package images makes sure that the images of containers are present, and removes those that no container uses: the
// kubelet's image manager (pkg/kubelet/images/image_manager.go) and its image garbage collector (image_gc_manager.go).
// docs/syncloop.md lists what is left out.
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
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// Why an image is not there; the texts are the reasons of waiting containers.
var (
	ErrImagePull        = errors.New("ErrImagePull")
	ErrImagePullBackOff = errors.New("ImagePullBackOff")
	ErrImageNeverPull   = errors.New("ErrImageNeverPull")
	ErrImageInspect     = errors.New("ImageInspectError")
	ErrInvalidImageName = errors.New("InvalidImageName")
)

// A Puller is the part of the runtime's image service that pulls.
type Puller interface {
	// ImageStatus returns nil for an image that is not there.
	ImageStatus(ctx context.Context, image string) (*runtimeapi.Image, error)
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig,
		sandbox *runtimeapi.PodSandboxConfig) (string, error)
}

// Config configures a Manager.
type Config struct {
	Service     Puller
	Recorder    record.EventRecorder
	Log         logr.Logger
	Serialize   bool    // serializeImagePulls: one pull at a time
	MaxParallel *int32  // maxParallelImagePulls, without Serialize; nil or below 1: no bound
	QPS         float32 // registryPullQPS; 0: no limit
	Burst       int     // registryBurst
	// BackOff and MaxBackOff bound the pause after a failed pull, which doubles: 10 s and 5 minutes in the kubelet.
	BackOff, MaxBackOff time.Duration
}

// A Manager pulls images. It is safe for use by several goroutines.
type Manager struct {
	Config
	backOff *flowcontrol.Backoff    // by pod UID and image
	limiter flowcontrol.RateLimiter // nil: no limit
	// slots limits the pulls under way; nil: no bound. A single slot is the kubelet's serial queue: pulls have no
	// deadline, so one that hangs stops all later ones and the pod workers that wait for them.
	slots chan struct{}

	mu   sync.Mutex
	last map[string]string // by the key of backOff: the error of the last pull
}

// New makes a Manager.
func New(cfg Config) *Manager {
	m := &Manager{Config: cfg, backOff: flowcontrol.NewBackOff(cfg.BackOff, cfg.MaxBackOff), last: map[string]string{}}
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

// EnsureImage makes sure that a container's image is present and returns the runtime's reference to it. If it is not,
// reason is one of the errors above, or the error of a pull secret, and message explains it.
func (m *Manager) EnsureImage(
	ctx context.Context, p *v1.Pod, c *v1.Container, pullSecrets []v1.Secret, sandbox *runtimeapi.PodSandboxConfig,
) (ref, message string, reason error) {
	object := pod.Reference(p, c)
	warn := func(event, format string, args ...any) string {
		message := fmt.Sprintf(format, args...)
		m.Recorder.Event(object, v1.EventTypeWarning, event, message)
		return message
	}
	name, err := withTag(c.Image)
	if err != nil {
		return "", warn("InspectFailed", "Failed to apply default image tag %q: %v", c.Image, err), ErrInvalidImageName
	}
	wanted := policy(c, name)
	if wanted != v1.PullAlways {
		image, err := m.Service.ImageStatus(ctx, name)
		switch {
		case err != nil:
			return "", warn("InspectFailed", "Failed to inspect image %q: %v", c.Image, err), ErrImageInspect
		case image != nil:
			m.Recorder.Eventf(object, v1.EventTypeNormal, "Pulled",
				"Container image %q already present on machine and can be accessed by the pod", c.Image)
			return image.GetId(), "", nil
		case wanted == v1.PullNever:
			why := warn("ErrImageNeverPull", "Container image %q is not present with pull policy of Never", c.Image)
			return "", why, ErrImageNeverPull
		}
	}
	auth, err := credentials(pullSecrets, name)
	if err != nil {
		return "", err.Error(), err
	}
	key := string(p.UID) + "_" + c.Image
	if m.backOff.IsInBackOffSinceUpdate(key, time.Now()) {
		message = fmt.Sprintf("Back-off pulling image %q", c.Image)
		m.Recorder.Event(object, v1.EventTypeNormal, "BackOff", message)
		return "", message + ": " + m.lastError(key), ErrImagePullBackOff
	}
	m.Recorder.Eventf(object, v1.EventTypeNormal, "Pulling", "Pulling image %q", c.Image)
	start := time.Now()
	spec := &runtimeapi.ImageSpec{Image: name, UserSpecifiedImage: c.Image, Annotations: p.Annotations}
	ref, size, took, err := m.pull(ctx, spec, auth, sandbox)
	if err != nil {
		warn("Failed", "Failed to pull image %q: %v", c.Image, err)
		m.failed(key, fmt.Sprintf("%v: %v", ErrImagePull, err))
		return "", err.Error(), ErrImagePull
	}
	m.Recorder.Eventf(object, v1.EventTypeNormal, "Pulled",
		"Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.",
		c.Image, took.Truncate(time.Millisecond), time.Since(start).Truncate(time.Millisecond), size)
	return ref, "", nil
}

// pull waits for a slot and then pulls. took does not include the wait; size, in bytes, is 0 if the runtime does not
// know it.
func (m *Manager) pull(
	ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig,
) (ref string, size uint64, took time.Duration, err error) {
	if m.slots != nil {
		select {
		case m.slots <- struct{}{}:
			defer func() { <-m.slots }()
		case <-ctx.Done():
			return "", 0, 0, ctx.Err()
		}
	}
	start := time.Now()
	if m.limiter != nil && !m.limiter.TryAccept() {
		return "", 0, 0, errors.New("pull QPS exceeded")
	}
	ref, err = m.Service.PullImage(ctx, spec, auth, sandbox)
	if err != nil {
		// The kubelet's client removes the code of errors without a code of their own.
		if text, ok := strings.CutPrefix(err.Error(), "rpc error: code = Unknown desc = "); ok {
			err = errors.New(text)
		}
		m.Log.Error(err, "Failed to pull image", "image", spec.GetImage())
		return "", 0, 0, err
	}
	if image, err := m.Service.ImageStatus(ctx, spec.GetImage()); err == nil {
		size = image.GetSize()
	}
	return ref, size, time.Since(start), nil
}

func (m *Manager) lastError(key string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last[key]
}

// failed records the error of a pull and forgets those whose back-off is long over: their pods may be gone.
func (m *Manager) failed(key, text string) {
	m.backOff.Next(key, time.Now())
	m.backOff.GC()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last[key] = text
	for key := range m.last {
		if m.backOff.Get(key) == 0 {
			delete(m.last, key)
		}
	}
}

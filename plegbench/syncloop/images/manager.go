// Package images makes sure that the images of containers are present, and removes those that no container uses: the
// kubelet's image manager (pkg/kubelet/images/image_manager.go) and its image garbage collector (image_gc_manager.go).
// docs/syncloop-parts.md lists what is left out.
package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
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

// A Service is the runtime's image service.
type Service interface {
	// ImageStatus returns nil for an image that is not there.
	ImageStatus(ctx context.Context, image string) (*runtimeapi.Image, error)
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig,
		sandbox *runtimeapi.PodSandboxConfig) (string, error)
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	RemoveImage(ctx context.Context, image string) error
}

// Config configures a Manager.
type Config struct {
	Service     Service
	Objects     Objects
	Serialize   bool    // serializeImagePulls: one pull at a time
	MaxParallel int32   // maxParallelImagePulls, without Serialize; below 1: no bound
	QPS         float32 // registryPullQPS; 0: no limit
	Burst       int     // registryBurst
	// BackOff and MaxBackOff bound the pause after a failed pull, which doubles: 10 s and 5 minutes in the kubelet.
	BackOff, MaxBackOff time.Duration

	// InUse returns the ids and references of the images that containers use, dead ones as well. An error stops the
	// collection.
	InUse func(ctx context.Context) (map[string]bool, error)
	// Disk returns the size of the file system with the images and its available space, in bytes.
	Disk      func(ctx context.Context) (capacity, available uint64, err error)
	High, Low int           // imageGCHighThresholdPercent, imageGCLowThresholdPercent: 85 and 80
	MinAge    time.Duration // imageMinimumGCAge: 2 minutes since an image was first seen
	MaxAge    time.Duration // imageMaximumGCAge: since an image was last used; 0: any
	Period    time.Duration // ImageGCPeriod: 5 minutes
	NodeName  string
	Recorder  record.EventRecorder
	Log       logr.Logger
	Metrics   *metrics.Metrics
}

// A Manager pulls images, and removes images when the disk fills up. It is safe for use by several goroutines.
type Manager struct {
	Config
	backOff *flowcontrol.Backoff // by pod UID and image
	failed  sync.Map             // the text of the last failure, by the same
	limiter flowcontrol.RateLimiter
	// slots limits the pulls under way; nil: no bound. A single slot is the kubelet's serial queue: pulls have no
	// deadline, so one that hangs stops all later ones and the pod workers that wait for them.
	slots chan struct{}
	began time.Time // of the collection

	mu     sync.Mutex
	known  map[string]*image
	listed []*runtimeapi.Image
}

// New makes a Manager.
func New(cfg Config) *Manager {
	m := &Manager{
		Config: cfg, backOff: flowcontrol.NewBackOff(cfg.BackOff, cfg.MaxBackOff),
		limiter: flowcontrol.NewFakeAlwaysRateLimiter(), known: map[string]*image{}, began: time.Now(),
	}
	if cfg.Serialize {
		m.slots = make(chan struct{}, 1)
	} else if cfg.MaxParallel > 0 {
		m.slots = make(chan struct{}, cfg.MaxParallel)
	}
	if cfg.QPS > 0 {
		m.limiter = flowcontrol.NewTokenBucketRateLimiter(cfg.QPS, cfg.Burst)
	}
	return m
}

// EnsureImage makes sure that a container's image is present and returns the runtime's reference to it. If it is not,
// reason is one of the errors above, and message explains it.
func (m *Manager) EnsureImage(
	ctx context.Context, p *v1.Pod, c *v1.Container, sandbox *runtimeapi.PodSandboxConfig,
) (ref, message string, reason error) {
	object := pod.Reference(p, c)
	failed := func(reason error, event, format string, args ...any) (string, string, error) {
		message := fmt.Sprintf(format, args...)
		m.Recorder.Event(object, v1.EventTypeWarning, event, message)
		return "", message, reason
	}
	name, err := withTag(c.Image)
	if err != nil {
		return failed(ErrInvalidImageName, "InspectFailed", "Failed to apply default image tag %q: %v", c.Image, err)
	}
	if c.ImagePullPolicy != v1.PullAlways {
		image, err := m.Service.ImageStatus(ctx, name)
		switch {
		case err != nil:
			return failed(ErrImageInspect, "InspectFailed", "Failed to inspect image %q: %v", c.Image, err)
		case image != nil:
			m.Recorder.Eventf(object, v1.EventTypeNormal, "Pulled",
				"Container image %q already present on machine and can be accessed by the pod", c.Image)
			return image.GetId(), "", nil
		case c.ImagePullPolicy == v1.PullNever:
			return failed(ErrImageNeverPull, "ErrImageNeverPull",
				"Container image %q is not present with pull policy of Never", c.Image)
		}
	}
	key := string(p.UID) + "_" + c.Image
	if m.backOff.IsInBackOffSinceUpdate(key, time.Now()) {
		message = fmt.Sprintf("Back-off pulling image %q", c.Image)
		m.Recorder.Event(object, v1.EventTypeNormal, "BackOff", message)
		if last, ok := m.failed.Load(key); ok {
			message += fmt.Sprintf(": %v: %v", ErrImagePull, last)
		}
		return "", message, ErrImagePullBackOff
	}
	m.Recorder.Eventf(object, v1.EventTypeNormal, "Pulling", "Pulling image %q", c.Image)
	start := time.Now()
	spec := &runtimeapi.ImageSpec{Image: name, UserSpecifiedImage: c.Image, Annotations: p.Annotations}
	if ref, err = m.pull(ctx, p, spec, sandbox); err != nil {
		m.Log.Error(err, "Failed to pull image", "image", name)
		m.backOff.Next(key, time.Now())
		m.backOff.GC()
		m.failed.Store(key, err.Error())
		_, _, _ = failed(ErrImagePull, "Failed", "Failed to pull image %q: %v", c.Image, err)
		return "", err.Error(), ErrImagePull
	}
	m.failed.Delete(key)
	m.Recorder.Eventf(object, v1.EventTypeNormal, "Pulled", "Successfully pulled image %q in %v, including waiting.",
		c.Image, time.Since(start).Truncate(time.Millisecond))
	return ref, "", nil
}

// pull waits for a slot and then pulls, with one after the other of the pod's credentials for the registry, if it has
// any, until one is let in.
func (m *Manager) pull(
	ctx context.Context, p *v1.Pod, spec *runtimeapi.ImageSpec, sandbox *runtimeapi.PodSandboxConfig,
) (ref string, err error) {
	auths, err := credentials(spec.Image, m.pullSecrets(ctx, p))
	if err != nil {
		return "", err
	}
	if m.slots != nil {
		select {
		case m.slots <- struct{}{}:
			defer func() { <-m.slots }()
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	if !m.limiter.TryAccept() {
		return "", errors.New("pull QPS exceeded")
	}
	if len(auths) == 0 {
		auths = []*runtimeapi.AuthConfig{nil}
	}
	var failed []error
	for _, auth := range auths {
		if ref, err = m.Service.PullImage(ctx, spec, auth, sandbox); err == nil {
			return ref, nil
		}
		failed = append(failed, err)
	}
	return "", utilerrors.NewAggregate(failed)
}

// reference is the grammar of image names: [host[:port]/]path[:tag][@digest]. It is compiled when it is first used,
// since few commands need it.
var reference = sync.OnceValue(func() *regexp.Regexp {
	const component = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`
	return regexp.MustCompile(`^(?:([a-zA-Z0-9.\[\]:-]+)/)?` + component + `(?:/` + component + `)*` +
		`(:\w[\w.-]{0,127})?(@sha\d+:[0-9a-f]{64,128})?$`)
})

// withTag returns an image's name with the tag latest if it has neither a tag nor a digest.
func withTag(image string) (string, error) {
	m := reference().FindStringSubmatch(image)
	switch {
	case m == nil:
		return "", fmt.Errorf("couldn't parse image name %q: invalid reference format", image)
	case m[2] == "" && m[3] == "":
		return image + ":latest", nil
	}
	return image, nil
}

// An image is the history of an image on the node.
type image struct {
	id       string
	detected time.Time // first
	used     time.Time // last seen in use; zero for never
	size     int64     // bytes
}

// Run watches the images and collects until ctx ends. Its error is always nil. With a threshold of 100 it collects
// nothing.
func (m *Manager) Run(ctx context.Context) error {
	failures := 0
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := m.CollectNow(ctx); err == nil {
			failures = 0
		} else if failures++; failures == 1 {
			m.Log.Error(err, "Image garbage collection failed once. Stats initialization may not have completed yet")
		} else {
			m.Log.Error(err, "Image garbage collection failed multiple times in a row")
			m.Recorder.Event(pod.NodeReference(m.NodeName), v1.EventTypeWarning, "ImageGCFailed", err.Error())
		}
	}, m.Period)
	return nil
}

// Images returns the images as they were listed last, for the node's status.
func (m *Manager) Images() []*runtimeapi.Image {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.listed
}

// detect notes which images are there and in use. It returns those that are neither in use nor pinned, the longest
// unused first, then the longest known. Images that the first call finds are new, as to a kubelet: its collector looks
// before its image manager has started.
func (m *Manager) detect(ctx context.Context) ([]image, error) {
	all, err := m.Service.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	used, err := m.InUse(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listed = all
	now := time.Now()
	var free []image
	before := m.known
	m.known = map[string]*image{}
	inUse := func(name string) bool { return used[name] }
	for _, i := range all {
		k := cmp.Or(before[i.GetId()], &image{id: i.GetId(), detected: now})
		m.known[k.id], k.size = k, int64(i.GetSize())
		// Some runtimes report only the reference that a container was created with.
		if slices.ContainsFunc(slices.Concat([]string{k.id}, i.GetRepoTags(), i.GetRepoDigests()), inUse) {
			k.used = now
		} else if !i.GetPinned() {
			free = append(free, *k)
		}
	}
	slices.SortFunc(free, func(a, b image) int {
		return cmp.Or(a.used.Compare(b.used), a.detected.Compare(b.detected), cmp.Compare(a.id, b.id))
	})
	return free, nil
}

// CollectNow makes one pass: it removes images that were not used for longer than MaxAge, and if the disk is as full as
// High, further ones until the disk is as full as Low. It is an error if it does not get there.
func (m *Manager) CollectNow(ctx context.Context) error {
	free, err := m.detect(ctx)
	if err != nil || m.High == 100 && m.MaxAge == 0 {
		return err
	}
	if free, err = m.freeOldImages(ctx, free); err != nil {
		return err
	}
	size, available, err := m.Disk(ctx)
	if err != nil {
		return err
	}
	if size == 0 {
		return errors.New("invalid capacity 0 on image filesystem")
	}
	left := int64(min(available, size))
	usage, amount := 100-int(left*100/int64(size)), int64(size)*int64(100-m.Low)/100-left
	if usage < m.High {
		return nil
	}
	m.Log.Info("Disk usage on image filesystem is over the high threshold, "+
		"trying to free bytes down to the low threshold",
		"usage", usage, "highThreshold", m.High, "amountToFree", amount, "lowThreshold", m.Low)
	freed, err := m.remove(ctx, free, amount)
	if err != nil || freed >= amount {
		return err
	}
	message := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %.1f GiB used). "+
		"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
		usage, float64(size)/(1<<30), freed)
	m.Recorder.Event(pod.NodeReference(m.NodeName), v1.EventTypeWarning, "FreeDiskSpaceFailed", message)
	return errors.New(message)
}

// freeOldImages removes the images that were not used for longer than MaxAge, and returns the others. As long as the
// collection itself is not older, images may have been used before it.
func (m *Manager) freeOldImages(ctx context.Context, free []image) (left []image, err error) {
	if m.MaxAge == 0 || time.Since(m.began) <= m.MaxAge {
		return free, nil
	}
	for _, i := range free {
		if time.Since(i.used) <= m.MaxAge {
			left = append(left, i)
		} else if failed := m.freeImage(ctx, i, "age"); failed != nil {
			left, err = append(left, i), errors.Join(err, failed)
		}
	}
	if err != nil {
		err = fmt.Errorf("wanted to free images older than %v, encountered errors in image deletion: %w", m.MaxAge, err)
	}
	return left, err
}

// freeImage removes an image, for want of space or for its age.
func (m *Manager) freeImage(ctx context.Context, i image, reason string) error {
	m.Log.Info("Removing image to free bytes", "imageID", i.id, "size", i.size, "runtimeHandler", "")
	if err := m.Service.RemoveImage(ctx, i.id); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, i.id)
	m.Metrics.ImageGarbageCollected.WithLabelValues(reason).Inc()
	return nil
}

// DeleteUnused removes all images that are not in use, pinned or too young, for an eviction.
func (m *Manager) DeleteUnused(ctx context.Context) error {
	m.Log.Info("Attempting to delete unused images")
	free, err := m.detect(ctx)
	if err != nil {
		return err
	}
	_, err = m.remove(ctx, free, math.MaxInt64)
	return err
}

// remove removes images in order, except those younger than MinAge, which may have been pulled for a container that is
// about to start, until so many bytes are freed. An image that cannot be removed does not stop it.
func (m *Manager) remove(ctx context.Context, free []image, bytes int64) (freed int64, err error) {
	for _, i := range free {
		if freed >= bytes || time.Since(i.detected) < m.MinAge {
			continue
		}
		if failed := m.freeImage(ctx, i, "space"); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		freed += i.size
	}
	if err != nil {
		err = fmt.Errorf("wanted to free %d bytes, but freed %d bytes space with errors in image deletion: %w",
			bytes, freed, err)
	}
	return freed, err
}

package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

// listShare is how much more often than the images are collected their list is read for the node's status: 30 s to 5
// minutes.
const listShare = 10

// A Store is the part of the runtime's image service that lists and removes.
type Store interface {
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	RemoveImage(ctx context.Context, image string) error
}

// GCConfig configures a GC.
type GCConfig struct {
	Service Store
	// InUse returns the ids and references of the images that containers use, dead ones as well. An error stops the
	// pass.
	InUse func(ctx context.Context) (map[string]bool, error)
	// Disk returns the size of the file system with the images, and what is free of it, in bytes.
	Disk      func(ctx context.Context) (capacity, available uint64, err error)
	High, Low int           // imageGCHighThresholdPercent, imageGCLowThresholdPercent: 85 and 80
	MinAge    time.Duration // imageMinimumGCAge: 2 minutes since an image was first seen
	Period    time.Duration // ImageGCPeriod: 5 minutes
	NodeName  string
	Log       logr.Logger
	Recorder  record.EventRecorder
	Metrics   *metrics.Metrics
}

// An image is what is known of one over time.
type image struct {
	id       string
	detected time.Time // first; zero for an image that was there at the start
	used     time.Time // last seen in use; zero for never
	size     int64     // bytes
}

// A GC removes images when the disk fills up. It is safe for use by several goroutines.
type GC struct {
	GCConfig
	node *v1.ObjectReference

	mu      sync.Mutex
	known   map[string]*image
	listed  []*runtimeapi.Image
	settled bool // images that are found from now on are new
}

// NewGC makes a GC. Thresholds out of order are an error.
func NewGC(cfg GCConfig) (*GC, error) {
	if cfg.Low < 0 || cfg.High > 100 || cfg.Low > cfg.High {
		return nil, fmt.Errorf("image thresholds must be 0 <= low <= high <= 100, not %d and %d", cfg.Low, cfg.High)
	}
	node := &v1.ObjectReference{Kind: "Node", Name: cfg.NodeName, UID: types.UID(cfg.NodeName)}
	return &GC{GCConfig: cfg, node: node, known: map[string]*image{}}, nil
}

// Run watches the images and collects until ctx ends. Its error is always nil.
func (g *GC) Run(ctx context.Context) error {
	g.monitor(ctx) // before the first collection: images that are there already are old enough to be removed
	var wg sync.WaitGroup
	wg.Go(func() { wait.UntilWithContext(ctx, g.list, g.Period/listShare) })
	wg.Go(func() { wait.UntilWithContext(ctx, g.monitor, g.Period) })
	if g.High == 100 {
		g.Log.V(2).Info("ImageGCHighThresholdPercent is set 100 and ImageMaximumGCAge is 0, Disable image GC")
	} else {
		failed := false
		collect := func(ctx context.Context) { failed = g.report(g.CollectNow(ctx), failed) }
		wg.Go(func() { wait.UntilWithContext(ctx, collect, g.Period) })
	}
	wg.Wait()
	return nil
}

// report logs the end of a pass. Only repeated failures cause an event.
func (g *GC) report(err error, failedBefore bool) (failed bool) {
	switch {
	case err != nil && failedBefore:
		g.Log.Error(err, "Image garbage collection failed multiple times in a row")
		g.Recorder.Event(g.node, v1.EventTypeWarning, "ImageGCFailed", err.Error())
	case err != nil:
		g.Log.Error(err, "Image garbage collection failed once. Stats initialization may not have completed yet")
	case failedBefore:
		g.Log.V(1).Info("Image garbage collection succeeded")
	default:
		g.Log.V(4).Info("Image garbage collection succeeded")
	}
	return err != nil
}

// Images returns the images as they were listed last, at most half a minute ago, for the node's status.
func (g *GC) Images() []*runtimeapi.Image {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.listed
}

func (g *GC) list(ctx context.Context) {
	all, err := g.Service.ListImages(ctx)
	if err != nil {
		g.Log.Info("Failed to update image list", "err", err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listed = all
}

func (g *GC) monitor(ctx context.Context) {
	if _, err := g.detect(ctx); err != nil {
		g.Log.Info("Failed to monitor images", "err", err)
	}
}

// detect notes which images are there and in use. It returns those that are neither in use nor pinned, the longest
// unused first, then the longest known. Images that the first call finds count as always having been there.
func (g *GC) detect(ctx context.Context) ([]image, error) {
	all, err := g.Service.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	used, err := g.InUse(ctx)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	found := now
	if !g.settled {
		found = time.Time{}
	}
	g.settled = true
	var free []image
	before := g.known
	g.known = map[string]*image{}
	inUse := func(name string) bool { return used[name] }
	for _, i := range all {
		k := cmp.Or(before[i.GetId()], &image{id: i.GetId(), detected: found})
		g.known[k.id], k.size = k, int64(i.GetSize())
		// Some runtimes report only the reference that a container was created with.
		if inUse(k.id) || slices.ContainsFunc(i.GetRepoTags(), inUse) || slices.ContainsFunc(i.GetRepoDigests(), inUse) {
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

// CollectNow makes one pass: if the disk is as full as High, it removes images until the disk is as full as Low. It is
// an error if it does not get there.
func (g *GC) CollectNow(ctx context.Context) error {
	free, err := g.detect(ctx)
	if err != nil {
		return err
	}
	size, available, err := g.Disk(ctx)
	if err != nil {
		return err
	}
	if size == 0 {
		err := errors.New("invalid capacity 0 on image filesystem")
		g.Recorder.Event(g.node, v1.EventTypeWarning, "InvalidDiskCapacity", err.Error())
		return err
	}
	left := int64(min(available, size))
	usage, amount := 100-int(left*100/int64(size)), int64(size)*int64(100-g.Low)/100-left
	if usage < g.High {
		return nil
	}
	g.Log.Info("Disk usage on image filesystem is over the high threshold, trying to free bytes down to the low threshold",
		"usage", usage, "highThreshold", g.High, "amountToFree", amount, "lowThreshold", g.Low)
	freed, err := g.remove(ctx, free, amount)
	if err != nil || freed >= amount {
		return err
	}
	message := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
		"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
		usage, fmt.Sprintf("%.1f GiB", float64(size)/(1<<30)), freed)
	g.Recorder.Event(g.node, v1.EventTypeWarning, "FreeDiskSpaceFailed", message)
	return errors.New(message)
}

// DeleteUnused removes all images that are not in use, pinned or too young, for an eviction.
func (g *GC) DeleteUnused(ctx context.Context) error {
	g.Log.Info("Attempting to delete unused images")
	free, err := g.detect(ctx)
	if err != nil {
		return err
	}
	_, err = g.remove(ctx, free, math.MaxInt64)
	return err
}

// remove removes images in order, except those younger than MinAge, which may have been pulled for a container that is
// about to start, until so many bytes are freed. An image that cannot be removed does not stop it.
func (g *GC) remove(ctx context.Context, free []image, bytes int64) (freed int64, err error) {
	var failed []error
	for _, i := range free {
		if time.Since(i.detected) < g.MinAge {
			continue
		}
		g.Log.Info("Removing image to free bytes", "imageID", i.id, "size", i.size, "runtimeHandler", "")
		if err := g.Service.RemoveImage(ctx, i.id); err != nil {
			failed = append(failed, err)
			continue
		}
		g.mu.Lock()
		delete(g.known, i.id)
		g.mu.Unlock()
		g.Metrics.ImageGarbageCollected.WithLabelValues("space").Inc()
		if freed += i.size; freed >= bytes {
			break
		}
	}
	if len(failed) > 0 {
		err = fmt.Errorf("wanted to free %d bytes, but freed %d bytes space with errors in image deletion: %w",
			bytes, freed, utilerrors.NewAggregate(failed))
	}
	return freed, err
}

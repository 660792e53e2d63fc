package images

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// listShare is how much more often than the images are collected their list is read for the node's status: 30 s to 5 m.
const listShare = 10

// A Store is the part of the runtime's image service that lists and removes.
type Store interface {
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	RemoveImage(ctx context.Context, image string) error
}

// GCConfig is what a GC is made of.
type GCConfig struct {
	Service Store
	// InUse returns the ids and references of the images that containers use, dead ones as well. An error stops the pass.
	InUse func(ctx context.Context) (map[string]bool, error)
	// Disk returns the size of the file system with the images, and what is free of it, in bytes.
	Disk      func(ctx context.Context) (capacity, available uint64, err error)
	High, Low int           // imageGCHighThresholdPercent, imageGCLowThresholdPercent: 85 and 80
	MinAge    time.Duration // imageMinimumGCAge, 2 m: since an image was first seen
	MaxAge    time.Duration // imageMaximumGCAge: since an image was last used; 0: none
	Period    time.Duration // ImageGCPeriod, 5 m
	NodeName  string
	Log       logr.Logger
	Recorder  record.EventRecorder
	Metrics   *metrics.Metrics
}

// A GC removes images when the disk fills up, or when they were not used for long. It is safe for use by several goroutines.
type GC struct {
	cfg   GCConfig
	node  *v1.ObjectReference
	began time.Time

	mu      sync.Mutex
	records records
	listed  []*runtimeapi.Image
	settled bool // images that are found from now on are new
}

// NewGC makes a GC. Thresholds that make no sense are an error.
func NewGC(cfg GCConfig) (*GC, error) {
	if cfg.Low < 0 || cfg.High > 100 || cfg.Low > cfg.High {
		return nil, fmt.Errorf("image thresholds must be 0 <= low <= high <= 100, not %d and %d", cfg.Low, cfg.High)
	}
	node := &v1.ObjectReference{Kind: "Node", Name: cfg.NodeName, UID: types.UID(cfg.NodeName)}
	return &GC{cfg: cfg, node: node, began: time.Now(), records: records{}}, nil
}

// Run watches the images and collects until ctx ends. Its error is always nil.
func (g *GC) Run(ctx context.Context) error {
	g.monitor(ctx) // before the first collection: what is there already is old enough to go
	var wg sync.WaitGroup
	wg.Go(func() { wait.UntilWithContext(ctx, g.list, g.cfg.Period/listShare) })
	wg.Go(func() { wait.UntilWithContext(ctx, g.monitor, g.cfg.Period) })
	if g.cfg.High == 100 && g.cfg.MaxAge == 0 {
		g.cfg.Log.V(2).Info("ImageGCHighThresholdPercent is set 100 and ImageMaximumGCAge is 0, Disable image GC")
	} else {
		failed := false
		collect := func(ctx context.Context) { failed = g.report(g.CollectNow(ctx), failed) }
		wg.Go(func() { wait.UntilWithContext(ctx, collect, g.cfg.Period) })
	}
	wg.Wait()
	return nil
}

// report logs the end of a pass. Only repeated failures make an event.
func (g *GC) report(err error, failedBefore bool) (failed bool) {
	switch {
	case err != nil && failedBefore:
		g.cfg.Log.Error(err, "Image garbage collection failed multiple times in a row")
		g.cfg.Recorder.Event(g.node, v1.EventTypeWarning, "ImageGCFailed", err.Error())
	case err != nil:
		g.cfg.Log.Error(err, "Image garbage collection failed once. Stats initialization may not have completed yet")
	case failedBefore:
		g.cfg.Log.V(1).Info("Image garbage collection succeeded")
	default:
		g.cfg.Log.V(4).Info("Image garbage collection succeeded")
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
	all, err := g.cfg.Service.ListImages(ctx)
	if err != nil {
		g.cfg.Log.Info("Failed to update image list", "err", err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listed = all
}

// monitor notes which images are there and in use. What the first look finds counts as always having been there.
func (g *GC) monitor(ctx context.Context) {
	g.mu.Lock()
	settled := g.settled
	g.mu.Unlock()
	var found time.Time
	if settled {
		found = time.Now()
	}
	if _, err := g.detect(ctx, found); err != nil {
		g.cfg.Log.Info("Failed to monitor images", "err", err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settled = true
}

// detect brings the records up to date and returns the images that may go, in order.
func (g *GC) detect(ctx context.Context, found time.Time) ([]candidate, error) {
	all, err := g.cfg.Service.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	used, err := g.cfg.InUse(ctx)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.records.update(all, used, found, time.Now()), nil
}

// CollectNow makes one pass: images that were not used for MaxAge go, and if the disk is as full as High, others until it
// is as full as Low. That it did not get there is an error.
func (g *GC) CollectNow(ctx context.Context) error {
	now := time.Now()
	candidates, err := g.detect(ctx, now)
	if err != nil {
		return err
	}
	if g.cfg.MaxAge > 0 && now.Sub(g.began) > g.cfg.MaxAge {
		var old []candidate
		old, candidates = splitOld(candidates, now, g.cfg.MaxAge)
		if _, failed := g.free(ctx, old, math.MaxInt64, "age"); len(failed) > 0 {
			return fmt.Errorf("wanted to free images older than %v, encountered errors in image deletion: %w",
				g.cfg.MaxAge, utilerrors.NewAggregate(failed))
		}
	}
	capacity, available, err := g.cfg.Disk(ctx)
	if err != nil {
		return err
	}
	if available > capacity {
		g.cfg.Log.Info("Availability is larger than capacity", "available", available, "capacity", capacity)
		available = capacity
	}
	if capacity == 0 {
		err := errors.New("invalid capacity 0 on image filesystem")
		g.cfg.Recorder.Event(g.node, v1.EventTypeWarning, "InvalidDiskCapacity", err.Error())
		return err
	}
	usage, amount := excess(capacity, available, g.cfg.Low)
	if usage < g.cfg.High {
		return nil
	}
	g.cfg.Log.Info("Disk usage on image filesystem is over the high threshold, trying to free bytes down to the low threshold",
		"usage", usage, "highThreshold", g.cfg.High, "amountToFree", amount, "lowThreshold", g.cfg.Low)
	freed, err := g.freeSpace(ctx, candidates, amount, now)
	if err != nil || freed >= amount {
		return err
	}
	message := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
		"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.", usage, formatSize(capacity), freed)
	g.cfg.Recorder.Event(g.node, v1.EventTypeWarning, "FreeDiskSpaceFailed", message)
	return errors.New(message)
}

// DeleteUnused removes all images that are not in use, pinned or too young, for an eviction.
func (g *GC) DeleteUnused(ctx context.Context) error {
	g.cfg.Log.Info("Attempting to delete unused images")
	now := time.Now()
	candidates, err := g.detect(ctx, now)
	if err != nil {
		return err
	}
	_, err = g.freeSpace(ctx, candidates, math.MaxInt64, now)
	return err
}

// freeSpace removes images that are old enough until so many bytes are freed.
func (g *GC) freeSpace(ctx context.Context, candidates []candidate, bytes int64, now time.Time) (freed int64, err error) {
	freed, failed := g.free(ctx, oldEnough(candidates, now, g.cfg.MinAge), bytes, "space")
	if len(failed) > 0 {
		err = fmt.Errorf("wanted to free %d bytes, but freed %d bytes space with errors in image deletion: %w",
			bytes, freed, utilerrors.NewAggregate(failed))
	}
	return freed, err
}

// free removes images in order until so many bytes are freed. One that cannot be removed does not stop it.
func (g *GC) free(ctx context.Context, candidates []candidate, bytes int64, why string) (freed int64, failed []error) {
	for _, c := range candidates {
		g.cfg.Log.Info("Removing image to free bytes", "imageID", c.id, "size", c.size, "runtimeHandler", "")
		if err := g.cfg.Service.RemoveImage(ctx, c.id); err != nil {
			failed = append(failed, err)
			continue
		}
		g.mu.Lock()
		delete(g.records, c.id)
		g.mu.Unlock()
		g.cfg.Metrics.ImageGarbageCollected.WithLabelValues(why).Inc()
		if freed += c.size; freed >= bytes {
			break
		}
	}
	return freed, failed
}

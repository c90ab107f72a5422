// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/cri"
)

// collectPeriod is the interval between checks of disk usage.
const collectPeriod = 5 * time.Minute

// The name of the span of a disk check, and the reasons for removing images. Kubernetes uses the
// same names.
const (
	spanCollect = "Images/GarbageCollect"
	reasonAge   = "age"
	reasonSpace = "space"
)

// CollectorConfig holds a Collector's settings.
type CollectorConfig struct {
	// When images are removed.

	// If at least High percent of the disk is used, images are removed until at most Low percent is
	// used. If High is 100, no images are removed to free space.
	High, Low int
	// MinAge is how long the Collector must have seen an image before it may remove it to free
	// space.
	MinAge time.Duration
	// MaxAge is how long an image may stay unused before it is removed even if the disk has space.
	// 0 means that images are not removed because of their age.
	MaxAge time.Duration

	// Access to the runtime and the disk.

	Images runtimeapi.ImageServiceClient
	// InUse returns the images, by ID and by name, of all containers in the runtime.
	InUse func(ctx context.Context) (map[string]bool, error)
	// Disk returns the capacity and the available bytes of the file system with the images.
	Disk func(ctx context.Context) (capacity, available uint64, err error)

	// Functions to call, and metrics, traces and logs.

	// Listed is called with the IDs of all images that were on the node at a time. It may be nil.
	Listed func(ids []string, at time.Time)
	// Event records a warning on the node.
	Event func(reason, message string)
	// Tracer creates a span for each check of disk usage; nil disables that.
	Tracer trace.Tracer
	// Metrics registers the metric that counts removed images; nil disables that.
	Metrics prometheus.Registerer
	Clock   clock.Clock
	Log     *slog.Logger
}

// Collector removes images that no container uses when the disk gets full. It removes the images
// that have been unused for longest first. It does not remove images that are pinned in the
// runtime.
type Collector struct {
	cfg     CollectorConfig
	removed *prometheus.CounterVec

	mu    sync.Mutex
	known map[string]*record // by image ID
	begun time.Time
}

// record is what the Collector has seen of an image. A restart of the kubelet loses the records, so
// that images may be removed later than necessary, but never earlier.
type record struct {
	id       string
	size     uint64
	pinned   bool
	detected time.Time
	used     time.Time // time of last use; zero if the image has not been used since it was detected
}

// NewCollector returns a Collector.
func NewCollector(cfg CollectorConfig) *Collector {
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	c := &Collector{cfg: cfg, known: map[string]*record{}, begun: cfg.Clock.Now(),
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_garbage_collected_total",
			Help: "[ALPHA] Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
		}, []string{"reason"})}
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(c.removed)
	}
	return c
}

// Run checks the disk usage periodically until ctx ends.
func (c *Collector) Run(ctx context.Context) error {
	t := c.cfg.Clock.NewTicker(collectPeriod)
	defer t.Stop()
	for failed := false; ; {
		if err := c.Collect(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Log.Warn("Image garbage collection failed", "err", err)
			if failed { // a single failure is normal while the node starts, so only the second in a row is reported
				c.cfg.Event("ImageGCFailed", err.Error())
			}
			failed = true
		} else {
			failed = false
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C():
		}
	}
}

// Collect checks the disk usage once and removes images if necessary.
func (c *Collector) Collect(ctx context.Context) error {
	ctx, span := c.cfg.Tracer.Start(ctx, spanCollect)
	defer span.End()
	err := c.collect(ctx)
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, "images are not collected")
	}
	return err
}

func (c *Collector) collect(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, err := c.detect(ctx)
	if err != nil {
		return err
	}
	if c.cfg.MaxAge > 0 {
		if _, err := c.remove(ctx, expired(c.records(), now, c.begun, c.cfg.MaxAge), reasonAge); err != nil {
			return err
		}
	}
	if c.cfg.High >= 100 {
		return nil
	}
	capacity, available, err := c.cfg.Disk(ctx)
	if err != nil {
		return fmt.Errorf("disk of the images: %w", err)
	}
	need := toFree(capacity, available, c.cfg.High, c.cfg.Low)
	if need == 0 {
		return nil
	}
	freed, err := c.remove(ctx, choose(c.records(), now, c.cfg.MinAge, need), reasonSpace)
	if err == nil && freed < need {
		message := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
			"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
			"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
			100-available*100/capacity, size(capacity), freed)
		c.cfg.Event("FreeDiskSpaceFailed", message)
		err = errors.New(message)
	}
	return err
}

// RemoveUnused removes every image that no container uses and that is not pinned. The eviction
// manager calls it under disk pressure.
func (c *Collector) RemoveUnused(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, err := c.detect(ctx)
	if err != nil {
		return err
	}
	_, err = c.remove(ctx, choose(c.records(), now, 0, ^uint64(0)), reasonSpace)
	return err
}

// detect lists the images and updates the records. In the records of images that are in use, it
// sets the time of last use to the returned time. So the caller can find the images in use by that
// time.
func (c *Collector) detect(ctx context.Context) (time.Time, error) {
	begun := c.cfg.Clock.Now()
	list, err := c.cfg.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return time.Time{}, fmt.Errorf("list images: %s", cri.Message(err))
	}
	inUse, err := c.cfg.InUse(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("images in use: %w", err)
	}
	now := c.cfg.Clock.Now()
	there := map[string]bool{}
	for _, image := range list.GetImages() {
		there[image.GetId()] = true
		r := c.known[image.GetId()]
		if r == nil {
			r = &record{id: image.GetId(), detected: now}
			c.known[r.id] = r
		}
		r.size, r.pinned = image.GetSize(), image.GetPinned()
		names := slices.Concat([]string{r.id}, image.GetRepoTags(), image.GetRepoDigests())
		if slices.ContainsFunc(names, func(n string) bool { return inUse[n] }) {
			r.used = now
		}
	}
	for id := range c.known {
		if !there[id] {
			delete(c.known, id)
		}
	}
	if c.cfg.Listed != nil {
		c.cfg.Listed(slices.Collect(maps.Keys(there)), begun)
	}
	return now, nil
}

func (c *Collector) records() []record {
	var out []record
	for _, r := range c.known {
		out = append(out, *r)
	}
	return out
}

func (c *Collector) remove(ctx context.Context, list []record, reason string) (freed uint64, err error) {
	var errs []error
	for _, r := range list {
		if _, err := c.cfg.Images.RemoveImage(ctx,
			&runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: r.id}}); err != nil {
			errs = append(errs, fmt.Errorf("remove image %s: %s", r.id, cri.Message(err)))
			continue
		}
		c.cfg.Log.Info("Image removed", "image", r.id, "bytes", r.size)
		c.removed.WithLabelValues(reason).Inc()
		delete(c.known, r.id)
		freed += r.size
	}
	return freed, errors.Join(errs...)
}

// toFree returns how many bytes must be freed until only low percent of the disk is used. It
// returns 0 if less than high percent is used.
func toFree(capacity, available uint64, high, low int) uint64 {
	available = min(available, capacity)
	if capacity == 0 || 100-available*100/capacity < uint64(high) {
		return 0
	}
	left := capacity * uint64(100-low) / 100
	return left - min(available, left)
}

// candidates returns the unpinned images that were not in use at the time of this check. They are
// sorted by time of last use, and then by the time when they were detected, both with the oldest
// first.
func candidates(records []record, now time.Time) []record {
	records = slices.DeleteFunc(slices.Clone(records), func(r record) bool { return r.pinned || !r.used.Before(now) })
	slices.SortFunc(records, func(a, b record) int {
		return cmp.Or(a.used.Compare(b.used), a.detected.Compare(b.detected), cmp.Compare(a.id, b.id))
	})
	return records
}

// choose returns candidates with at least need bytes in all. It skips images that were detected
// less than minAge ago, because they are probably about to be used.
func choose(records []record, now time.Time, minAge time.Duration, need uint64) []record {
	var out []record
	var sum uint64
	for _, r := range candidates(records, now) {
		if sum >= need {
			break
		}
		if now.Sub(r.detected) < minAge {
			continue
		}
		out = append(out, r)
		sum += r.size
	}
	return out
}

// expired returns the images that have been unused for more than maxAge. begun is the start of the
// kubelet; the time before it does not count, because no use was observed then.
func expired(records []record, now, begun time.Time, maxAge time.Duration) []record {
	if now.Sub(begun) <= maxAge {
		return nil
	}
	return slices.DeleteFunc(candidates(records, now), func(r record) bool {
		since := r.used
		if since.IsZero() {
			since = r.detected
		}
		return now.Sub(since) <= maxAge
	})
}

// size formats a number of bytes with a binary unit such as GiB.
func size(bytes uint64) string {
	const step = 1024
	if bytes < step {
		return fmt.Sprintf("%d B", bytes)
	}
	n := float64(bytes) / step
	for _, unit := range []string{"KiB", "MiB", "GiB"} {
		if n < step {
			return fmt.Sprintf("%.1f %s", n, unit)
		}
		n /= step
	}
	return fmt.Sprintf("%.1f TiB", n)
}

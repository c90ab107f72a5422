// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Signal is the name of a resource that can run out, as in thresholds.
type Signal string

// The signals.
const (
	MemoryAvailable   Signal = "memory.available"
	NodeFsAvailable   Signal = "nodefs.available"
	NodeFsInodesFree  Signal = "nodefs.inodesFree"
	ImageFsAvailable  Signal = "imagefs.available"
	ImageFsInodesFree Signal = "imagefs.inodesFree"
	PIDAvailable      Signal = "pid.available"
	// AllocatableMemory is how much of the memory that all pods together may use is left.
	AllocatableMemory Signal = "allocatableMemory.available"

	// Limits of pods. They have no thresholds.
	emptyDirLimit  Signal = "emptydirfs.limit"
	podLimit       Signal = "ephemeralpodfs.limit"
	containerLimit Signal = "ephemeralcontainerfs.limit"
)

// Names in messages for resources that the API does not have.
const (
	inodes v1.ResourceName = "inodes"
	pids   v1.ResourceName = "pids"
)

// Amount is what is left of a resource and its total, in bytes or in numbers.
type Amount struct{ Available, Capacity int64 }

// Observation is the amount of each resource that could be measured.
type Observation map[Signal]Amount

// Threshold is the minimum amount of a resource.
type Threshold struct {
	Signal Signal
	// The minimum is either Value, or Percent of the capacity. The other field is zero.
	Value   resource.Quantity
	Percent float64
	// Grace is how long a soft threshold may be crossed. It is zero for a hard one.
	Grace time.Duration
	// Soft reports whether evicted pods have a grace period.
	Soft bool
	// Reclaim (or ReclaimPercent of the capacity) is how much more than the threshold must be
	// available before a crossed threshold counts as not crossed.
	Reclaim        resource.Quantity
	ReclaimPercent float64
}

// Parse reads the thresholds of a configuration and sorts them in the order in which they are acted
// on. Memory is first because it runs out fastest.
func Parse(c *kubeletconfig.KubeletConfiguration) ([]Threshold, error) {
	var out []Threshold
	for _, list := range []struct {
		field  string
		values map[string]string
		soft   bool
	}{{"evictionHard", c.EvictionHard, false}, {"evictionSoft", c.EvictionSoft, true}} {
		for name, text := range list.values {
			t, err := parse(name, text, list.soft, c)
			if err != nil {
				return nil, fmt.Errorf("%s.%s: %w", list.field, name, err)
			}
			if t == nil {
				continue
			}
			out = append(out, *t)
			if t.Signal == MemoryAvailable && !t.Soft && slices.Contains(c.EnforceNodeAllocatable, "pods") {
				// This threshold is crossed before the kernel kills a container of the cgroup of
				// all pods.
				t.Signal = AllocatableMemory
				out = append(out, *t)
			}
		}
	}
	slices.SortFunc(out, func(a, b Threshold) int {
		return cmp.Or(order(a.Signal)-order(b.Signal), cmp.Compare(a.Signal, b.Signal), boolOrder(a.Soft)-boolOrder(b.Soft))
	})
	return out, nil
}

func order(s Signal) int { return boolOrder(s != MemoryAvailable && s != AllocatableMemory) }

func boolOrder(b bool) int {
	if b {
		return 1
	}
	return 0
}

// parse reads one threshold. The result is nil if it is disabled.
func parse(name, text string, soft bool, c *kubeletconfig.KubeletConfiguration) (*Threshold, error) {
	t := &Threshold{Signal: Signal(name), Soft: soft}
	if condition(t.Signal) == "" {
		return nil, fmt.Errorf("unsupported eviction signal %v", name)
	}
	var err error
	if t.Value, t.Percent, err = amount(text); err != nil {
		return nil, err
	}
	if strings.HasSuffix(text, "%") && (t.Percent == 0 || t.Percent == 100) {
		return nil, nil
	}
	if least, ok := c.EvictionMinimumReclaim[name]; ok {
		if t.Reclaim, t.ReclaimPercent, err = amount(least); err != nil {
			return nil, fmt.Errorf("evictionMinimumReclaim: %w", err)
		}
	}
	if soft {
		grace, ok := c.EvictionSoftGracePeriod[name]
		if !ok {
			return nil, fmt.Errorf("grace period must be specified for the soft eviction threshold %v", name)
		}
		if t.Grace, err = time.ParseDuration(grace); err != nil || t.Grace < 0 {
			return nil, fmt.Errorf("evictionSoftGracePeriod: %q is not a duration", grace)
		}
	}
	return t, nil
}

func amount(text string) (resource.Quantity, float64, error) {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		f, err := strconv.ParseFloat(percent, 64)
		if err != nil || f < 0 || f > 100 {
			return resource.Quantity{}, 0, fmt.Errorf("eviction percentage threshold %q must be between 0%% and 100%%", text)
		}
		return resource.Quantity{}, f, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return q, 0, err
	}
	if q.Sign() < 0 {
		return q, 0, fmt.Errorf("eviction threshold %s must be positive", text)
	}
	return q, 0, nil
}

// quantity returns the threshold for a capacity.
func (t *Threshold) quantity(capacity int64) *resource.Quantity {
	return thresholdQuantity(t.Value, t.Percent, capacity)
}

func thresholdQuantity(q resource.Quantity, percent float64, capacity int64) *resource.Quantity {
	if percent > 0 {
		return resource.NewQuantity(int64(float64(capacity)*percent/100), resource.BinarySI)
	}
	q = q.DeepCopy()
	return &q
}

// crossed reports whether less than the threshold is available. If before is true, Reclaim is added
// to the threshold, so that it stays crossed until that much more is available.
func (t *Threshold) crossed(a Amount, before bool) bool {
	least := t.quantity(a.Capacity)
	if before {
		least.Add(*thresholdQuantity(t.Reclaim, t.ReclaimPercent, a.Capacity))
	}
	return least.Value() > a.Available
}

// condition returns the node's condition for a signal.
func condition(s Signal) v1.NodeConditionType {
	switch s {
	case MemoryAvailable, AllocatableMemory:
		return v1.NodeMemoryPressure
	case NodeFsAvailable, NodeFsInodesFree, ImageFsAvailable, ImageFsInodesFree:
		return v1.NodeDiskPressure
	case PIDAvailable:
		return v1.NodePIDPressure
	}
	return ""
}

// resourceOf returns the resource to reclaim for a signal.
func resourceOf(s Signal) v1.ResourceName {
	switch s {
	case MemoryAvailable, AllocatableMemory:
		return v1.ResourceMemory
	case NodeFsInodesFree, ImageFsInodesFree:
		return inodes
	case PIDAvailable:
		return pids
	}
	return v1.ResourceEphemeralStorage
}

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

// Signal is the name of a resource that can run out. Thresholds in the configuration use these
// names.
type Signal string

// Signals for resources of the node, and for limits of pods.
const (
	MemoryAvailable   Signal = "memory.available"
	NodeFsAvailable   Signal = "nodefs.available"
	NodeFsInodesFree  Signal = "nodefs.inodesFree"
	ImageFsAvailable  Signal = "imagefs.available"
	ImageFsInodesFree Signal = "imagefs.inodesFree"
	PIDAvailable      Signal = "pid.available"
	// AllocatableMemory is the memory that is left of what all pods together may use.
	AllocatableMemory Signal = "allocatableMemory.available"

	// These signals stand for limits of pods. The configuration cannot set thresholds for them.
	emptyDirLimit  Signal = "emptydirfs.limit"
	podLimit       Signal = "ephemeralpodfs.limit"
	containerLimit Signal = "ephemeralcontainerfs.limit"
)

// Names that messages use for resources without a name in the API.
const (
	inodes v1.ResourceName = "inodes"
	pids   v1.ResourceName = "pids"
)

// Amount is how much of a resource is available and how much there is in total, in bytes or as a
// number.
type Amount struct{ Available, Capacity int64 }

// Observation holds the amounts of those resources that could be measured.
type Observation map[Signal]Amount

// Threshold is the minimum amount of a resource that must be available.
type Threshold struct {
	Signal Signal
	// The minimum amount is Value, or Percent of the capacity. The other field is zero.
	Value   resource.Quantity
	Percent float64
	// Grace is how long a soft threshold may be crossed before a pod is evicted. It is zero for a
	// hard threshold.
	Grace time.Duration
	// Soft means that the threshold is soft, so that evicted pods get a grace period.
	Soft bool
	// Reclaim, or ReclaimPercent of the capacity, is added to the minimum amount once the threshold
	// is crossed. The threshold stays crossed until the sum is available.
	Reclaim        resource.Quantity
	ReclaimPercent float64
}

// Parse parses the thresholds in the configuration. It sorts them in the order in which they are
// handled: memory first, because it runs out fastest.
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
				// This threshold is crossed before the cgroup of all pods reaches its limit and the
				// kernel kills a container.
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

// parse parses one threshold. It returns nil if the text disables the threshold.
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

// quantity returns the minimum amount for a resource with this capacity.
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

// crossed reports whether less than the minimum amount is available. The argument before means that
// the threshold was crossed at the last check; in this case, the amount in Reclaim must be
// available in addition.
func (t *Threshold) crossed(a Amount, before bool) bool {
	least := t.quantity(a.Capacity)
	if before {
		least.Add(*thresholdQuantity(t.Reclaim, t.ReclaimPercent, a.Capacity))
	}
	return least.Value() > a.Available
}

// condition returns the pressure condition that belongs to a signal, or "".
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

// resourceOf returns the resource that must be freed for a signal.
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

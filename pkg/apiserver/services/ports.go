// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"keelson.dev/apiserver/store"
	"keelson.dev/keelson/pkg/apiserver/config"
)

// portsKey is the bitmap's key in the store of range allocations.
const portsKey = "servicenodeports"

var errPortAllocated = errors.New("provided port is already allocated")

// Ports allocates node ports in the stored bitmap. It is safe for concurrent use.
type Ports struct {
	store store.ReadWriter
	pool  config.PortRange

	mu     sync.Mutex
	random *rand.Rand
}

// NewPorts returns an allocator of the ports in pool. The bitmap is in s, the store of
// RangeAllocations. The caller must not use random afterwards.
func NewPorts(s store.ReadWriter, pool config.PortRange, random *rand.Rand) *Ports {
	return &Ports{store: s, pool: pool, random: random}
}

// bitmap is the set of allocated node ports. Bit i is the port with offset i in the range.
type bitmap struct{ big.Int }

func (b *bitmap) has(i int) bool        { return b.Bit(i) == 1 }
func (b *bitmap) set(i int, taken bool) { b.SetBit(&b.Int, i, map[bool]uint{true: 1}[taken]) }

// change applies fn to the bitmap in one transaction. If the stored bitmap is for another range
// than the configured one, change first moves it to the configured range and drops ports outside of
// it.
func (p *Ports) change(ctx context.Context, dryRun bool, fn func(*bitmap) error) error {
	if dryRun {
		b, err := p.read(ctx)
		if err != nil {
			return err
		}
		return fn(b)
	}
	for range 8 {
		_, err := p.store.Update(ctx, portsKey, func(_ context.Context, cur *store.Record) (store.Object, error) {
			obj, err := cur.Object()
			if err != nil {
				return nil, err
			}
			alloc, ok := obj.(*corev1.RangeAllocation)
			if !ok {
				return nil, fmt.Errorf("node ports: unexpected %T", obj)
			}
			return p.next(alloc, fn)
		})
		if !apierrors.IsNotFound(err) {
			return err
		}
		alloc, err := p.next(&corev1.RangeAllocation{}, fn)
		if err != nil {
			return err
		}
		if _, err = p.store.Create(ctx, portsKey, alloc, 0); !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return apierrors.NewInternalError(errors.New("node ports: the stored allocation is created and deleted repeatedly"))
}

func (p *Ports) next(alloc *corev1.RangeAllocation, fn func(*bitmap) error) (*corev1.RangeAllocation, error) {
	b := p.parse(alloc)
	if err := fn(b); err != nil {
		return nil, err
	}
	alloc.Range, alloc.Data = p.pool.String(), b.Bytes()
	return alloc, nil
}

func (p *Ports) parse(alloc *corev1.RangeAllocation) *bitmap {
	var stored, b bitmap
	stored.SetBytes(alloc.Data)
	var was config.PortRange
	if alloc.Range == p.pool.String() || was.Set(alloc.Range) != nil {
		return &stored
	}
	for i := range stored.BitLen() {
		if port := was.First + i; stored.has(i) && p.pool.Contains(port) {
			b.set(port-p.pool.First, true)
		}
	}
	return &b
}

func (p *Ports) read(ctx context.Context) (*bitmap, error) {
	rec, err := p.store.Get(ctx, portsKey, "")
	if apierrors.IsNotFound(err) {
		return &bitmap{}, nil
	}
	if err != nil {
		return nil, err
	}
	obj, err := rec.Object()
	if err != nil {
		return nil, err
	}
	alloc, ok := obj.(*corev1.RangeAllocation)
	if !ok {
		return nil, fmt.Errorf("node ports: unexpected %T", obj)
	}
	return p.parse(alloc), nil
}

// take sets the bit of a port in b. It returns an error if the port is taken or out of range.
func (p *Ports) take(b *bitmap, port int) error {
	if !p.pool.Contains(port) {
		return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %s", p.pool)
	}
	if b.has(port - p.pool.First) {
		return errPortAllocated
	}
	b.set(port-p.pool.First, true)
	return nil
}

// takeAny chooses a free port, from the upper band if possible, and sets its bit in b.
func (p *Ports) takeAny(b *bitmap) (int, error) {
	size := p.pool.Size()
	low := int(band(uint64(size), 16, 128, 32))
	for _, part := range [][2]int{{low, size}, {0, low}} {
		n := part[1] - part[0]
		if n == 0 {
			continue
		}
		start := p.draw(n)
		for i := range n {
			if at := part[0] + (start+i)%n; !b.has(at) {
				b.set(at, true)
				return p.pool.First + at, nil
			}
		}
	}
	return 0, errFull
}

func (p *Ports) draw(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.random.IntN(n)
}

// release frees node ports.
func (p *Ports) release(ctx context.Context, ports []int) error {
	if len(ports) == 0 {
		return nil
	}
	err := p.change(ctx, false, func(b *bitmap) error {
		for _, port := range ports {
			if p.pool.Contains(port) {
				b.set(port-p.pool.First, false)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("release node ports: %w", err)
	}
	return nil
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeipam

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// maxBits limits the number of node ranges in a cluster range to 2^16. No cluster has that many
// nodes.
const maxBits = 16

var errFull = errors.New("CIDR allocation failed; there are no remaining CIDRs left to allocate in the accepted range")

// services is used as the holder of ranges that are reserved for the addresses of Services.
const services types.UID = "services"

// ranges divides a prefix into node ranges of equal size. A node range is free if it has no holder.
// It can have several holders, because other clients can set the same range on several nodes. Then
// it is free when the last holder has released it. The type is not safe for concurrent use.
type ranges struct {
	whole   netip.Prefix
	mask    int
	count   int
	taken   map[int][]types.UID
	metrics *metrics
	from    int // index of the range at which the search for a free one begins
}

func newRanges(whole netip.Prefix, mask int, m *metrics) (*ranges, error) {
	bits := mask - whole.Bits()
	if bits < 0 || bits > maxBits || mask > whole.Addr().BitLen() {
		return nil, fmt.Errorf("node mask size /%d does not divide cluster range %s into 1 to %d ranges", mask,
			whole, 1<<maxBits)
	}
	r := &ranges{whole: whole.Masked(), mask: mask, count: 1 << bits, taken: map[int][]types.UID{}, metrics: m}
	m.maximum.WithLabelValues(r.whole.String()).Set(float64(r.count))
	return r, nil
}

// next returns a free range of pod addresses and adds the holder (a node) to it.
func (r *ranges) next(holder types.UID) (netip.Prefix, error) {
	for i := range r.count {
		n := (r.from + i) % r.count
		if len(r.taken[n]) == 0 {
			r.taken[n] = []types.UID{holder}
			r.allocated()
			r.metrics.tries.WithLabelValues(r.whole.String()).Observe(float64(i))
			r.from = (n + 1) % r.count
			return r.at(n), nil
		}
	}
	return netip.Prefix{}, errFull
}

func (r *ranges) at(n int) netip.Prefix {
	base := new(big.Int).SetBytes(r.whole.Addr().AsSlice())
	step := new(big.Int).Lsh(big.NewInt(int64(n)), uint(r.whole.Addr().BitLen()-r.mask))
	b := base.Add(base, step).FillBytes(make([]byte, r.whole.Addr().BitLen()/8))
	a, _ := netip.AddrFromSlice(b) // b has the length of an IP address, so this cannot fail
	return netip.PrefixFrom(a, r.mask)
}

// span returns the indexes of the first and the last range that overlap with p. ok is false if no
// range does.
func (r *ranges) span(p netip.Prefix) (first, last int, ok bool) {
	if !r.whole.Overlaps(p) {
		return 0, 0, false
	}
	if p.Bits() <= r.whole.Bits() {
		return 0, r.count - 1, true
	}
	offset := new(big.Int).SetBytes(p.Masked().Addr().AsSlice())
	offset.Sub(offset, new(big.Int).SetBytes(r.whole.Addr().AsSlice()))
	first = int(offset.Rsh(offset, uint(r.whole.Addr().BitLen()-r.mask)).Int64())
	last = first
	if p.Bits() < r.mask {
		last = first + 1<<(r.mask-p.Bits()) - 1
	}
	return first, last, true
}

// occupy adds a holder to every range that overlaps with p. It reports whether p is inside the
// whole prefix and none of these ranges has another holder.
func (r *ranges) occupy(p netip.Prefix, holder types.UID) bool {
	first, last, ok := r.span(p)
	if !ok {
		return false
	}
	alone := p.Bits() >= r.whole.Bits()
	for n := first; n <= last; n++ {
		if !slices.Contains(r.taken[n], holder) {
			r.taken[n] = append(r.taken[n], holder)
			if len(r.taken[n]) == 1 {
				r.allocated()
			}
		}
		alone = alone && len(r.taken[n]) == 1
	}
	return alone
}

// release removes a holder, such as a node, from all ranges of pod addresses that overlap with p.
func (r *ranges) release(p netip.Prefix, holder types.UID) {
	first, last, ok := r.span(p)
	if !ok {
		return
	}
	for n := first; n <= last; n++ {
		held := len(r.taken[n]) > 0
		r.taken[n] = slices.DeleteFunc(r.taken[n], func(uid types.UID) bool { return uid == holder })
		if len(r.taken[n]) == 0 {
			delete(r.taken, n)
			if held {
				r.metrics.releases.WithLabelValues(r.whole.String()).Inc()
				r.setUsage()
			}
		}
	}
}

// allocated updates the metrics after a free range got a holder.
func (r *ranges) allocated() {
	r.metrics.allocations.WithLabelValues(r.whole.String()).Inc()
	r.setUsage()
}

func (r *ranges) setUsage() {
	r.metrics.usage.WithLabelValues(r.whole.String()).Set(float64(len(r.taken)) / float64(r.count))
}

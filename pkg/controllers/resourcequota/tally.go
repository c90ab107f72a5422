// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
)

const (
	// chargeLife is longer than the time from a charge until this controller can see the object:
	// API servers end requests after 60 s by default, and watches may lag.
	chargeLife = 2 * time.Minute
	// clockSkew is the maximum difference between the clocks of API servers and of this controller.
	clockSkew = 2 * time.Second
)

// tally is what the controller knows of one quota in addition to its status.
//
// Admission charges a quota before the object is stored. Therefore status.used is the usage of
// stored objects plus that of objects being written, which the controller cannot see. The
// controller lowers status.used only for objects that it saw stored and then deleted, once for each
// object, and raises it to the usage that it sees.
//
// A charge for an object that is never stored, because the write failed or a process died, is an
// excess. To find an excess, the controller starts an audit. When charges from before the audit
// must all have been used, it removes the excess in status.used, but nothing that was charged since
// the audit began.
//
// A tally is not safe for concurrent use.
type tally struct {
	uid types.UID
	// floor is the quota's revision when the tally began. An earlier controller may have subtracted
	// deletions up to this revision.
	floor int64
	// counted is the usage of each object, by UID, and sum the total.
	counted map[types.UID]v1.ResourceList
	sum     v1.ResourceList
	// released is the usage of deleted objects that status.used still contains.
	released v1.ResourceList
	// used is the status.used that was last seen or written, at revision.
	used     v1.ResourceList
	revision int64
	audit    audit
}

// audit determines the excess in status.used.
type audit struct {
	since time.Time // zero if there is no audit
	// charged is what was charged since then, and arrived the part of it that is stored by now
	charged, arrived v1.ResourceList
}

func newTally(q *v1.ResourceQuota) *tally {
	t := &tally{uid: q.UID, floor: revisionOf(q), counted: map[types.UID]v1.ResourceList{},
		sum: v1.ResourceList{}, released: v1.ResourceList{}}
	t.used, t.revision = q.Status.Used, t.floor
	return t
}

func revisionOf(o metav1.Object) int64 {
	n, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// limit sets which names the tally counts. Released usage of new names is not in status.used,
// because nothing was charged for them.
func (t *tally) limit(names []v1.ResourceName) {
	sum := v1.ResourceList{}
	for _, n := range names {
		sum[n] = t.sum[n]
	}
	t.released = quotav1.Mask(t.released, quotav1.Intersection(names, quotav1.ResourceNames(t.sum)))
	t.sum = sum
}

// set records the usage of an object at a revision. usage is empty if the object was deleted. It
// reports whether status.used may need a write.
func (t *tally) set(object metav1.Object, revision int64, usage v1.ResourceList) bool {
	uid := object.GetUID()
	before, known := t.counted[uid]
	if len(usage) == 0 {
		delete(t.counted, uid)
	} else {
		t.counted[uid] = usage
	}
	less, more := positive(quotav1.Subtract(before, usage)), positive(quotav1.Subtract(usage, before))
	names := quotav1.ResourceNames(t.sum)
	less, more = quotav1.Mask(less, names), quotav1.Mask(more, names)
	t.sum = quotav1.Add(quotav1.SubtractWithNonNegativeResult(t.sum, less), more)
	if revision > t.floor {
		t.released = quotav1.Add(t.released, less)
	}
	// An object that was created after the audit began was also charged after that.
	if !known && !t.audit.since.IsZero() && object.GetCreationTimestamp().After(t.audit.since.Add(clockSkew)) {
		t.audit.arrived = quotav1.Add(t.audit.arrived, more)
	}
	within, _ := quotav1.LessThanOrEqual(t.sum, t.used)
	return len(less) > 0 || len(more) > 0 && !within
}

// observe records the status of a quota, unless a newer one was recorded.
func (t *tally) observe(q *v1.ResourceQuota) {
	revision := revisionOf(q)
	if revision <= t.revision {
		return
	}
	t.audit.charged = quotav1.Add(t.audit.charged, positive(quotav1.Subtract(q.Status.Used, t.used)))
	t.used, t.revision = q.Status.Used, revision
}

// plan is a status.used to write.
type plan struct {
	used v1.ResourceList
	// released is the part of the tally's released usage that the plan subtracts.
	released v1.ResourceList
	// audited reports whether the plan removes an excess.
	audited bool
}

// next returns the next status.used of a quota.
func (t *tally) next(q *v1.ResourceQuota, now time.Time) plan {
	t.observe(q)
	p := plan{used: v1.ResourceList{}, released: t.released}
	charged := quotav1.Intersection(quotav1.ResourceNames(q.Status.Hard), quotav1.ResourceNames(q.Status.Used))
	for name, sum := range t.sum {
		p.used[name] = sum
		if !quotav1.Contains(charged, name) {
			continue // admission charges nothing before the first count
		}
		rest := q.Status.Used[name].DeepCopy()
		rest.Sub(t.released[name])
		if rest.Cmp(sum) > 0 {
			p.used[name] = rest
		}
	}
	excess := positive(quotav1.Subtract(p.used, t.sum))
	switch {
	case len(excess) == 0:
		t.audit = audit{}
	case t.audit.since.IsZero():
		t.audit = audit{since: now}
	case now.Sub(t.audit.since) >= chargeLife:
		// Earlier charges are stored by now or never will be. The objects of later charges that
		// were not seen may still be stored.
		open := positive(quotav1.Subtract(t.audit.charged, t.audit.arrived))
		dead := quotav1.Mask(positive(quotav1.Subtract(excess, open)), quotav1.ResourceNames(excess))
		p.used, p.audited = quotav1.Subtract(p.used, dead), len(dead) > 0
		if !p.audited {
			t.audit = audit{since: now}
		}
	}
	return p
}

// wrote records that a plan was written. revision is zero if it is unknown whether the write was
// stored. Then wrote assumes that it was: if not, status.used is too high, which is corrected
// later. The opposite error would admit too much.
func (t *tally) wrote(p plan, revision int64) {
	t.released = quotav1.RemoveZeros(quotav1.Subtract(t.released, p.released))
	t.used, t.revision = p.used, max(t.revision, revision)
	if p.audited {
		t.audit = audit{}
	}
}

// positive returns the quantities above zero.
func positive(a v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range a {
		if q.Sign() > 0 {
			out[name] = q
		}
	}
	return out
}

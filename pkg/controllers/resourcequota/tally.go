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
	// chargeLife is an upper limit for the time from a charge, by which an API server adds the
	// usage of a new object to status.used, until this controller sees the object. API servers end
	// requests after 60 s by default, and watches may lag.
	chargeLife = 2 * time.Minute
	// clockSkew is the assumed maximum difference between the clocks of API servers and of this
	// controller.
	clockSkew = 2 * time.Second
)

// tally is what the controller has counted for one quota.
//
// Admission charges a quota before the object is stored. Therefore status.used is the usage of the
// stored objects plus that of objects that are being written, which the controller cannot see. The
// controller lowers status.used only for objects that it has seen stored and then deleted, once for
// each object. It raises status.used if it sees more usage than that.
//
// A charge for an object that is never stored, because the write failed or a process was killed, is
// called an excess. If status.used is greater than the usage that the controller sees, it starts an
// audit. After chargeLife, every object that was charged before the audit is stored or will never
// be stored. Then the controller removes the excess from status.used, but nothing that was charged
// since the audit began.
//
// A tally is not safe for concurrent use.
type tally struct {
	uid types.UID
	// floor is the revision of the quota when the tally began. Deletions up to this revision may
	// have been subtracted already by an earlier controller.
	floor int64
	// counted is the usage of each object by UID, and sum is the total usage of all objects.
	counted map[types.UID]v1.ResourceList
	sum     v1.ResourceList
	// released is the usage of deleted objects that must still be subtracted from status.used.
	released v1.ResourceList
	// used is the status.used that the controller has seen or written last, and revision the
	// quota's revision with this value.
	used     v1.ResourceList
	revision int64
	audit    audit
}

// audit holds the data to find the excess in status.used: the usage of objects that were charged
// but never stored.
type audit struct {
	since time.Time // when the audit began; zero if there is no audit
	// charged is the usage that was charged since the audit began, and arrived the part of it whose
	// objects the controller has seen.
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

// limit sets the names of the resources that the tally counts. It drops the released usage of names
// that were not counted before, because nothing was charged for them.
func (t *tally) limit(names []v1.ResourceName) {
	sum := v1.ResourceList{}
	for _, n := range names {
		sum[n] = t.sum[n]
	}
	t.released = quotav1.Mask(t.released, quotav1.Intersection(names, quotav1.ResourceNames(t.sum)))
	t.sum = sum
}

// set records the usage of an object at a revision. usage is empty if the object was deleted. It
// reports whether status.used may have to be written.
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
	// If an object was created after the audit began, it was also charged after that.
	if !known && !t.audit.since.IsZero() && object.GetCreationTimestamp().After(t.audit.since.Add(clockSkew)) {
		t.audit.arrived = quotav1.Add(t.audit.arrived, more)
	}
	within, _ := quotav1.LessThanOrEqual(t.sum, t.used)
	return len(less) > 0 || len(more) > 0 && !within
}

// observe records status.used of a quota, unless it has recorded a newer version of the quota.
func (t *tally) observe(q *v1.ResourceQuota) {
	revision := revisionOf(q)
	if revision <= t.revision {
		return
	}
	t.audit.charged = quotav1.Add(t.audit.charged, positive(quotav1.Subtract(q.Status.Used, t.used)))
	t.used, t.revision = q.Status.Used, revision
}

// plan is a new value of a quota's status.used.
type plan struct {
	used v1.ResourceList
	// released is the usage of deleted objects that the plan has subtracted.
	released v1.ResourceList
	// audited reports whether the plan removes an excess: charges for objects that were never stored.
	audited bool
}

// next returns the new value of status.used for a quota.
func (t *tally) next(q *v1.ResourceQuota, now time.Time) plan {
	t.observe(q)
	p := plan{used: v1.ResourceList{}, released: t.released}
	charged := quotav1.Intersection(quotav1.ResourceNames(q.Status.Hard), quotav1.ResourceNames(q.Status.Used))
	for name, sum := range t.sum {
		p.used[name] = sum
		if !quotav1.Contains(charged, name) {
			continue // nothing is charged before status.used was written for the first time
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
		// Charges from before the audit are for objects that are stored by now or never will be.
		// Objects that were charged later and not seen yet (open) may still be stored, so keep
		// their usage.
		open := positive(quotav1.Subtract(t.audit.charged, t.audit.arrived))
		dead := quotav1.Mask(positive(quotav1.Subtract(excess, open)), quotav1.ResourceNames(excess))
		p.used, p.audited = quotav1.Subtract(p.used, dead), len(dead) > 0
		if !p.audited {
			t.audit = audit{since: now}
		}
	}
	return p
}

// wrote records that a plan was written. revision is the quota's revision after the write, or 0 if
// it is unknown whether the write was stored. In this case wrote assumes that it was: if that is
// wrong, status.used is too high, and a later audit corrects it. With the opposite assumption,
// status.used might become too low, and admission would allow too much.
func (t *tally) wrote(p plan, revision int64) {
	t.released = quotav1.RemoveZeros(quotav1.Subtract(t.released, p.released))
	t.used, t.revision = p.used, max(t.revision, revision)
	if p.audited {
		t.audit = audit{}
	}
}

// positive returns the quantities that are greater than zero.
func positive(a v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range a {
		if q.Sign() > 0 {
			out[name] = q
		}
	}
	return out
}

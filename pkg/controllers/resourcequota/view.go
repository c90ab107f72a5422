// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
)

// recountAfter is the maximum age of a full count; between counts, only events update the usage.
// The full count is needed because the usage of a pod changes without an event when its grace
// period ends.
const recountAfter = 10 * time.Second

// apiObject is an object of the API, including its metadata.
type apiObject interface {
	runtime.Object
	metav1.Object
}

// view holds the objects that quotas can count, as of the events that were handled, and the tallies
// of quotas. It does not use the caches of informers, because they may contain changes whose events
// were not handled yet, and a tally must see each deletion exactly once. A view is safe for
// concurrent use.
type view struct {
	mu      sync.Mutex
	objects map[schema.GroupResource]map[string]map[types.UID]apiObject // by resource, namespace and UID
	quotas  map[string]map[string]*follower                             // by namespace and name
}

// follower is the tally (running count of the used resources) of one quota, with the data to update
// it.
type follower struct {
	*tally
	// quota is the quota whose limits and scopes are counted. Its status.hard is a copy of its
	// spec.hard.
	quota      *v1.ResourceQuota
	evaluators []quotav1.Evaluator
	countedAt  time.Time
}

func newView() *view {
	return &view{objects: map[schema.GroupResource]map[string]map[types.UID]apiObject{},
		quotas: map[string]map[string]*follower{}}
}

// changed records an event and returns the names of the quotas whose status may have to be written.
func (v *view) changed(resource schema.GroupResource, old, obj apiObject) (quotas []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if old != nil && (obj == nil || obj.GetUID() != old.GetUID()) {
		v.drop(resource, old)
		quotas = v.set(resource, old, nil)
	}
	if obj != nil {
		v.keep(resource, obj)
		quotas = append(quotas, v.set(resource, obj, obj)...)
	}
	return quotas
}

func (v *view) keep(resource schema.GroupResource, obj apiObject) {
	namespaces := v.objects[resource]
	if namespaces == nil {
		namespaces = map[string]map[types.UID]apiObject{}
		v.objects[resource] = namespaces
	}
	objects := namespaces[obj.GetNamespace()]
	if objects == nil {
		objects = map[types.UID]apiObject{}
		namespaces[obj.GetNamespace()] = objects
	}
	objects[obj.GetUID()] = obj
}

func (v *view) drop(resource schema.GroupResource, old apiObject) {
	namespaces := v.objects[resource]
	delete(namespaces[old.GetNamespace()], old.GetUID())
	if len(namespaces[old.GetNamespace()]) == 0 {
		delete(namespaces, old.GetNamespace())
	}
}

// set records the object obj in the tallies of its namespace. If obj is nil, it records the
// deletion of the object that the cache showed last (the argument seen). It returns the names of
// the quotas whose status may have to be written.
func (v *view) set(resource schema.GroupResource, seen, obj apiObject) (quotas []string) {
	for name, f := range v.quotas[seen.GetNamespace()] {
		at := slices.IndexFunc(f.evaluators, func(e quotav1.Evaluator) bool { return e.GroupResource() == resource })
		if at < 0 {
			continue
		}
		var usage v1.ResourceList
		if obj != nil {
			var err error
			if usage, err = f.usage(f.evaluators[at], obj); err != nil {
				continue // ignore the error here, because the next full count returns it
			}
		}
		if f.set(seen, revisionOf(seen), usage) {
			quotas = append(quotas, name)
		}
	}
	return quotas
}

// usage returns how much an object uses of the quota's resources. It is empty if the quota does not
// apply to the object.
func (f *follower) usage(e quotav1.Evaluator, obj apiObject) (v1.ResourceList, error) {
	matches, err := e.Matches(f.quota, obj)
	if err != nil || !matches {
		return nil, err
	}
	usage, err := e.Usage(obj)
	if err != nil {
		return nil, err
	}
	return quotav1.RemoveZeros(quotav1.Mask(usage, e.MatchingResources(quotav1.ResourceNames(f.quota.Spec.Hard)))), nil
}

// recount computes the usage of all objects again, and removes objects that do not exist any more
// from the tally.
func (f *follower) recount(objects map[schema.GroupResource]map[string]map[types.UID]apiObject) error {
	var errs []error
	seen := map[types.UID]bool{}
	for _, e := range f.evaluators {
		for uid, obj := range objects[e.GroupResource()][f.quota.Namespace] {
			usage, err := f.usage(e, obj)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			seen[uid] = true
			f.set(obj, math.MaxInt64, usage)
		}
	}
	for uid := range f.counted {
		if !seen[uid] { // the quota does not limit this resource any more, or its watch was restarted
			f.set(&metav1.ObjectMeta{UID: uid}, 0, nil)
		}
	}
	return errors.Join(errs...)
}

// follows reports whether the view has a tally (a running count of the used resources) for a quota.
func (v *view) follows(q *v1.ResourceQuota) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	f := v.quotas[q.Namespace][q.Name]
	return f != nil && f.uid == q.UID
}

// follow starts the tally (the running count of the used resources) of a quota. q must be the
// newest version of the quota.
func (v *view) follow(q *v1.ResourceQuota) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.quotas[q.Namespace] == nil {
		v.quotas[q.Namespace] = map[string]*follower{}
	}
	v.quotas[q.Namespace][q.Name] = &follower{tally: newTally(q)}
}

// forget drops the tally (the running count of the used resources) of a quota.
func (v *view) forget(namespace, name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.quotas[namespace], name)
	if len(v.quotas[namespace]) == 0 {
		delete(v.quotas, namespace)
	}
}

// count updates the tally of a quota for the limits in its spec. It does a full count if the limits
// have changed or the last full count is older than recountAfter.
func (v *view) count(q *v1.ResourceQuota, evaluators []quotav1.Evaluator, now time.Time) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	f := v.quotas[q.Namespace][q.Name]
	same := func(a, b quotav1.Evaluator) bool { return a.GroupResource() == b.GroupResource() }
	changed := f.quota == nil || !sameLimits(&f.quota.Spec, &q.Spec) || !slices.EqualFunc(f.evaluators, evaluators, same)
	if !changed && now.Sub(f.countedAt) < recountAfter {
		return nil
	}
	if changed {
		f.quota, f.evaluators = q.DeepCopy(), evaluators
		f.quota.Status.Hard = f.quota.Spec.Hard
		var names []v1.ResourceName
		for _, e := range evaluators {
			names = append(names, e.MatchingResources(quotav1.ResourceNames(q.Spec.Hard))...)
		}
		f.limit(names)
	}
	if err := f.recount(v.objects); err != nil {
		f.countedAt = time.Time{}
		return err
	}
	f.countedAt = now
	return nil
}

// next calls the method next of the quota's tally.
func (v *view) next(q *v1.ResourceQuota, now time.Time) plan {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.quotas[q.Namespace][q.Name].next(q, now)
}

// wrote calls the method wrote of the quota's tally.
func (v *view) wrote(q *v1.ResourceQuota, p plan, revision int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.quotas[q.Namespace][q.Name].wrote(p, revision)
}

// observe records the status of a quota in its tally, if it has one. It reports whether status.used
// is greater (excess) or less (short) than the usage that the tally has counted.
func (v *view) observe(q *v1.ResourceQuota) (excess, short bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f := v.quotas[q.Namespace][q.Name]; f != nil && f.uid == q.UID {
		f.observe(q)
		used := quotav1.Mask(q.Status.Used, quotav1.ResourceNames(f.sum))
		within, _ := quotav1.LessThanOrEqual(used, f.sum)
		enough, _ := quotav1.LessThanOrEqual(f.sum, used)
		return !within, !enough
	}
	return false, false
}

// audited reports whether an audit of the quota is in progress. An audit finds usage that was
// charged for objects that were never stored (see the type tally).
func (v *view) audited(q *v1.ResourceQuota) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.quotas[q.Namespace][q.Name].audit.since.IsZero()
}

// clear removes all objects of a resource from the counts, because its watch has ended.
func (v *view) clear(resource schema.GroupResource) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.objects, resource)
}

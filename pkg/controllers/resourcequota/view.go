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

// recountAfter is the maximum age of a count that is updated only by events. It is needed because
// there is no event when a pod's grace period ends, from which time on the pod is not counted.
const recountAfter = 10 * time.Second

// apiObject is an API object.
type apiObject interface {
	runtime.Object
	metav1.Object
}

// view holds the objects that quotas can count, as of the handled events, and the tallies of
// quotas. It does not use the informers' caches, which may be ahead of the events, because a tally
// must see each deletion exactly once. It is safe for concurrent use.
type view struct {
	mu      sync.Mutex
	objects map[schema.GroupResource]map[string]map[types.UID]apiObject // keys: resource, namespace, UID
	quotas  map[string]map[string]*follower                             // keys: namespace, name
}

// follower keeps the tally of one quota.
type follower struct {
	*tally
	// quota has the limits and scopes that are counted. Its status.hard is set to its spec.hard.
	quota      *v1.ResourceQuota
	evaluators []quotav1.Evaluator
	countedAt  time.Time
}

func newView() *view {
	return &view{objects: map[schema.GroupResource]map[string]map[types.UID]apiObject{},
		quotas: map[string]map[string]*follower{}}
}

// changed records an event and returns the names of the quotas whose status may need a write.
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

// set records an object, or its deletion if obj is nil, in the tallies of its namespace. set
// returns the names of the quotas whose status may need a write.
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
				continue // the next count reports the error
			}
		}
		if f.set(seen, revisionOf(seen), usage) {
			quotas = append(quotas, name)
		}
	}
	return quotas
}

// usage returns the usage of an object in the quota.
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

// recount evaluates all objects again, and drops objects that are not in the view.
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
		if !seen[uid] { // the quota no longer limits the resource, or the watch was restarted
			f.set(&metav1.ObjectMeta{UID: uid}, 0, nil)
		}
	}
	return errors.Join(errs...)
}

// follows reports whether a quota has a tally.
func (v *view) follows(q *v1.ResourceQuota) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	f := v.quotas[q.Namespace][q.Name]
	return f != nil && f.uid == q.UID
}

// follow begins the tally of a quota, which must be its newest version.
func (v *view) follow(q *v1.ResourceQuota) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.quotas[q.Namespace] == nil {
		v.quotas[q.Namespace] = map[string]*follower{}
	}
	v.quotas[q.Namespace][q.Name] = &follower{tally: newTally(q)}
}

// forget ends the tally of a quota.
func (v *view) forget(namespace, name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.quotas[namespace], name)
	if len(v.quotas[namespace]) == 0 {
		delete(v.quotas, namespace)
	}
}

// count updates the tally of a quota for the given evaluators and the quota's spec.
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

// next calls the method next of a quota's tally.
func (v *view) next(q *v1.ResourceQuota, now time.Time) plan {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.quotas[q.Namespace][q.Name].next(q, now)
}

// wrote calls the method wrote of a quota's tally.
func (v *view) wrote(q *v1.ResourceQuota, p plan, revision int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.quotas[q.Namespace][q.Name].wrote(p, revision)
}

// observe calls the method observe of a quota's tally, if it has one. It reports whether the
// quota's status.used is more than the usage that the tally has seen.
func (v *view) observe(q *v1.ResourceQuota) (excess bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f := v.quotas[q.Namespace][q.Name]; f != nil && f.uid == q.UID {
		f.observe(q)
		within, _ := quotav1.LessThanOrEqual(quotav1.Mask(q.Status.Used, quotav1.ResourceNames(f.sum)), f.sum)
		return !within
	}
	return false
}

// audited reports whether the tally of a quota is auditing an excess.
func (v *view) audited(q *v1.ResourceQuota) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.quotas[q.Namespace][q.Name].audit.since.IsZero()
}

// clear removes the objects of a resource whose watch ends.
func (v *view) clear(resource schema.GroupResource) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.objects, resource)
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/controllers/history"
)

// hashLabel is the label of a ControllerRevision with the hash of its data.
const hashLabel = "controller.kubernetes.io/hash"

// revision is the name of a ControllerRevision, with the pod template in it.
type revision struct {
	name     string
	template *v1.PodTemplateSpec
}

// revisions are the current revision of a StatefulSet, and the update revision, which is that of
// the present template. Both are nil if the set is being deleted and has no revision of the present
// template.
type revisions struct {
	current, update *appsv1.ControllerRevision
	collisions      int32
}

// syncRevisions returns the current revision and the update revision of a StatefulSet. If the
// present template has no revision, it creates one. If it has an older revision, it gives that the
// highest number.
func (c *Controller) syncRevisions(ctx context.Context, set *appsv1.StatefulSet,
	sorted []*appsv1.ControllerRevision) (revisions, error) {
	var out revisions
	if n := set.Status.CollisionCount; n != nil {
		out.collisions = *n
	}
	wanted, err := history.New(set, kind, hashLabel, &set.Spec.Template, history.Next(sorted), out.collisions)
	if err != nil {
		return out, err
	}
	out.update = findSame(sorted, wanted)
	switch {
	case out.update == nil && set.DeletionTimestamp != nil:
		return revisions{}, nil
	case out.update == nil:
		out.update, out.collisions, err = c.createRevision(ctx, set, wanted, out.collisions)
	case out.update != sorted[len(sorted)-1]: // the set was rolled back to an earlier template
		out.update, err = c.history.Renumber(ctx, out.update, wanted.Revision)
	}
	if err != nil {
		return out, err
	}
	out.current = out.update
	if i := slices.IndexFunc(sorted, func(r *appsv1.ControllerRevision) bool {
		return r.Name == set.Status.CurrentRevision
	}); i >= 0 {
		out.current = sorted[i]
	}
	return out, nil
}

// findSame returns the revision with the same data as the wanted one, or nil. If none of the sorted
// revisions has the same data, it applies the present defaults to the template in the newest
// revision and compares again, because the defaults may have been different when this revision was
// created.
func findSame(sorted []*appsv1.ControllerRevision, wanted *appsv1.ControllerRevision) *appsv1.ControllerRevision {
	if r := history.Find(sorted, wanted); r != nil || len(sorted) == 0 {
		return r
	}
	newest := sorted[len(sorted)-1]
	template, err := history.Template(newest)
	if err != nil {
		return nil // a revision that cannot be decoded has other data
	}
	podspec.DefaultSpec(&template.Spec)
	data, err := history.Data(template)
	if err != nil || string(data) != string(wanted.Data.Raw) {
		return nil
	}
	return newest
}

// createRevision creates a revision. If another revision has its name, it tries other names and
// increments collisions, which it returns.
func (c *Controller) createRevision(ctx context.Context, set *appsv1.StatefulSet, r *appsv1.ControllerRevision,
	collisions int32) (*appsv1.ControllerRevision, int32, error) {
	for {
		got, collided, err := c.history.Create(ctx, r)
		if err != nil || !collided {
			return got, collisions, err
		}
		collisions++
		r.Name = history.Name(set.Name, history.Hash(r.Data.Raw, collisions))
	}
}

// truncateHistory deletes the oldest revisions that no pod has, as many as exceed the StatefulSet's
// revisionHistoryLimit.
func (c *Controller) truncateHistory(ctx context.Context, set *appsv1.StatefulSet, pods []*v1.Pod,
	sorted []*appsv1.ControllerRevision, r revisions) error {
	used := map[string]bool{r.current.Name: true, r.update.Name: true}
	for _, pod := range pods {
		used[revisionOf(pod)] = true
	}
	idle := slices.DeleteFunc(slices.Clone(sorted), func(r *appsv1.ControllerRevision) bool { return used[r.Name] })
	if limit := int(*set.Spec.RevisionHistoryLimit); limit >= 0 && len(idle) > limit {
		return c.history.Delete(ctx, idle[:len(idle)-limit])
	}
	return nil
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/history"
)

const hashLabel = appsv1.DefaultDaemonSetUniqueLabelKey

// revise returns the hash of the DaemonSet's present template, and the revisions of its other
// templates with the oldest first. If the present template has no revision, revise creates one. It
// makes sure that the revision of the present template has the highest number.
func (c *Controller) revise(ctx context.Context, set *appsv1.DaemonSet, sorted []*appsv1.ControllerRevision,
	pods []*v1.Pod) (hash string, old []*appsv1.ControllerRevision, err error) {
	wanted, err := history.New(set, kind, hashLabel, &set.Spec.Template, 0, 0)
	if err != nil {
		return "", nil, err
	}
	var present []*appsv1.ControllerRevision
	for _, r := range sorted {
		if r, err = c.label(ctx, r); err != nil {
			return "", nil, err
		}
		if history.Equal(r, wanted) {
			present = append(present, r)
		} else {
			old = append(old, r)
		}
	}
	wanted.Revision = history.Next(old)
	if len(present) == 0 {
		history.Rename(wanted, set.Name, hashLabel, controller.TemplateHash(&set.Spec.Template, set.Status.CollisionCount))
		return wanted.Labels[hashLabel], old, c.record(ctx, set, wanted)
	}
	keep := present[len(present)-1]
	if err := c.merge(ctx, present, pods); err != nil {
		return "", nil, err
	}
	if keep.Revision < wanted.Revision {
		if _, err := c.history.Renumber(ctx, keep, wanted.Revision); err != nil {
			return "", nil, err
		}
	}
	return keep.Labels[hashLabel], old, nil
}

// label sets the label with the hash of a ControllerRevision that lacks it.
func (c *Controller) label(ctx context.Context, r *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	if _, ok := r.Labels[hashLabel]; ok {
		return r, nil
	}
	r = r.DeepCopy()
	metav1.SetMetaDataLabel(&r.ObjectMeta, hashLabel, r.Name)
	got, err := c.Client.AppsV1().ControllerRevisions(r.Namespace).Update(ctx, r, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("label of revision: %w", err)
	}
	return got, nil
}

// record creates a revision. If another revision has its name, record increments the DaemonSet's
// collision count and returns an error; the next sync then uses another name.
func (c *Controller) record(ctx context.Context, set *appsv1.DaemonSet, r *appsv1.ControllerRevision) error {
	_, collided, err := c.history.Create(ctx, r)
	if err != nil || !collided {
		return err
	}
	next := set.DeepCopy()
	next.Status.CollisionCount = new(*cmp.Or(set.Status.CollisionCount, new(int32)) + 1)
	if _, err := c.Client.AppsV1().DaemonSets(set.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("collision count: %w", err)
	}
	return fmt.Errorf("revision %s: %w", r.Name, errNameTaken)
}

// merge handles several revisions of the same template: it keeps the last one and deletes the
// others. It labels pods of the deleted revisions with the hash of the remaining one, so that they
// do not count as outdated, and replaces them in the slice pods by their new versions.
func (c *Controller) merge(ctx context.Context, present []*appsv1.ControllerRevision, pods []*v1.Pod) error {
	if len(present) == 1 {
		return nil
	}
	keep, others := present[len(present)-1].Labels[hashLabel], map[string]bool{}
	for _, r := range present[:len(present)-1] {
		others[r.Labels[hashLabel]] = r.Labels[hashLabel] != keep
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{hashLabel: keep}}})
	if err != nil {
		return fmt.Errorf("label: %w", err)
	}
	for i, pod := range pods {
		if !others[pod.Labels[hashLabel]] {
			continue
		}
		if pods[i], err = c.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType,
			patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("label of pod: %w", err)
		}
	}
	return c.history.Delete(ctx, present[:len(present)-1])
}

// truncate deletes the oldest revisions without pods, as many as exceed the DaemonSet's
// revisionHistoryLimit.
func (c *Controller) truncate(ctx context.Context, set *appsv1.DaemonSet, old []*appsv1.ControllerRevision,
	pods []*v1.Pod) error {
	used := map[string]bool{}
	for _, pod := range pods {
		used[pod.Labels[hashLabel]] = true
	}
	idle := slices.DeleteFunc(slices.Clone(old), func(r *appsv1.ControllerRevision) bool {
		return used[r.Labels[hashLabel]]
	})
	excess := len(old) - int(*set.Spec.RevisionHistoryLimit)
	return c.history.Delete(ctx, idle[:min(max(excess, 0), len(idle))])
}

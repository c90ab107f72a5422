// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Annotations of ReplicaSets, with the names that Kubernetes uses.
const (
	annotationRevision = "deployment.kubernetes.io/revision"
	annotationHistory  = "deployment.kubernetes.io/revision-history"
	annotationDesired  = "deployment.kubernetes.io/desired-replicas"
	annotationMax      = "deployment.kubernetes.io/max-replicas"
)

// revisionOf returns the revision number in an object's annotations, or 0 if it has none.
func revisionOf(o metav1.Object) int64 {
	n, err := strconv.ParseInt(o.GetAnnotations()[annotationRevision], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// inherited reports whether an annotation of a Deployment with this name is copied to its
// ReplicaSets.
func inherited(name string) bool {
	switch name {
	case v1.LastAppliedConfigAnnotation, annotationRevision, annotationHistory, annotationDesired,
		annotationMax, appsv1.DeprecatedRollbackTo:
		return false
	}
	return true
}

// findOrCreate updates the revision number of the ReplicaSet of the present template. If there is
// no such ReplicaSet and create is true, it creates one.
func (w *work) findOrCreate(ctx context.Context, create bool) error {
	highest := int64(0)
	for _, s := range w.old {
		highest = max(highest, revisionOf(s))
	}
	revision := strconv.FormatInt(highest+1, 10)
	if w.newest != nil {
		return w.updateNewest(ctx, revision)
	}
	if !create {
		return nil
	}
	return w.create(ctx, revision)
}

// updateNewest updates the annotations and minReadySeconds of the ReplicaSet of the present
// template, and the revision number of the Deployment.
func (w *work) updateNewest(ctx context.Context, revision string) error {
	set := w.newest.DeepCopy()
	changed := w.annotate(set, revision)
	if set.Spec.MinReadySeconds != w.d.Spec.MinReadySeconds {
		set.Spec.MinReadySeconds, changed = w.d.Spec.MinReadySeconds, true
	}
	if changed {
		got, err := w.Client.AppsV1().ReplicaSets(set.Namespace).Update(ctx, set, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("update replica set: %w", err)
		}
		w.replace(got)
	}
	w.setFound()
	w.setRevision(w.newest.Annotations[annotationRevision])
	return nil
}

// annotate sets the annotations of the ReplicaSet of the present template and reports whether any
// changed.
func (w *work) annotate(set *appsv1.ReplicaSet, revision string) bool {
	before := maps.Clone(set.Annotations)
	if set.Annotations == nil {
		set.Annotations = map[string]string{}
	}
	for k, v := range w.d.Annotations {
		if inherited(k) {
			set.Annotations[k] = v
		}
	}
	next, _ := strconv.ParseInt(revision, 10, 64) // cannot fail, because FormatInt made this string
	if old := set.Annotations[annotationRevision]; revisionOf(set) < next {
		set.Annotations[annotationRevision] = revision
		if old != "" {
			// The ReplicaSet had another revision number before, so this is a rollback to its
			// template.
			history := set.Annotations[annotationHistory]
			set.Annotations[annotationHistory] = strings.TrimPrefix(history+","+old, ",")
		}
	}
	return !maps.Equal(before, set.Annotations)
}

// sizeAnnotations records the Deployment's size in the annotations of a ReplicaSet that is scaled.
// It reports whether they changed.
func (w *work) sizeAnnotations(set *appsv1.ReplicaSet) bool {
	surge, _, err := limits(w.d)
	if err != nil {
		return false // cannot happen: the API server rejects invalid limits
	}
	desired, most := strconv.Itoa(int(*w.d.Spec.Replicas)), strconv.Itoa(int(*w.d.Spec.Replicas+surge))
	changed := set.Annotations[annotationDesired] != desired || set.Annotations[annotationMax] != most
	if set.Annotations == nil {
		set.Annotations = map[string]string{}
	}
	set.Annotations[annotationDesired], set.Annotations[annotationMax] = desired, most
	return changed
}

// setRevision sets the annotation with the Deployment's revision number. It is written together
// with the status, because a separate write of annotations would increase the Deployment's
// generation.
func (w *work) setRevision(revision string) {
	metav1.SetMetaDataAnnotation(&w.d.ObjectMeta, annotationRevision, revision)
}

// setName returns the name of the ReplicaSet of the present template, or the name that it will get
// if it does not exist yet.
func (w *work) setName() string {
	if w.newest != nil {
		return w.newest.Name
	}
	return controller.JoinName(w.d.Name, controller.TemplateHash(&w.d.Spec.Template, w.d.Status.CollisionCount))
}

func (w *work) create(ctx context.Context, revision string) error {
	hash := controller.TemplateHash(&w.d.Spec.Template, w.d.Status.CollisionCount)
	template := w.d.Spec.Template.DeepCopy()
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	selector := w.d.Spec.Selector.DeepCopy()
	if selector.MatchLabels == nil {
		selector.MatchLabels = map[string]string{}
	}
	selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	size, err := newestSize(w.d, w.old, nil)
	if err != nil {
		return err
	}
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.d.Namespace, Name: w.setName(), Labels: template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.d, kind)},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &size, MinReadySeconds: w.d.Spec.MinReadySeconds,
			Selector: selector, Template: *template},
	}
	w.annotate(set, revision)
	w.sizeAnnotations(set)
	var got *appsv1.ReplicaSet
	made, err := w.expected.Create(controller.Key(w.d), 1, func(int) (types.UID, error) {
		var err error
		if got, err = w.Client.AppsV1().ReplicaSets(set.Namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
			return "", err
		}
		return got.UID, nil
	})
	switch {
	case apierrors.IsAlreadyExists(err):
		return w.collide(ctx, set.Name, err)
	case err == nil && made == 0:
		return nil // the namespace is terminating
	case err != nil:
		message := fmt.Sprintf("Failed to create new replica set %q: %v", set.Name, err)
		w.setCondition(condition(appsv1.DeploymentProgressing, v1.ConditionFalse, reasonCreateError, message))
		w.Events.Event(w.d, v1.EventTypeWarning, reasonCreateError, message)
		return joinStatus(ctx, w, fmt.Errorf("create replica set: %w", err))
	}
	if size > 0 {
		w.Events.Eventf(w.d, v1.EventTypeNormal, "ScalingReplicaSet", "Scaled up replica set %s from 0 to %d", got.Name, size)
	}
	w.newest = got
	w.sets = append(w.sets, got)
	w.setCondition(condition(appsv1.DeploymentProgressing, v1.ConditionTrue, reasonNewSet,
		fmt.Sprintf("Created new replica set %q", got.Name)))
	w.setRevision(revision)
	return nil
}

// collide handles the case that a ReplicaSet with the wanted name exists. If it belongs to the
// Deployment and has the present template, the cache only lags, and the sync uses it. Otherwise
// collide increments the collision count, so that the next sync uses another name.
func (w *work) collide(ctx context.Context, name string, cause error) error {
	there, err := w.Client.AppsV1().ReplicaSets(w.d.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("replica set of the same name: %w", err)
	}
	ref := metav1.GetControllerOf(there)
	if ref != nil && ref.UID == w.d.UID && sameTemplate(w.d, there) {
		w.newest = there
		w.sets = append(w.sets, there)
		return nil
	}
	next := w.d.DeepCopy()
	count := int32(1)
	if next.Status.CollisionCount != nil {
		count = *next.Status.CollisionCount + 1
	}
	next.Status.CollisionCount = &count
	if _, err := w.Client.AppsV1().Deployments(next.Namespace).UpdateStatus(ctx, next,
		metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("collision count: %w", err)
	}
	return fmt.Errorf("create replica set: %w", cause)
}

// resize sets the size of a ReplicaSet (its number of replicas), and the annotations with the
// Deployment's size.
func (w *work) resize(ctx context.Context, set *appsv1.ReplicaSet, size int32) error {
	next := set.DeepCopy()
	noted := w.sizeAnnotations(next)
	before := *next.Spec.Replicas
	if before == size && !noted {
		return nil
	}
	next.Spec.Replicas = &size
	got, err := w.Client.AppsV1().ReplicaSets(next.Namespace).Update(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("scale replica set: %w", err)
	}
	w.replace(got)
	if before != size {
		direction := "up"
		if size < before {
			direction = "down"
		}
		w.Events.Eventf(w.d, v1.EventTypeNormal, "ScalingReplicaSet", "Scaled %s replica set %s from %d to %d",
			direction, got.Name, before, size)
	}
	return nil
}

// replace replaces a ReplicaSet in w by its new version set.
func (w *work) replace(set *appsv1.ReplicaSet) {
	for _, list := range [][]*appsv1.ReplicaSet{w.sets, w.old} {
		for i := range list {
			if list[i].UID == set.UID {
				list[i] = set
			}
		}
	}
	if w.newest != nil && w.newest.UID == set.UID {
		w.newest = set
	}
}

// wasScaled reports whether the Deployment's size changed since its ReplicaSets were last scaled.
func (w *work) wasScaled() bool {
	for _, s := range w.sets {
		if *s.Spec.Replicas == 0 {
			continue
		}
		desired, err := strconv.ParseInt(s.Annotations[annotationDesired], 10, 32)
		if err == nil && int32(desired) != *w.d.Spec.Replicas {
			return true
		}
	}
	return false
}

// proportional scales the ReplicaSets to the Deployment's size. During a rolling update, when
// several ReplicaSets have pods, it scales them in proportion to their sizes.
func (w *work) proportional(ctx context.Context) error {
	var withPods []*appsv1.ReplicaSet
	for _, s := range w.sets {
		if *s.Spec.Replicas > 0 {
			withPods = append(withPods, s)
		}
	}
	if len(withPods) == 0 && w.newest != nil {
		withPods = []*appsv1.ReplicaSet{w.newest}
	}
	if len(withPods) == 1 {
		return w.resize(ctx, withPods[0], *w.d.Spec.Replicas)
	}
	if saturated(w.d, w.newest) {
		for _, s := range w.old {
			if *s.Spec.Replicas > 0 {
				if err := w.resize(ctx, s, 0); err != nil {
					return err
				}
			}
		}
		return w.resize(ctx, w.newest, *w.d.Spec.Replicas)
	}
	if w.d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return nil
	}
	steps, err := proportions(w.d, withPods)
	if err != nil {
		return err
	}
	for _, s := range steps {
		if err := w.resize(ctx, s.set, s.size); err != nil {
			return err
		}
	}
	return nil
}

// saturated reports whether the ReplicaSet has the Deployment's size and all its pods are
// available.
func saturated(d *appsv1.Deployment, set *appsv1.ReplicaSet) bool {
	if set == nil {
		return false
	}
	desired, err := strconv.ParseInt(set.Annotations[annotationDesired], 10, 32)
	return err == nil && *set.Spec.Replicas == *d.Spec.Replicas && int32(desired) == *d.Spec.Replicas &&
		set.Status.AvailableReplicas == *d.Spec.Replicas
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"slices"
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	informers "k8s.io/client-go/informers/flowcontrol/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// flowControlManager is the field manager by which the server writes the default objects.
const flowControlManager = "api-priority-and-fairness-config-producer-v1"

// FlowControl maintains the default flow schemas and priority levels. Mandatory objects are always
// reset to their defaults. Suggested objects are reset if their annotation
// apf.kubernetes.io/autoupdate-spec is "true". Objects without the annotation get it: "false" for a
// suggested object that a user has edited, otherwise "true". Objects that are marked "true" and are
// no longer among the defaults are deleted. Objects are read from informers if these are synced.
func FlowControl(ctx context.Context, client kubernetes.Interface, known informers.Interface) error {
	api := client.FlowcontrolV1()
	knownSchemas, knownLevels := known.FlowSchemas(), known.PriorityLevelConfigurations()
	schemas := &defaults[*flowcontrolv1.FlowSchema]{
		kind: "flow schema", api: api.FlowSchemas(), known: knownSchemas.Lister().Get,
		same: func(a, b *flowcontrolv1.FlowSchema) bool { return equality.Semantic.DeepEqual(a.Spec, b.Spec) },
		take: func(into, from *flowcontrolv1.FlowSchema) { from.Spec.DeepCopyInto(&into.Spec) },
	}
	levels := &defaults[*flowcontrolv1.PriorityLevelConfiguration]{
		kind: "priority level", api: api.PriorityLevelConfigurations(), known: knownLevels.Lister().Get,
		same: sameLevel,
		take: func(into, from *flowcontrolv1.PriorityLevelConfiguration) { from.Spec.DeepCopyInto(&into.Spec) },
	}
	tasks := slices.Concat(
		levels.ensure(ctx, bootstrap.SuggestedPriorityLevelConfigurations, false),
		schemas.ensure(ctx, bootstrap.SuggestedFlowSchemas, false),
		levels.ensure(ctx, bootstrap.MandatoryPriorityLevelConfigurations, true),
		schemas.ensure(ctx, bootstrap.MandatoryFlowSchemas, true),
	)
	if err := parallel(ctx, 8, tasks); err != nil {
		return err
	}
	allSchemas, err := all(knownSchemas.Informer(), knownSchemas.Lister().List,
		func() ([]*flowcontrolv1.FlowSchema, error) {
			list, err := api.FlowSchemas().List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			return pointers(list.Items), nil
		})
	if err != nil {
		return named("flow schemas", "", err)
	}
	allLevels, err := all(knownLevels.Informer(), knownLevels.Lister().List,
		func() ([]*flowcontrolv1.PriorityLevelConfiguration, error) {
			list, err := api.PriorityLevelConfigurations().List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			return pointers(list.Items), nil
		})
	if err != nil {
		return named("priority levels", "", err)
	}
	return parallel(ctx, 8, slices.Concat(
		schemas.drop(ctx, allSchemas, slices.Concat(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas)),
		levels.drop(ctx, allLevels, slices.Concat(bootstrap.MandatoryPriorityLevelConfigurations,
			bootstrap.SuggestedPriorityLevelConfigurations)),
	))
}

// all returns the objects from the informer. Until the informer is synced, it requests them from
// the server by ask.
func all[T any](informer cache.SharedInformer, known func(labels.Selector) ([]T, error),
	ask func() ([]T, error)) ([]T, error) {
	if informer.HasSynced() {
		return known(labels.Everything())
	}
	return ask()
}

// sameLevel reports whether two priority levels have the same spec. It ignores the concurrency
// shares of the level "exempt", because administrators may change these.
func sameLevel(want, have *flowcontrolv1.PriorityLevelConfiguration) bool {
	a, b := want.Spec, have.Spec
	if want.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
		a.Exempt = b.Exempt
	}
	return equality.Semantic.DeepEqual(a, b)
}

// defaults maintains the default objects of a kind of flow control object.
type defaults[T flowControlObject[T]] struct {
	kind string
	api  flowControlClient[T]
	// known returns an object from the cache of the informer.
	known func(name string) (T, error)
	// same reports whether two objects have the same spec. take copies the spec.
	same func(want, have T) bool
	take func(into, from T)
}

// flowControlObject are the methods of FlowSchema and PriorityLevelConfiguration that defaults
// needs.
type flowControlObject[T any] interface {
	metav1.Object
	DeepCopy() T
}

// flowControlClient are the methods of a typed client that defaults needs.
type flowControlClient[T any] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Create(ctx context.Context, obj T, options metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, options metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// ensure returns tasks that create or update the objects in want. Mandatory objects are reset to
// their defaults even if a user has changed them.
func (d *defaults[T]) ensure(ctx context.Context, want []T, mandatory bool) []func() error {
	var tasks []func() error
	for _, w := range want {
		tasks = append(tasks, func() error {
			if known, err := d.known(w.GetName()); err == nil && !d.revise(known.DeepCopy(), w, mandatory) {
				return nil
			}
			have, err := d.api.Get(ctx, w.GetName(), metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				// Encoding sets the kind in the object. w is a global variable of a library, so encode a
				// copy of it.
				_, err = d.api.Create(ctx, w.DeepCopy(), metav1.CreateOptions{FieldManager: flowControlManager})
				return named(d.kind, w.GetName(), ignoreExists(err))
			}
			if err != nil || !d.revise(have, w, mandatory) {
				return named(d.kind, w.GetName(), err)
			}
			_, err = d.api.Update(ctx, have, metav1.UpdateOptions{FieldManager: flowControlManager})
			return named(d.kind, w.GetName(), err)
		})
	}
	return tasks
}

// revise changes the present object, the argument have, so that it matches want, unless it is a
// suggested object that belongs to the user (see FlowControl). It also sets the annotation that
// marks who owns the object. It reports whether it changed the object.
func (d *defaults[T]) revise(have, want T, mandatory bool) bool {
	ours, err := strconv.ParseBool(have.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey])
	known := err == nil
	keep := mandatory || known && ours || !known && have.GetGeneration() == 1
	changed := false
	if keep && !d.same(want, have) {
		d.take(have, want)
		changed = true
	}
	if !known || ours != keep {
		annotations := map[string]string{}
		for k, v := range have.GetAnnotations() {
			annotations[k] = v
		}
		annotations[flowcontrolv1.AutoUpdateAnnotationKey] = strconv.FormatBool(keep)
		have.SetAnnotations(annotations)
		changed = true
	}
	return changed
}

// drop returns tasks that delete those of the present objects that are marked as defaults and are
// not among the wanted ones.
func (d *defaults[T]) drop(ctx context.Context, have, want []T) []func() error {
	var tasks []func() error
	for _, h := range have {
		if slices.ContainsFunc(want, func(w T) bool { return w.GetName() == h.GetName() }) {
			continue
		}
		if ours, err := strconv.ParseBool(h.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey]); err != nil || !ours {
			continue
		}
		tasks = append(tasks, func() error {
			err := d.api.Delete(ctx, h.GetName(),
				metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(h.GetUID()))})
			if apierrors.IsNotFound(err) {
				err = nil
			}
			return named(d.kind, h.GetName(), err)
		})
	}
	return tasks
}

func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

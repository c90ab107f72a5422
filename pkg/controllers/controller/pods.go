// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

// Pods makes and deletes pods for their owners, and records events of that.
//
// It names the pods itself. If the answer to a creation is lost, the pod may exist all the
// same, and the cache may not show it for a while. The next creation for the owner then
// has the same name: it fails if the pod exists, and the pod counts as made.
type Pods struct {
	Client kubernetes.Interface
	Events record.EventRecorder
	// Cache shows pods, Expected is what is expected of them.
	Cache    cache.Store
	Expected *Expectations
}

// Met reports whether the cache shows all that was written for owner. It has to be called
// before the cache is read.
func (p *Pods) Met(owner metav1.Object) bool {
	key := owner.GetNamespace() + "/" + owner.GetName()
	p.Expected.dropNames(key, func(name string) bool { return p.cached(owner.GetNamespace(), name) != nil })
	return p.Expected.Met(key, owner.GetUID())
}

// cached returns a pod as the cache shows it, or nil.
func (p *Pods) cached(namespace, name string) *v1.Pod {
	o, found, err := p.Cache.GetByKey(namespace + "/" + name)
	if err != nil || !found {
		return nil // a cache does not fail
	}
	return o.(*v1.Pod)
}

// FromTemplate makes the pod of an owner's template.
func FromTemplate(t *v1.PodTemplateSpec, owner metav1.Object, kind schema.GroupVersionKind) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.GetNamespace(), GenerateName: prefix(owner.GetName()),
			Labels: maps.Clone(t.Labels), Annotations: maps.Clone(t.Annotations), Finalizers: slices.Clone(t.Finalizers),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
		},
		Spec: *t.Spec.DeepCopy(),
	}
}

// maxName is the longest name that an object can have.
const maxName = 253

// prefix is what the names of an owner's pods start with. The API server cuts it.
func prefix(name string) string {
	if len(name) >= maxName {
		return name
	}
	return name + "-"
}

// NameWith returns the name of an object that belongs to an owner: the owner's, a hyphen and a
// suffix that tells it from others. If that is longer than a name can be, the owner's part is
// cut.
func NameWith(owner, suffix string) string {
	return CutName(owner, maxName-len("-")-len(suffix)) + "-" + suffix
}

// CutName returns at most n bytes of a name, such that a hyphen may follow.
func CutName(name string, n int) string {
	if len(name) <= n {
		return name
	}
	return strings.TrimRight(name[:n], ".")
}

// Create creates a pod of the owner and returns its UID, or none if the cache shows the
// pod already. Pods of different slots are not made in place of each other.
func (p *Pods) Create(ctx context.Context, owner runtime.Object, slot string, pod *v1.Pod) (types.UID, error) {
	key := Key(owner)
	slot += "/" + pod.GenerateName
	for pod.Name = p.Expected.takeName(key, slot); pod.Name == ""; {
		if name := generate(pod.GenerateName); p.cached(pod.Namespace, name) == nil {
			pod.Name = name
		}
	}
	got, err := p.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	exists := apierrors.IsAlreadyExists(err)
	if exists {
		got, err = p.made(ctx, pod, err)
	}
	if err != nil {
		if !apierrors.IsAlreadyExists(err) && (exists || doubtful(err)) {
			p.Expected.keepName(key, slot, pod.Name)
		}
		if !apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) && ctx.Err() == nil {
			p.Events.Eventf(owner, v1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
		}
		return "", fmt.Errorf("create pod: %w", err)
	}
	p.Events.Eventf(owner, v1.EventTypeNormal, "SuccessfulCreate", "Created pod: %v", got.Name)
	if shown := p.cached(got.Namespace, got.Name); shown != nil && shown.UID == got.UID {
		return "", nil
	}
	return got.UID, nil
}

// made returns the pod that has the name of one to be created, if it is the owner's: an
// earlier creation took effect. Otherwise it returns err. It lists, because controllers
// may not get pods.
func (p *Pods) made(ctx context.Context, pod *v1.Pod, err error) (*v1.Pod, error) {
	named := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, pod.Name).String()}
	list, failed := p.Client.CoreV1().Pods(pod.Namespace).List(ctx, named)
	if failed != nil {
		return nil, failed
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	for i := range list.Items {
		if ref := metav1.GetControllerOfNoCopy(&list.Items[i]); ref != nil && ref.UID == owner.UID {
			return &list.Items[i], nil
		}
	}
	return nil, err
}

// Delete deletes a pod of the owner; it is no error when the pod is gone.
func (p *Pods) Delete(ctx context.Context, owner runtime.Object, pod *v1.Pod) error {
	err := p.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return err
	case err != nil:
		p.Events.Eventf(owner, v1.EventTypeWarning, "FailedDelete", "Error deleting: %v", err)
		return fmt.Errorf("delete pod: %w", err)
	}
	p.Events.Eventf(owner, v1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %v", pod.Name)
	return nil
}

// DeleteAll deletes pods of the owner and has their deletion expected under key.
// It is no error when a pod is gone, or is another one by now.
func (p *Pods) DeleteAll(ctx context.Context, owner runtime.Object, pods []*v1.Pod, key string) error {
	for _, pod := range pods {
		p.Expected.Deletes(key, pod.UID)
	}
	errs := make([]error, len(pods))
	// No one deletion tells anything of the next, so all are tried.
	_, _ = Batches(len(pods), func(i int) error {
		err := p.Delete(ctx, owner, pods[i])
		if err != nil {
			p.Expected.Deleted(key, pods[i].UID)
		}
		if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs[i] = err
		}
		return nil
	})
	return errors.Join(errs...)
}

// Batches calls f(0), f(1) ... f(n-1) in parallel, first one, then twice as many
// each time; after a batch in which a call failed it stops. It returns how many
// calls succeeded and the first error: what cannot work is tried only once.
func Batches(n int, f func(i int) error) (int, error) {
	done := 0
	for size := min(n, 1); size > 0; size = min(2*size, n-done) {
		errs := make([]error, size)
		var wg sync.WaitGroup
		for i := range size {
			wg.Go(func() { errs[i] = f(done + i) })
		}
		wg.Wait()
		failed := slices.IndexFunc(errs, func(err error) bool { return err != nil })
		if failed >= 0 {
			good := 0
			for _, err := range errs {
				if err == nil {
					good++
				}
			}
			return done + good, errs[failed]
		}
		done += size
	}
	return done, nil
}

// Available tells whether a pod has been ready for long enough, or how long it
// still has to be (0: it is not ready).
func Available(pod *v1.Pod, minReady time.Duration, now time.Time) (bool, time.Duration) {
	if !Ready(pod) {
		return false, 0
	}
	c := Condition(pod, v1.PodReady)
	if left := c.LastTransitionTime.Add(minReady).Sub(now); minReady > 0 && left > 0 {
		return false, left
	}
	return true, 0
}

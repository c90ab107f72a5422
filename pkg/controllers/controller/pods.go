// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Pods creates and deletes pods for their owners and records events about it.
//
// Pods chooses the pods' names itself instead of using metadata.generateName. If the response to a
// create is lost, the pod may exist although the cache does not show it yet. Pods then uses the
// same name for the next create for this owner. If the pod exists, that create fails with
// AlreadyExists and the pod counts as created.
type Pods struct {
	Deps
	// Cache is the store of all pods. Expected records writes that Cache does not show yet.
	Cache    cache.Store
	Expected *Expectations
}

// Met reports whether the cache shows all writes for owner (see Expectations.Met). A controller
// must call it before it reads the owner's pods from the cache.
func (p *Pods) Met(owner metav1.Object) bool {
	key := owner.GetNamespace() + "/" + owner.GetName()
	p.Expected.dropNames(key, func(name string) bool { return p.cached(owner.GetNamespace(), name) != nil })
	return p.Expected.Met(key, owner.GetUID())
}

// cached returns the pod with the given name from the cache, or nil if the cache does not have it.
func (p *Pods) cached(namespace, name string) *v1.Pod {
	o, found, err := p.Cache.GetByKey(namespace + "/" + name)
	if err != nil || !found {
		return nil // the cache is a store in memory, whose GetByKey returns no error
	}
	return o.(*v1.Pod)
}

// NewPodFromTemplate returns the pod that an owner of the given kind creates from its pod template.
func NewPodFromTemplate(t *v1.PodTemplateSpec, owner metav1.Object, kind schema.GroupVersionKind) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.GetNamespace(), GenerateName: generateNamePrefix(owner.GetName()),
			Labels: maps.Clone(t.Labels), Annotations: maps.Clone(t.Annotations), Finalizers: slices.Clone(t.Finalizers),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
		},
		Spec: *t.Spec.DeepCopy(),
	}
}

// Create creates a pod of the owner and chooses its name. It returns the pod's UID, or "" if the
// cache shows the pod already. If an earlier create for the same slot had no response, Create uses
// the name of that create (see Expectations.keepName).
func (p *Pods) Create(ctx context.Context, owner runtime.Object, slot string, pod *v1.Pod) (types.UID, error) {
	key := Key(owner)
	slot += "/" + pod.GenerateName
	for pod.Name = p.Expected.takeName(key, slot); pod.Name == ""; {
		if name := generateName(pod.GenerateName); p.cached(pod.Namespace, name) == nil {
			pod.Name = name
		}
	}
	got, err := p.CreatePod(ctx, pod)
	exists := apierrors.IsAlreadyExists(err)
	if exists {
		got, err = p.findExisting(ctx, pod, err)
	}
	if err != nil {
		if !apierrors.IsAlreadyExists(err) && (exists || mayHaveSucceeded(err)) {
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

// mayHaveSucceeded reports whether a create that returned err may have stored the object: the
// client got no response, or a response with status 408 or 5xx, after which it is unknown whether
// the server stored the object.
func mayHaveSucceeded(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusRequestTimeout
}

// findExisting handles the error err (AlreadyExists) of a create of pod. If the existing pod of
// this name belongs to the same owner, an earlier create succeeded, and findExisting returns the
// existing pod. Otherwise it returns err. It lists instead of using get, because controllers lack
// the permission to get pods.
func (p *Pods) findExisting(ctx context.Context, pod *v1.Pod, err error) (*v1.Pod, error) {
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

// Delete deletes a pod of the owner. The API server's NotFound or Conflict error means that the pod
// was deleted or replaced already; Delete returns this error unwrapped and records no event.
func (p *Pods) Delete(ctx context.Context, owner runtime.Object, pod *v1.Pod) error {
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	err := p.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
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

// DeleteAll deletes pods of the owner and records under key that the cache has yet to show the
// deletions. If a pod was already deleted or replaced, that is not an error.
func (p *Pods) DeleteAll(ctx context.Context, owner runtime.Object, pods []*v1.Pod, key string) error {
	for _, pod := range pods {
		p.Expected.ExpectDeletion(key, pod.UID)
	}
	errs := make([]error, len(pods))
	// Ignore errors here so that RunBatches does not stop after a failed delete: the next delete
	// may still succeed.
	_, _ = RunBatches(len(pods), func(i int) error {
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

// RunBatches calls f(0), f(1)... f(n-1) in batches of 1, 2, 4... parallel calls each. If a call
// fails, RunBatches starts no further batch, so that a create that cannot succeed is tried only
// once. It returns the number of successful calls and the first error.
func RunBatches(n int, f func(i int) error) (int, error) {
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

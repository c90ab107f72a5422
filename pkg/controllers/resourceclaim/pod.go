// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// fieldManager is the field manager with which the controller applies the names of claims to the
// status of pods.
const fieldManager = "ResourceClaimController"

// syncPod creates the claims for the templates that a pod names, and writes the claims' names to
// the pod's status. If the pod is bound to a node, it also reserves the claims.
func (c *Controller) syncPod(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	pod, err := c.pods.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if pod.DeletionTimestamp != nil {
		return nil
	}
	if err := c.makeClaims(ctx, pod); err != nil {
		return err
	}
	if pod.Spec.NodeName == "" {
		return nil // the scheduler reserves the claims when it allocates them
	}
	return c.reserve(ctx, pod)
}

// makeClaims creates the missing claims of a pod, and writes the names of all its claims to its
// status.
func (c *Controller) makeClaims(ctx context.Context, pod *v1.Pod) error {
	names, changed := map[string]string{}, false
	for i := range pod.Spec.ResourceClaims {
		r := &pod.Spec.ResourceClaims[i]
		if r.ResourceClaimTemplateName == nil {
			continue
		}
		name, news, err := c.claimFor(ctx, pod, r)
		if err != nil {
			c.Events.Eventf(pod, v1.EventTypeWarning, "FailedResourceClaimCreation", "PodResourceClaim %s: %v", r.Name, err)
			return fmt.Errorf("claim %s of the pod: %w", r.Name, err)
		}
		if name != "" {
			names[r.Name] = name
		}
		changed = changed || news
	}
	if !changed {
		return nil
	}
	status := corev1.PodStatus()
	for _, r := range slices.Sorted(maps.Keys(names)) {
		status.WithResourceClaimStatuses(corev1.PodResourceClaimStatus().WithName(r).WithResourceClaimName(names[r]))
	}
	apply := corev1.Pod(pod.Name, pod.Namespace).WithUID(pod.UID).WithStatus(status)
	_, err := c.Client.CoreV1().Pods(pod.Namespace).ApplyStatus(ctx, apply,
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("names of claims: %w", err)
	}
	return nil
}

// claimFor returns the name of the claim for the template that r names. It creates the claim if it
// does not exist. The name is "" if the pod needs no claim for r. news reports whether the pod's
// status does not contain the name yet.
func (c *Controller) claimFor(ctx context.Context, pod *v1.Pod, r *v1.PodResourceClaim) (name string, news bool,
	err error) {
	told, _, err := resourceclaim.Name(pod, r)
	switch {
	case errors.Is(err, resourceclaim.ErrClaimNotFound):
	case err != nil:
		return "", false, fmt.Errorf("name: %w", err)
	case told == nil:
		return "", false, nil
	default:
		claim, err := c.claims.ResourceClaims(pod.Namespace).Get(*told)
		if err == nil && resourceclaim.IsForPod(pod, claim, false) == nil {
			c.made.remove(pod.UID, r.Name)
			return *told, false, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return "", false, err
		}
	}
	if claim, err := c.findClaim(ctx, pod, r); err != nil || claim != "" {
		return claim, true, err
	}
	claim, err := c.make(ctx, pod, r)
	return claim, true, err
}

// findClaim looks for an existing claim that was created for r, and returns its name or "". It
// looks in the informer's cache and, if this process may have created a claim that the cache does
// not show yet, on the API server.
func (c *Controller) findClaim(ctx context.Context, pod *v1.Pod, r *v1.PodResourceClaim) (string, error) {
	objects, err := c.owned.ByIndex(byPod, string(pod.UID))
	if err != nil {
		return "", err
	}
	for _, o := range objects {
		if claim := o.(*resourcev1.ResourceClaim); isFor(claim, pod, r) {
			c.made.remove(pod.UID, r.Name)
			return claim.Name, nil
		}
	}
	name, doubt := c.made.lookup(pod.UID, r.Name)
	if name == "" && !doubt {
		return "", nil
	}
	list, err := c.Client.ResourceV1().ResourceClaims(pod.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("claims: %w", err)
	}
	for i := range list.Items {
		if isFor(&list.Items[i], pod, r) {
			c.made.recordName(pod.UID, r.Name, list.Items[i].Name)
			return list.Items[i].Name, nil
		}
	}
	c.made.remove(pod.UID, r.Name)
	return "", nil
}

// isFor reports whether a claim was created for the entry r of a pod's spec.
func isFor(claim *resourcev1.ResourceClaim, pod *v1.Pod, r *v1.PodResourceClaim) bool {
	return metav1.IsControlledBy(claim, pod) && claim.DeletionTimestamp == nil &&
		claim.Annotations[resourcev1.PodResourceClaimAnnotation] == r.Name
}

// make creates the claim for r from its template.
func (c *Controller) make(ctx context.Context, pod *v1.Pod, r *v1.PodResourceClaim) (string, error) {
	template, err := c.templates.ResourceClaimTemplates(pod.Namespace).Get(*r.ResourceClaimTemplateName)
	if err != nil {
		return "", fmt.Errorf("resource claim template %q: %w", *r.ResourceClaimTemplateName, err)
	}
	want := claimOf(pod, r, template)
	c.made.recordStart(pod.UID, r.Name)
	got, err := c.Client.ResourceV1().ResourceClaims(pod.Namespace).Create(ctx, want, metav1.CreateOptions{})
	c.metrics.created(want, err)
	if err != nil {
		return "", fmt.Errorf("create ResourceClaim: %w", err)
	}
	c.made.recordName(pod.UID, r.Name, got.Name)
	return got.Name, nil
}

// maxPrefix is the maximum length of the prefix of generated names. It leaves room for a hyphen and
// the five letters that the API server appends, in a name of 63 characters.
const maxPrefix = 57

func claimOf(pod *v1.Pod, r *v1.PodResourceClaim,
	template *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaim {
	prefix := pod.Name + "-" + r.Name + "-"
	if n := len(prefix); n > maxPrefix {
		// Truncate both names by the same proportion.
		prefix = controller.TruncateName(pod.Name, len(pod.Name)*maxPrefix/n) + "-" + r.Name[:len(r.Name)*maxPrefix/n]
	}
	annotations := maps.Clone(template.Spec.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[resourcev1.PodResourceClaimAnnotation] = r.Name
	yes := true
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: prefix, Labels: maps.Clone(template.Spec.Labels), Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name,
				UID: pod.UID, Controller: &yes}},
		},
		Spec: *template.Spec.Spec.DeepCopy(),
	}
}

// reserve reserves the claims of a pod that was bound to a node without the scheduler.
func (c *Controller) reserve(ctx context.Context, pod *v1.Pod) error {
	for i := range pod.Spec.ResourceClaims {
		name, owned, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil //nolint:nilerr // a claim has no name yet; the event of the pod's status queues the pod
		}
		if name == nil {
			continue
		}
		claim, err := c.claims.ResourceClaims(pod.Namespace).Get(*name)
		if apierrors.IsNotFound(err) {
			continue // when the claim is created and allocated, its event queues the pod
		}
		if err != nil {
			return err
		}
		if owned {
			if err := resourceclaim.IsForPod(pod, claim, false); err != nil {
				return err
			}
		}
		if claim.Status.Allocation == nil || resourceclaim.IsReservedForPod(pod, claim, false) ||
			!resourceclaim.CanBeReserved(claim) {
			continue
		}
		next := claim.DeepCopy()
		next.Status.ReservedFor = append(next.Status.ReservedFor,
			resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
		if _, err := c.Client.ResourceV1().ResourceClaims(pod.Namespace).UpdateStatus(ctx, next,
			metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("reserve claim %s: %w", claim.Name, err)
		}
	}
	return nil
}

// creations records the ResourceClaims that this process has created and that the informer's cache
// does not show yet. It is safe for concurrent use.
type creations struct {
	mu sync.Mutex
	// by contains the names of the claims, or "" for a claim whose create has had no response.
	by map[creation]string
}

type creation struct {
	pod   types.UID
	claim string // the name of the claim's entry in the pod's spec
}

func newCreations() *creations { return &creations{by: map[creation]string{}} }

// recordStart records that a request to create a claim is about to be sent.
func (m *creations) recordStart(pod types.UID, claim string) { m.recordName(pod, claim, "") }

// recordName records that a claim was created with the given name.
func (m *creations) recordName(pod types.UID, claim, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.by[creation{pod, claim}] = name
}

// lookup returns the name of a claim that was created. doubt is true if a claim may have been
// created but there was no response.
func (m *creations) lookup(pod types.UID, claim string) (name string, doubt bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name, there := m.by[creation{pod, claim}]
	return name, there && name == ""
}

// forget removes the recorded claims of a deleted pod.
func (m *creations) forget(pod *v1.Pod) {
	for _, r := range pod.Spec.ResourceClaims {
		m.remove(pod.UID, r.Name)
	}
}

// remove removes the record of a created claim, because the informer's cache shows the claim or it
// does not exist.
func (m *creations) remove(pod types.UID, claim string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.by, creation{pod, claim})
}

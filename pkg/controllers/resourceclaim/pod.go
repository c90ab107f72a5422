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

// fieldManager owns the claim names in the status of pods.
const fieldManager = "ResourceClaimController"

// syncPod creates the claims for a pod's templates, writes their names to its status, and reserves
// the claims if the pod has a node.
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
		return nil // the scheduler reserves claims itself when it allocates them
	}
	return c.reserve(ctx, pod)
}

// makeClaims creates the missing claims and writes the names of all claims to the pod's status.
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

// claimFor returns the name of a pod's claim for a template, or "" if it needs none. news is true
// if the pod's status does not have the name yet.
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

// findClaim looks for an existing claim of a pod that is not in its status: among the claims that
// this process created, in the cache and, if the result of a create is unknown, in the API server.
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

// isFor reports whether a claim was created from one of a pod's templates.
func isFor(claim *resourcev1.ResourceClaim, pod *v1.Pod, r *v1.PodResourceClaim) bool {
	return metav1.IsControlledBy(claim, pod) && claim.DeletionTimestamp == nil &&
		claim.Annotations[resourcev1.PodResourceClaimAnnotation] == r.Name
}

// make creates a claim from its template.
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

// maxPrefix leaves room for a hyphen and five letters in a name of 63 characters.
const maxPrefix = 57

func claimOf(pod *v1.Pod, r *v1.PodResourceClaim,
	template *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaim {
	prefix := pod.Name + "-" + r.Name + "-"
	if n := len(prefix); n > maxPrefix {
		// Truncate both names in proportion to their lengths.
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

// reserve reserves the claims of a pod that was bound without the scheduler.
func (c *Controller) reserve(ctx context.Context, pod *v1.Pod) error {
	for i := range pod.Spec.ResourceClaims {
		name, owned, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil //nolint:nilerr // it has no name yet; the pod's status will wake us
		}
		if name == nil {
			continue
		}
		claim, err := c.claims.ResourceClaims(pod.Namespace).Get(*name)
		if apierrors.IsNotFound(err) {
			continue // when the claim is allocated, its event queues the pod
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

// creations are the created claims that the cache does not show yet. They are safe for concurrent
// use.
type creations struct {
	mu sync.Mutex
	// by has the name of a claim, or "" while there is no response.
	by map[creation]string
}

type creation struct {
	pod   types.UID
	claim string // the name under which the pod's spec refers to the claim
}

func newCreations() *creations { return &creations{by: map[creation]string{}} }

// recordStart records that a claim is about to be created.
func (m *creations) recordStart(pod types.UID, claim string) { m.recordName(pod, claim, "") }

// recordName records that a claim was created.
func (m *creations) recordName(pod types.UID, claim, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.by[creation{pod, claim}] = name
}

// lookup returns the name of a created claim. doubt is true if a claim may have been created but
// its name is unknown.
func (m *creations) lookup(pod types.UID, claim string) (name string, doubt bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name, there := m.by[creation{pod, claim}]
	return name, there && name == ""
}

// forget removes the entries of a deleted pod.
func (m *creations) forget(pod *v1.Pod) {
	for _, r := range pod.Spec.ResourceClaims {
		m.remove(pod.UID, r.Name)
	}
}

// remove removes the entry of a claim that the cache shows.
func (m *creations) remove(pod types.UID, claim string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.by, creation{pod, claim})
}

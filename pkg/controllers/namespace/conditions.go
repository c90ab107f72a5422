// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

// conditions returns the conditions of a terminating namespace, with the reasons and messages that
// Kubernetes uses.
func conditions(left *remains) []v1.NamespaceCondition {
	return []v1.NamespaceCondition{
		newCondition(v1.NamespaceDeletionDiscoveryFailure, left.discovery != nil,
			"DiscoveryFailed", discoveryMessage(left.discovery), "ResourcesDiscovered", "All resources successfully discovered"),
		newCondition(v1.NamespaceDeletionGVParsingFailure, false, "", "", "ParsedGroupVersions",
			"All legacy kube types successfully parsed"),
		newCondition(v1.NamespaceDeletionContentFailure, len(left.failures) > 0,
			"ContentDeletionFailed", failureMessage(left.failures),
			"ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
		newCondition(v1.NamespaceContentRemaining, len(left.counts) > 0,
			"SomeResourcesRemain", "Some resources are remaining: "+counted(left.counts, "%s has %d resource instances"),
			"ContentRemoved", "All content successfully removed"),
		newCondition(v1.NamespaceFinalizersRemaining, len(left.finalizers) > 0,
			"SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: "+
				counted(left.finalizers, "%s in %d resource instances"),
			"ContentHasNoFinalizers", "All content-preserving finalizers finished"),
	}
}

func newCondition(t v1.NamespaceConditionType, holds bool, reason, message, elseReason,
	elseMessage string) v1.NamespaceCondition {
	if holds {
		return v1.NamespaceCondition{Type: t, Status: v1.ConditionTrue, Reason: reason, Message: message}
	}
	return v1.NamespaceCondition{Type: t, Status: v1.ConditionFalse, Reason: elseReason, Message: elseMessage}
}

func discoveryMessage(err error) string {
	var failed *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &failed) {
		return fmt.Sprintf("Discovery failed for some groups, %d failing: %v", len(failed.Groups), err)
	}
	return fmt.Sprintf("Discovery failed for some groups, 1 failing: %v", err)
}

func failureMessage(errs []error) string {
	return fmt.Sprintf("Failed to delete all resource types, %d remaining: %v", len(errs), errors.Join(errs...))
}

func counted(counts map[string]int, format string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf(format, name, counts[name]))
	}
	return strings.Join(out, ", ")
}

func (c *Controller) writeConditions(ctx context.Context, ns *v1.Namespace, left *remains) error {
	next := ns.DeepCopy()
	for _, want := range conditions(left) {
		want.LastTransitionTime = metav1.NewTime(c.Clock.Now())
		i := slices.IndexFunc(next.Status.Conditions, func(o v1.NamespaceCondition) bool { return o.Type == want.Type })
		switch {
		case i < 0:
			next.Status.Conditions = append(next.Status.Conditions, want)
		case next.Status.Conditions[i].Status == want.Status &&
			next.Status.Conditions[i].Message == want.Message && next.Status.Conditions[i].Reason == want.Reason:
		default:
			next.Status.Conditions[i] = want
		}
	}
	// If the namespace is already empty at the first sync, do not write conditions.
	if left.nothing() && len(ns.Status.Conditions) == 0 || equality.Semantic.DeepEqual(ns.Status, next.Status) {
		return nil
	}
	if _, err := c.Client.CoreV1().Namespaces().UpdateStatus(ctx, next, metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("status: %w", err)
	}
	return nil
}

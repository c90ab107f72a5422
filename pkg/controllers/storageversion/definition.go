// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storageversion

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// mark is the StorageMigrating condition to set in the status of a CustomResourceDefinition.
type mark struct {
	status          bool
	reason, message string
	// migrated means that all objects are stored in the present storage version now.
	migrated bool
}

// mark sets a condition in the CustomResourceDefinition of a migration's resource. It does nothing
// if the resource is built in.
func (c *migrator) mark(ctx context.Context, m *migration, how mark) error {
	if m.Spec.Resource.Group == "" {
		return nil
	}
	name := m.Spec.Resource.Resource + "." + m.Spec.Resource.Group
	crd, err := c.definition(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("definition: %w", err)
	}
	status, changed := marked(crd, how, metav1.NewTime(c.Clock.Now()))
	if !changed {
		return nil
	}
	// With the resource version, the write fails if the definition has changed since it was read.
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": crd.ResourceVersion},
		"status":   map[string]any{"conditions": status.Conditions, "storedVersions": status.StoredVersions},
	})
	if err != nil {
		return err
	}
	definitions := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	_, err = c.Metadata.Resource(definitions).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("status of definition: %w", err)
	}
	return nil
}

func (c *migrator) definition(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	b, err := c.Discovery.RESTClient().Get().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", name).
		SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	return crd, json.Unmarshal(b, crd)
}

// marked returns the status of a definition with the given condition, and whether it differs from
// the present status. It removes old versions from storedVersions only if the definition has not
// changed since the migration began.
func marked(crd *apiextensionsv1.CustomResourceDefinition, how mark,
	now metav1.Time) (*apiextensionsv1.CustomResourceDefinitionStatus, bool) {
	status := crd.Status.DeepCopy()
	at := slices.IndexFunc(status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.StorageMigrating
	})
	if !how.status && (at < 0 || status.Conditions[at].Status != apiextensionsv1.ConditionTrue) {
		return status, false // an earlier process wrote this condition already before it was killed
	}
	if how.migrated {
		if status.Conditions[at].ObservedGeneration == crd.Generation {
			how.message += " and the stored versions have been updated"
			status.StoredVersions = []string{storage(crd)}
		} else {
			how.message += " but the stored versions have not been updated due to a generation mismatch"
		}
	}
	to := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.StorageMigrating, Status: apiextensionsv1.ConditionFalse, LastTransitionTime: now,
		Reason: how.reason, Message: how.message, ObservedGeneration: crd.Generation,
	}
	if how.status {
		to.Status = apiextensionsv1.ConditionTrue
	}
	if at < 0 {
		status.Conditions = append(status.Conditions, to)
		return status, true
	}
	if to.LastTransitionTime = status.Conditions[at].LastTransitionTime; to == status.Conditions[at] {
		return status, false
	}
	to.LastTransitionTime = now
	status.Conditions[at] = to
	return status, true
}

// storage returns the name of the version in which the objects of a CustomResourceDefinition are
// stored.
func storage(crd *apiextensionsv1.CustomResourceDefinition) string {
	at := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Storage
	})
	return crd.Spec.Versions[at].Name // every definition has exactly one storage version
}

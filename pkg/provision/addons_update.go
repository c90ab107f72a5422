// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/csaupgrade"

	"keelson.dev/api/clock"
)

// addonManager is the field manager of the add-on objects.
const addonManager = "ctl"

// UpdateAddons brings the add-on objects to the state that this release wants, by server-side apply. Fields that
// the manifests do not have, and the numbers of replicas, stay. An object in which another client has changed a
// field of the manifest stays as it is: kept has these objects and fields. Objects that do not exist are created.
// UpdateAddons can be repeated.
func (c *Cluster) UpdateAddons(ctx context.Context, client dynamic.Interface, clk clock.Clock) (
	kept []string, err error) {
	if err := c.ApplyAddons(ctx, client, clk); err != nil {
		return nil, err
	}
	if c.NoDNS {
		kept = append(kept, "CoreDNS: its ConfigMap coredns is deleted")
	}
	for _, file := range c.manifestFiles() {
		objects, err := c.readManifest(file)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			name := o.GetKind() + " " + o.GetName()
			fields, err := updateAddon(ctx, client, o)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if len(fields) > 0 {
				kept = append(kept, name+": "+strings.Join(fields, ", "))
			}
		}
	}
	return kept, nil
}

// updateAddon updates one object, which exists. It returns the fields that other clients have changed; then the
// object stays as it is.
func updateAddon(ctx context.Context, client dynamic.Interface, o *unstructured.Unstructured) ([]string, error) {
	resource, ok := addonResource(o.GroupVersionKind())
	if !ok {
		return nil, errAddonKind
	}
	objects := client.Resource(resource).Namespace(o.GetNamespace())
	present, err := objects.Get(ctx, o.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if present.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] == "false" {
		return nil, nil
	}
	keepReplicas(o, present)
	// The object was created without server-side apply.
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(present, sets.New(addonManager), addonManager)
	if err != nil {
		return nil, err
	}
	if patch != nil {
		_, err = objects.Patch(ctx, o.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: addonManager})
		if err != nil {
			return nil, err
		}
	}
	_, err = objects.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: addonManager})
	if fields := conflicts(err); len(fields) > 0 {
		return fields, nil
	}
	return nil, err
}

// keepReplicas sets the number of replicas of an object to that of the present one, because operators and
// autoscalers change it.
func keepReplicas(o, present *unstructured.Unstructured) {
	if n, ok, err := unstructured.NestedInt64(present.Object, "spec", "replicas"); ok && err == nil {
		_ = unstructured.SetNestedField(o.Object, n, "spec", "replicas") // fails only if spec is not an object
	}
}

// conflicts returns the fields that other managers have changed, if that is what an error says.
func conflicts(err error) []string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsConflict(err) || status.Status().Details == nil {
		return nil
	}
	var out []string
	for _, c := range status.Status().Details.Causes {
		if c.Type == metav1.CauseTypeFieldManagerConflict {
			out = append(out, c.Field)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

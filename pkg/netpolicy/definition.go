// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"keelson.dev/keelson/pkg/follow"
)

// clusterPolicies watches ClusterNetworkPolicies while their kind is served. The kind is a custom
// resource, so clusterPolicies also watches the CustomResourceDefinition of the kind, and no other
// definition. In a cluster without ClusterNetworkPolicies this costs one idle watch.
type clusterPolicies struct {
	client dynamic.Interface
	log    *slog.Logger
	// definition is nil until this user may watch the definition. It has no entry if the definition
	// does not exist or is not served.
	definition *follow.Cache[unstructured.Unstructured, struct{}]
	policies   *follow.Cache[unstructured.Unstructured, clusterPolicy] // nil while the kind is not served
	end        func()                                                  // stops the watch of the policies
	logged     bool                                                    // true after a refusal was logged
	// refused reports whether the API server forbids this user to list the definition or the
	// policies. Clusters that were created by earlier versions do not grant this permission.
	refused bool
}

// adjust starts to watch the definition. It starts to watch the policies when their kind is served,
// and stops when the kind is no longer served. After a refusal it does nothing until audit resets
// refused.
func (c *clusterPolicies) adjust(ctx context.Context, s *sources) {
	switch defined := c.definition != nil && c.definition.Len() > 0; {
	case c.refused:
	case c.definition == nil:
		c.followDefinition(ctx, s)
	case defined && c.policies == nil:
		c.followPolicies(ctx, s)
	case !defined && c.policies != nil:
		c.end()
		for name := range c.policies.All() {
			s.changes.Note(func(d *dirty) { d.cluster[name.Name] = nil })
		}
		c.policies = nil
	}
}

func (c *clusterPolicies) followDefinition(ctx context.Context, s *sources) {
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	byName := follow.Named(clusterPolicyResource().GroupResource().String())
	if !c.may(ctx, definitions, byName, apierrors.IsForbidden, apierrors.IsNotFound) {
		return
	}
	c.definition = newCache(s, follow.Config[unstructured.Unstructured, struct{}]{
		Source: follow.Source(c.client.Resource(definitions), byName),
		Keep: func(definition *unstructured.Unstructured) *struct{} {
			if !isServed(definition) {
				return nil
			}
			return &struct{}{}
		},
	}, func(*dirty, types.NamespacedName, *struct{}) {}) // nothing to note, because the cache wakes the agent anyway
	s.running.Go(func() { c.definition.Run(ctx) })
}

func (c *clusterPolicies) followPolicies(ctx context.Context, s *sources) {
	if !c.may(ctx, clusterPolicyResource(), func(*metav1.ListOptions) {}, apierrors.IsForbidden) {
		return
	}
	policies := newCache(s, follow.Config[unstructured.Unstructured, clusterPolicy]{
		Source: follow.Source(c.client.Resource(clusterPolicyResource())), Keep: c.compile,
	}, func(d *dirty, name types.NamespacedName, p *clusterPolicy) { d.cluster[name.Name] = p })
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	s.running.Go(func() { policies.Run(ctx); close(ended) })
	c.policies, c.end = policies, func() { cancel(); <-ended }
}

func clusterPolicyResource() schema.GroupVersionResource {
	return policyv1alpha2.SchemeGroupVersion.WithResource("clusternetworkpolicies")
}

// may reports whether this user may list a resource. It sends a list request. If one of the given
// functions returns true for the request's error, may sets refused and returns false. After any
// other error it returns true: the error may be temporary, and the resource's cache retries.
func (c *clusterPolicies) may(
	ctx context.Context, resource schema.GroupVersionResource, tweak func(*metav1.ListOptions), no ...func(error) bool,
) bool {
	o := metav1.ListOptions{Limit: 1}
	tweak(&o)
	_, err := c.client.Resource(resource).List(ctx, o)
	c.refused = slices.ContainsFunc(no, func(is func(error) bool) bool { return is(err) })
	if c.refused && !c.logged {
		c.logged = true
		c.log.Info("Cluster network policies are not enforced", "reason", err.Error())
	}
	return !c.refused
}

// isServed reports whether the API server serves the kind in the version that this package
// supports.
func isServed(definition *unstructured.Unstructured) bool {
	has := func(want map[string]any, path ...string) bool {
		list, _, _ := unstructured.NestedSlice(definition.Object, path...)
		for _, o := range list {
			m, ok := o.(map[string]any)
			for key, value := range want {
				ok = ok && m[key] == value
			}
			if ok {
				return true
			}
		}
		return false
	}
	return has(map[string]any{"type": "Established", "status": "True"}, "status", "conditions") &&
		has(map[string]any{"name": policyv1alpha2.GroupVersion.Version, "served": true}, "spec", "versions")
}

// exist reports whether the cluster has ClusterNetworkPolicies.
func (c *clusterPolicies) exist() bool { return c.policies != nil && c.policies.Len() > 0 }

// compile returns a policy in the form for the Index, or nil if it cannot be decoded.
func (c *clusterPolicies) compile(u *unstructured.Unstructured) *clusterPolicy {
	cnp, err := typed(u)
	if err != nil {
		c.log.Error("Failed to decode cluster network policy", "err", err)
		return nil
	}
	p, err := compileCluster(cnp)
	if err != nil {
		c.log.Error("Cluster network policy has invalid or unsupported parts: an Accept rule with such a part "+
			"accepts nothing, a Deny or Pass rule with such a part denies all connections",
			"policy", u.GetName(), "err", err)
	}
	return p
}

func typed(u *unstructured.Unstructured) (*policyv1alpha2.ClusterNetworkPolicy, error) {
	cnp := &policyv1alpha2.ClusterNetworkPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, cnp); err != nil {
		return nil, fmt.Errorf("ClusterNetworkPolicy %s: %w", u.GetName(), err)
	}
	return cnp, nil
}

// ListClusterPolicies returns the ClusterNetworkPolicies of the cluster, or none if the kind is not
// defined.
func ListClusterPolicies(ctx context.Context, client dynamic.Interface) ([]*policyv1alpha2.ClusterNetworkPolicy,
	error) {
	list, err := client.Resource(clusterPolicyResource()).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list ClusterNetworkPolicies: %w", err)
	}
	out := make([]*policyv1alpha2.ClusterNetworkPolicy, 0, len(list.Items))
	for i := range list.Items {
		cnp, err := typed(&list.Items[i])
		if err != nil {
			return nil, err
		}
		out = append(out, cnp)
	}
	return out, nil
}

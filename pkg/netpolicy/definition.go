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
	"k8s.io/client-go/dynamic/dynamicinformer"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// clusterPolicies follows ClusterNetworkPolicies, which are custom resources: as long as they are defined. Of
// definitions it follows this one alone, by its name, so that a cluster without it costs a
// watch on which nothing happens.
type clusterPolicies struct {
	client     dynamic.Interface
	log        *slog.Logger
	note       func(*dirty, types.NamespacedName) // has the name of a policy be looked at
	definition *source
	policies   *source // nil as long as they are not defined
	end        context.CancelFunc
	told       bool // of that in the log
	refused    bool // this user may not list one of them, as in clusters that earlier versions made
}

// adjust begins to follow the definition, and begins or ends to follow the policies when that has come or
// gone. After a refusal it does nothing until refused is false again.
func (c *clusterPolicies) adjust(ctx context.Context, s *sources) error {
	switch defined := c.defined(); {
	case c.refused:
	case c.definition == nil:
		return c.followDefinition(ctx, s)
	case defined && c.policies == nil:
		return c.followPolicies(ctx, s)
	case !defined && c.policies != nil:
		c.end()
		s.mu.Lock()
		for _, key := range c.policies.GetStore().ListKeys() {
			c.note(&s.dirty, types.NamespacedName{Name: key})
		}
		s.mu.Unlock()
		c.policies = nil
	}
	return nil
}

func (c *clusterPolicies) followDefinition(ctx context.Context, s *sources) error {
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	byName := func(o *metav1.ListOptions) {
		o.FieldSelector = "metadata.name=" + clusterPolicyResource().GroupResource().String()
	}
	if !c.may(ctx, definitions, byName, apierrors.IsForbidden, apierrors.IsNotFound) {
		return nil
	}
	i := dynamicinformer.NewFilteredDynamicInformer(c.client, definitions, "", 0, nil, byName).Informer()
	followed, err := s.follow(i, slimDefinition, func(*dirty, types.NamespacedName) {})
	if err != nil {
		return err
	}
	c.definition = followed
	s.running.Go(func() { i.RunWithContext(ctx) })
	return nil
}

func (c *clusterPolicies) followPolicies(ctx context.Context, s *sources) error {
	if !c.may(ctx, clusterPolicyResource(), func(*metav1.ListOptions) {}, apierrors.IsForbidden) {
		return nil
	}
	i := dynamicinformer.NewFilteredDynamicInformer(c.client, clusterPolicyResource(), "", 0, nil, nil).Informer()
	followed, err := s.follow(i, slim, c.note)
	if err != nil {
		return err
	}
	ctx, c.end = context.WithCancel(ctx)
	c.policies = followed
	s.running.Go(func() { i.RunWithContext(ctx) })
	return nil
}

func clusterPolicyResource() schema.GroupVersionResource {
	return policyv1alpha2.SchemeGroupVersion.WithResource("clusternetworkpolicies")
}

// may tells whether the API server lets a resource be listed: any other answer than these is not for good.
func (c *clusterPolicies) may(ctx context.Context, resource schema.GroupVersionResource, tweak func(*metav1.ListOptions), no ...func(error) bool) bool {
	o := metav1.ListOptions{Limit: 1}
	tweak(&o)
	_, err := c.client.Resource(resource).List(ctx, o)
	c.refused = slices.ContainsFunc(no, func(is func(error) bool) bool { return is(err) })
	if c.refused && !c.told {
		c.told = true
		c.log.Info("Cluster network policies are not enforced", "reason", err.Error())
	}
	return !c.refused
}

// slimDefinition keeps whether a definition is served. It may be given what it has made.
func slimDefinition(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	if _, slim := u.Object["served"]; slim {
		return o, nil
	}
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(u.GroupVersionKind())
	out.SetName(u.GetName())
	out.SetResourceVersion(u.GetResourceVersion())
	served := isServed(u)
	if err := unstructured.SetNestedField(out.Object, served, "served"); err != nil {
		return nil, fmt.Errorf("definition: %w", err)
	}
	return out, nil
}

// isServed tells whether a definition is in force and has the version that is known here.
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

// defined tells whether there are ClusterNetworkPolicies.
func (c *clusterPolicies) defined() bool {
	if c.definition == nil {
		return false
	}
	for _, o := range c.definition.GetStore().List() {
		u, ok := o.(*unstructured.Unstructured)
		if served, _, _ := unstructured.NestedBool(u.UnstructuredContent(), "served"); ok && served {
			return true
		}
	}
	return false
}

// exist tells whether there is a policy.
func (c *clusterPolicies) exist() bool {
	return c.policies != nil && len(c.policies.GetStore().ListKeys()) > 0
}

// get returns a policy; nil: there is none.
func (c *clusterPolicies) get(name string) *clusterPolicy {
	if c.policies == nil {
		return nil
	}
	u, ok := lookup[unstructured.Unstructured](c.policies, name)
	if !ok {
		return nil
	}
	cnp, err := typed(u)
	if err != nil {
		c.log.Error("Cluster network policy not understood", "err", err)
		return nil
	}
	p, err := compileCluster(cnp)
	if err != nil {
		c.log.Error("Part of a cluster network policy not understood: what it would accept is not accepted, what it would deny or pass is denied", "policy", name, "err", err)
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

// ListClusterPolicies returns the cluster's ClusterNetworkPolicies: none if they are not defined.
func ListClusterPolicies(ctx context.Context, client dynamic.Interface) ([]*policyv1alpha2.ClusterNetworkPolicy, error) {
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

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregation

import (
	"cmp"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	schedulingv1alpha1 "keelson.dev/api/scheduling/v1alpha1"
)

// priority has the priority of a group among groups, and of a version within the group. The highest
// priority comes first in discovery.
type priority struct{ group, version int32 }

// custom returns the priority of groups of custom resources.
func custom() priority { return priority{group: 1000, version: 100} }

// served returns the priority of groups with a handler of Config.Served.
func served() priority { return priority{group: 100, version: 100} }

// groupPriorities returns the priorities of the built-in groups. The group apiregistration.k8s.io
// comes first and has no APIService of its own.
func groupPriorities() map[string]int32 {
	return map[string]int32{
		"": 18000, "apps": 17800, "events.k8s.io": 17750, "authentication.k8s.io": 17700,
		"authorization.k8s.io": 17600, "autoscaling": 17500, "batch": 17400, "certificates.k8s.io": 17300,
		"networking.k8s.io": 17200, "policy": 17100, "rbac.authorization.k8s.io": 17000, "storage.k8s.io": 16800,
		"admissionregistration.k8s.io": 16700, "apiextensions.k8s.io": 16700, "scheduling.k8s.io": 16600,
		"coordination.k8s.io": 16500, "node.k8s.io": 16300, "discovery.k8s.io": 16200, "resource.k8s.io": 16200,
		"flowcontrol.apiserver.k8s.io": 16100, "internal.apiserver.k8s.io": 16000, "storagemigration.k8s.io": 15800,
		apiregistrationv1.GroupName: 20000,
		schedulingv1alpha1.Group:    1500, // after the groups of Kubernetes, before custom resources
	}
}

// versionPriority returns the priority of a version of a built-in group.
func versionPriority(gv schema.GroupVersion) int32 {
	switch gv {
	case schema.GroupVersion{Version: "v1"}, schema.GroupVersion{Group: "resource.k8s.io", Version: "v1alpha3"}:
		return 1
	case schema.GroupVersion{Group: "autoscaling", Version: "v2"}:
		return 30
	case schema.GroupVersion{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"},
		schema.GroupVersion{Group: "resource.k8s.io", Version: "v1"}:
		return 21
	case schema.GroupVersion{Group: "internal.apiserver.k8s.io", Version: "v1alpha1"}:
		return 9
	}
	if gv.Version == "v1beta1" { // Kubernetes has 9 for each v1beta1 that this server can serve
		return 9
	}
	return 15
}

// ownServices returns the APIServices of the built-in group versions.
func ownServices(versions []schema.GroupVersion) []*apiregistrationv1.APIService {
	groups := groupPriorities()
	var list []*apiregistrationv1.APIService
	for _, gv := range versions {
		if p, ok := groups[gv.Group]; ok && gv.Group != apiregistrationv1.GroupName {
			list = append(list, local(gv, priority{p, versionPriority(gv)}))
		}
	}
	return list
}

// local returns the APIService that declares that this server serves gv itself.
func local(gv schema.GroupVersion, p priority) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: gv.Version + "." + gv.Group},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: p.group, VersionPriority: p.version,
		},
	}
}

// GroupPriority returns the priority of a group in discovery: the highest priority of its
// APIServices.
func (a *Aggregator) GroupPriority(group string) int32 {
	if group == apiregistrationv1.GroupName {
		return groupPriorities()[group]
	}
	highest := int32(-1)
	for _, s := range a.inGroup(group) {
		highest = max(highest, s.Spec.GroupPriorityMinimum)
	}
	if highest >= 0 {
		return highest
	}
	if p, ok := groupPriorities()[group]; ok {
		return p
	}
	return custom().group
}

// inGroup returns the APIServices of a group, in the order of their version priorities.
func (a *Aggregator) inGroup(group string) []*apiregistrationv1.APIService {
	objs, err := a.services.Informer().GetIndexer().ByIndex(byGroup, group)
	if err != nil {
		return nil // cannot happen, because New has added the index
	}
	list := make([]*apiregistrationv1.APIService, 0, len(objs))
	for _, o := range objs {
		if s, ok := o.(*apiregistrationv1.APIService); ok {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(x, y *apiregistrationv1.APIService) int {
		if d := cmp.Compare(y.Spec.VersionPriority, x.Spec.VersionPriority); d != 0 {
			return d
		}
		return versionOrder(x.Spec.Version, y.Spec.Version)
	})
	return list
}

// Versions returns the versions of each group that has APIServices, most preferred first. It
// includes APIServices that are not available.
func (a *Aggregator) Versions() map[string][]string {
	all := map[string][]string{}
	for _, group := range a.services.Informer().GetIndexer().ListIndexFuncValues(byGroup) {
		for _, s := range a.inGroup(group) {
			all[group] = append(all[group], s.Spec.Version)
		}
	}
	return all
}

const byGroup = "group"

func groupOf(obj any) ([]string, error) {
	if s, ok := obj.(*apiregistrationv1.APIService); ok {
		return []string{s.Spec.Group}, nil
	}
	return nil, nil
}

// define creates the APIServices of the versions that a custom resource definition serves, and
// deletes those of versions that no definition serves any more. crd need not be established.
func (a *Aggregator) define(name string, crd *apiextensionsv1.CustomResourceDefinition) {
	var versions []schema.GroupVersion
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; v.Served {
			versions = append(versions, schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name})
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.versions[name]
	if slices.Equal(old, versions) {
		return
	}
	if delete(a.versions, name); len(versions) > 0 {
		a.versions[name] = versions
	}
	for _, gv := range versions {
		if a.defined[gv]++; a.defined[gv] == 1 && !a.own[gv] {
			a.registrar.AddAPIServiceToSync(local(gv, custom()))
		}
	}
	for _, gv := range old {
		if a.defined[gv]--; a.defined[gv] > 0 {
			continue
		}
		if delete(a.defined, gv); !a.own[gv] {
			a.registrar.RemoveAPIServiceToSync(gv.Version + "." + gv.Group)
		}
	}
}

// followDefinitions calls define for each change of a custom resource definition. synced reports
// whether all definitions that existed at the start have been processed.
func (a *Aggregator) followDefinitions() (synced func() bool, err error) {
	// Drop the schemas, which are not needed here and make up most of a definition.
	if err := a.definitions.Informer().SetTransform(func(obj any) (any, error) {
		if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
			crd.ManagedFields, crd.Annotations = nil, nil
			for i := range crd.Spec.Versions {
				crd.Spec.Versions[i].Schema = nil
			}
		}
		return obj, nil
	}); err != nil {
		return nil, err
	}
	set := func(obj any) {
		if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
			a.define(crd.Name, crd)
		}
	}
	reg, err := a.definitions.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
				a.define(name, &apiextensionsv1.CustomResourceDefinition{})
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return reg.HasSynced, nil
}

// versionOrder compares versions so that the most stable one is first: v2, v1, v1beta1.
func versionOrder(x, y string) int { return version.CompareKubeAwareVersionStrings(y, x) }

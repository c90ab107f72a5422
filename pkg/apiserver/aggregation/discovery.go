// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
)

const (
	firstRetry = 500 * time.Millisecond
	// refresh is the interval at which the discovery of each extension server is repeated.
	refresh = time.Minute
	// fetchTimeout limits one discovery request.
	fetchTimeout = 5 * time.Second
	// acceptAggregated is the header Accept for aggregated discovery in versions v2 and v2beta1. An
	// extension server that has neither may answer with its list of groups.
	acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
		"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)

var errUnavailable = errors.New("service unavailable")

// found contains the discovery and OpenAPI documents that extension servers have returned.
type found struct {
	mu       sync.RWMutex
	versions map[schema.GroupVersion]apidiscovery.APIVersionDiscovery
	specs    map[location]*spec
}

// runDiscovery fetches discovery and OpenAPI of extension servers, two at a time, until ctx is
// done.
func (a *Aggregator) runDiscovery(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for range 2 {
		wg.Go(func() {
			for a.discoverNext(ctx) {
			}
		})
	}
	<-ctx.Done()
	a.queue.ShutDown()
}

func (a *Aggregator) discoverNext(ctx context.Context) bool {
	name, down := a.queue.Get()
	if down {
		return false
	}
	defer a.queue.Done(name)
	gv := helper.APIServiceNameToGroupVersion(name)
	c := (*a.carriers.Load())[gv]
	if c == nil {
		a.found.forget(gv)
		a.queue.Forget(name)
		a.forgetSpecs()
		return true
	}
	err := a.discover(ctx, c)
	if err == nil {
		err = a.fetchSpecs(ctx, c)
	}
	if err != nil {
		a.cfg.Log.Debug("Failed to read discovery or OpenAPI from an extension server", "apiService", name, "err", err)
		a.queue.AddRateLimited(name)
		return true
	}
	a.queue.Forget(name)
	a.queue.AddAfter(name, refresh)
	return true
}

// discover fetches the resources of c's group version. If the request fails, it marks the version
// as stale. The version then keeps its last known resources if its APIService is available, and
// otherwise has none.
func (a *Aggregator) discover(ctx context.Context, c *carrier) error {
	entry, err := fetchVersion(ctx, c)
	if entry == nil {
		entry = &apidiscovery.APIVersionDiscovery{}
	}
	entry.Version, entry.Freshness = c.gv.Version, apidiscovery.DiscoveryFreshnessCurrent
	if err != nil {
		entry.Freshness = apidiscovery.DiscoveryFreshnessStale
	}
	a.found.mu.Lock()
	defer a.found.mu.Unlock()
	if a.found.versions == nil {
		a.found.versions = map[schema.GroupVersion]apidiscovery.APIVersionDiscovery{}
	}
	if old, ok := a.found.versions[c.gv]; ok && err != nil && c.available {
		// The APIService is available although this request failed, so keep the last known resources.
		entry.Resources = old.Resources
	}
	a.found.versions[c.gv] = *entry
	return err
}

func (f *found) forget(gv schema.GroupVersion) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.versions, gv)
}

// fetchVersion fetches the discovery of c's group version. As in Kubernetes, it sends the requests
// even if the APIService is not available. It returns nil if the server does not have the version.
func fetchVersion(ctx context.Context, c *carrier) (*apidiscovery.APIVersionDiscovery, error) {
	var all apidiscovery.APIGroupDiscoveryList
	code, err := get(ctx, c.ask, "/apis", acceptAggregated, &all)
	if err == nil && code == http.StatusServiceUnavailable {
		err = errUnavailable
	}
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	for _, g := range all.Items {
		for i := range g.Versions {
			if g.Name == c.gv.Group && g.Versions[i].Version == c.gv.Version {
				return withKinds(&g.Versions[i]), nil
			}
		}
	}
	if all.Kind == "APIGroupDiscoveryList" {
		return nil, nil // the server does not have this version
	}
	var list metav1.APIResourceList
	code, err = get(ctx, c.ask, c.path(), "application/json", &list)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("code %d", code)
	}
	if err != nil {
		return nil, fmt.Errorf("resources: %w", err)
	}
	resources, err := endpoints.ConvertGroupVersionIntoToDiscovery(list.APIResources)
	if err != nil {
		return nil, fmt.Errorf("resources: %w", err)
	}
	return withKinds(&apidiscovery.APIVersionDiscovery{Resources: resources}), nil
}

// path returns the path of the carrier's group version.
func (c *carrier) path() string { return pathOf(c.gv.Group, c.gv.Version) }

func pathOf(group, version string) string {
	if group == "" {
		return "/api/" + version
	}
	return "/apis/" + group + "/" + version
}

// withKinds replaces a missing responseKind by an empty one, because some clients fail without it.
func withKinds(v *apidiscovery.APIVersionDiscovery) *apidiscovery.APIVersionDiscovery {
	for i := range v.Resources {
		r := &v.Resources[i]
		if r.ResponseKind == nil {
			r.ResponseKind = &metav1.GroupVersionKind{}
		}
		for j := range r.Subresources {
			if r.Subresources[j].ResponseKind == nil {
				r.Subresources[j].ResponseKind = &metav1.GroupVersionKind{}
			}
		}
	}
	return v
}

// get requests a JSON document from the given handler, as the user of the aggregator, and decodes
// it.
func get(ctx context.Context, of http.HandlerFunc, path, accept string, into any) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	ctx = request.WithUser(ctx,
		&user.DefaultInfo{Name: "system:kube-aggregator", Groups: []string{user.SystemPrivilegedGroup}})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Accept", accept)
	w := newAnswer(maxAnswer)
	of(w, r)
	if w.err != nil {
		return 0, w.err
	}
	if w.code != http.StatusOK {
		return w.code, nil
	}
	// Commas separate the members of JSON arrays and objects, so many values need many commas.
	if n := bytes.Count(w.body.Bytes(), []byte{','}); n > maxValues {
		return w.code, fmt.Errorf("%s: more than %d values", path, maxValues)
	}
	if err := json.Unmarshal(w.body.Bytes(), into); err != nil {
		return w.code, fmt.Errorf("%s: %w", path, err)
	}
	return w.code, nil
}

// Groups returns the groups and versions of extension servers, for discovery.
func (a *Aggregator) Groups() []apidiscovery.APIGroupDiscovery {
	var names []string
	carriers := *a.carriers.Load()
	for gv := range carriers {
		if gv.Group != "" && !slices.Contains(names, gv.Group) {
			names = append(names, gv.Group)
		}
	}
	slices.Sort(names)
	a.found.mu.RLock()
	defer a.found.mu.RUnlock()
	var groups []apidiscovery.APIGroupDiscovery
	for _, name := range names {
		g := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, s := range a.inGroup(name) {
			gv := schema.GroupVersion{Group: name, Version: s.Spec.Version}
			if carriers[gv] == nil {
				continue
			}
			entry, ok := a.found.versions[gv]
			if !ok {
				entry = apidiscovery.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscovery.DiscoveryFreshnessStale}
			}
			g.Versions = append(g.Versions, entry)
		}
		if len(g.Versions) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

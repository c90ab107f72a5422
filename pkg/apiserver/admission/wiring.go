// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"k8s.io/component-base/featuregate"

	"keelson.dev/api/clock"
)

// gates are what the library's plugins may ask for: its own defaults.
func gates() featuregate.FeatureGate { return utilfeature.DefaultFeatureGate }

// rediscover is how often, at most, a mapper looks again for what it does not know.
const rediscover = time.Second

// NewMapper relates kinds to resources as the server's own discovery has them,
// custom ones included. Of a kind that it does not know it asks again.
func NewMapper(client discovery.DiscoveryInterface, clk clock.Clock) meta.ResettableRESTMapper {
	return &mapper{ResettableRESTMapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client)), clock: clk}
}

type mapper struct {
	meta.ResettableRESTMapper
	clock clock.Clock

	mu    sync.Mutex
	asked time.Time
}

// RESTMapping finds the resource of a kind.
func (m *mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	found, err := m.ResettableRESTMapper.RESTMapping(kind, versions...)
	if !meta.IsNoMatchError(err) || !m.again() {
		return found, err
	}
	m.Reset()
	return m.ResettableRESTMapper.RESTMapping(kind, versions...)
}

// again reports whether it is time to ask again.
func (m *mapper) again() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.Now()
	if now.Sub(m.asked) < rediscover {
		return false
	}
	m.asked = now
	return true
}

// exclusions keeps policies away from what the cluster cannot do without, and
// what nobody stores: reviews of who somebody is and of what they may do.
type exclusions struct{}

// Initialize tells a plugin, if it asks.
func (exclusions) Initialize(plugin admission.Interface) {
	wants, ok := plugin.(initializer.WantsExcludedAdmissionResources)
	if !ok {
		return
	}
	wants.SetExcludedAdmissionResources(reviews())
}

// reviews are the resources by which components ask who a client is and what it may do. Nothing
// of them is stored.
func reviews() []schema.GroupResource {
	return []schema.GroupResource{
		{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"},
		{Group: "authentication.k8s.io", Resource: "tokenreviews"},
		{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"},
		{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"},
		{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"},
		{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
	}
}

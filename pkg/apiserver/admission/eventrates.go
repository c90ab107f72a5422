// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/lru"

	"keelson.dev/api/clock"
)

// defaultRates is the default of cacheSize: the maximum number of keys for which a limit stores the
// rate.
const defaultRates = 4096

// rateSettings is the Configuration of eventratelimit.admission.k8s.io, the plugin's settings.
type rateSettings struct {
	metav1.TypeMeta `json:",inline"`
	Limits          []rateLimit `json:"limits"`
}

// rateLimit limits the rate of events with the same key. Type determines the key.
type rateLimit struct {
	Type      string `json:"type"`
	QPS       int32  `json:"qps"`
	Burst     int32  `json:"burst"`
	CacheSize int32  `json:"cacheSize,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (s *rateSettings) DeepCopyObject() runtime.Object {
	return &rateSettings{s.TypeMeta, slices.Clone(s.Limits)}
}

// serverLimit is the type of a limit whose key is the same for all events.
const serverLimit = "Server"

// rateKey returns the function that returns the key of an event for the given type of limit. It
// returns nil if the type is unknown.
func rateKey(limit string) func(admission.Attributes) string {
	switch limit {
	case serverLimit:
		return func(admission.Attributes) string { return "" }
	case "Namespace":
		return func(a admission.Attributes) string { return a.GetNamespace() }
	case "User":
		return func(a admission.Attributes) string { return a.GetUserInfo().GetName() }
	case "SourceAndObject":
		return sourceAndObject
	}
	return nil
}

func sourceAndObject(a admission.Attributes) string {
	e, ok := a.GetObject().(*corev1.Event)
	if !ok {
		return ""
	}
	o := e.InvolvedObject
	return strings.Join([]string{e.Source.Component, e.Source.Host, o.Kind, o.Namespace, o.Name, string(o.UID),
		o.APIVersion}, "")
}

func (s *rateSettings) validate() field.ErrorList {
	var errs field.ErrorList
	limits := field.NewPath("limits")
	if len(s.Limits) == 0 {
		errs = append(errs, field.Invalid(limits, s.Limits, "must not be empty"))
	}
	for i, l := range s.Limits {
		at := limits.Index(i)
		if rateKey(l.Type) == nil {
			errs = append(errs, field.NotSupported(at.Child("type"), l.Type,
				[]string{serverLimit, "Namespace", "User", "SourceAndObject"}))
		}
		if l.Burst <= 0 {
			errs = append(errs, field.Invalid(at.Child("burst"), l.Burst, "must be positive"))
		}
		if l.QPS <= 0 {
			errs = append(errs, field.Invalid(at.Child("qps"), l.QPS, "must be positive"))
		}
		if l.Type != serverLimit && l.CacheSize < 0 {
			errs = append(errs, field.Invalid(at.Child("cacheSize"), l.CacheSize, "must not be negative"))
		}
	}
	return errs
}

// eventRates rejects events that exceed a limit.
type eventRates struct {
	*admission.Handler
	limits []*eventLimit
	clock  clock.Clock
}

// eventLimit is a limit with the rates of the keys that were used most recently.
type eventLimit struct {
	rateLimit
	key func(admission.Attributes) string

	// mu is held while a rate is looked up or created, so that concurrent events with a new key use
	// the same rate.
	mu    sync.Mutex
	rates *lru.Cache
}

func newEventRates(deps Deps) (admission.Interface, error) {
	group := schema.GroupVersion{Group: "eventratelimit.admission.k8s.io", Version: "v1alpha1"}
	settings, err := decodeSettings(deps.settings, group, &rateSettings{})
	if err != nil {
		return nil, err
	}
	if errs := settings.validate(); len(errs) > 0 {
		return nil, fmt.Errorf("configuration: %w", errs.ToAggregate())
	}
	p := &eventRates{Handler: admission.NewHandler(admission.Create, admission.Update), clock: deps.Clock}
	for _, l := range settings.Limits {
		size := int(l.CacheSize)
		if size <= 0 {
			size = defaultRates
		}
		p.limits = append(p.limits, &eventLimit{rateLimit: l, key: rateKey(l.Type), rates: lru.New(size)})
	}
	return p, nil
}

// Validate counts an event for each limit. If the event exceeds limits, it returns an error that
// names all of them. As in Kubernetes, dry runs and events of events.k8s.io are not counted.
func (p *eventRates) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.IsDryRun() || (a.GetKind().GroupKind() != schema.GroupKind{Kind: "Event"}) {
		return nil
	}
	var refused []error
	for _, l := range p.limits {
		key := l.key(a)
		if !l.rate(key).AllowN(p.clock.Now(), 1) {
			refused = append(refused, fmt.Errorf("limit reached on type %v for key %v", l.Type, key))
		}
	}
	if len(refused) == 0 {
		return nil
	}
	return apierrors.NewTooManyRequestsError(utilerrors.NewAggregate(refused).Error())
}

// rate returns the rate of a key, and creates it if needed.
func (l *eventLimit) rate(key string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.rates.Get(key); ok {
		return r.(*rate.Limiter)
	}
	r := rate.NewLimiter(rate.Limit(l.QPS), int(l.Burst))
	l.rates.Add(key, r)
	return r
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaim

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
)

// metrics are the controller's metrics. They have Kubernetes' names, labels and help texts.
type metrics struct{ creates *prometheus.CounterVec }

// newMetrics registers the metrics. r may be nil.
func newMetrics(r prometheus.Registerer, claims resourcelisters.ResourceClaimLister) *metrics {
	if r != nil {
		r.MustRegister(counted{claims, prometheus.NewDesc("dynamic_resource_allocation_resource_claims",
			"[ALPHA] Number of ResourceClaims, categorized by allocation status, admin access, and source. "+
				"Source can be 'resource_claim_template' (created from a template), "+
				"'extended_resource' (extended resources), or empty (manually created by a user).",
			[]string{"allocated", "admin_access", "source"}, nil)})
	}
	return &metrics{promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "dynamic_resource_allocation_resourceclaim_creates_total",
		Help: "[ALPHA] Number of ResourceClaims creation requests, categorized by creation status, admin access, and " +
			"owning API group and kind (either Pod or scheduling.k8s.io/PodGroup)",
	}, []string{"status", "admin_access", "owner_api_group", "owner_api_kind"})}
}

// created counts a request to create a claim. err is the request's error, or nil if it succeeded.
func (m *metrics) created(claim *resourcev1.ResourceClaim, err error) {
	status := "success"
	if err != nil {
		status = "failure"
	}
	group, kind := "", ""
	if owner := metav1.GetControllerOfNoCopy(claim); owner != nil {
		kind = owner.Kind
		if g, _, found := strings.Cut(owner.APIVersion, "/"); found {
			group = g
		}
	}
	m.creates.WithLabelValues(status, strconv.FormatBool(administers(claim)), group, kind).Inc()
}

// administers reports whether a claim requests devices with admin access.
func administers(claim *resourcev1.ResourceClaim) bool {
	for _, r := range claim.Spec.Devices.Requests {
		if r.Exactly != nil && r.Exactly.AdminAccess != nil && *r.Exactly.AdminAccess {
			return true
		}
	}
	return false
}

// counted is a prometheus.Collector that counts the existing claims when the metrics are read.
type counted struct {
	claims resourcelisters.ResourceClaimLister
	desc   *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c counted) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

// Collect implements prometheus.Collector.
func (c counted) Collect(to chan<- prometheus.Metric) {
	type group struct {
		allocated, administers bool
		source                 string
	}
	claims, err := c.claims.List(labels.Everything())
	if err != nil {
		return // cannot happen: List of a cache returns no error
	}
	counts := map[group]int{}
	for _, claim := range claims {
		counts[group{claim.Status.Allocation != nil, administers(claim), sourceOf(claim)}]++
	}
	for g, n := range counts {
		to <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n),
			strconv.FormatBool(g.allocated), strconv.FormatBool(g.administers), g.source)
	}
}

// sourceOf returns the value of the label source, which says why a claim was created, or "" if a
// user created it.
func sourceOf(claim *resourcev1.ResourceClaim) string {
	switch {
	case claim.Annotations[resourcev1.PodResourceClaimAnnotation] != "":
		return "resource_claim_template"
	case claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true":
		return "extended_resource"
	}
	return ""
}

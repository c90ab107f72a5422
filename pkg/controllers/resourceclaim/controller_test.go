// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaim

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// TestServer checks that a claim is created for a pod from its template, that it is created again
// after it was deleted, and that it is deleted when the pod has ended. The controller has only the
// permissions of its service account.
func TestServer(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	controllertest.RunAs(t, s, "resource-claim-controller", controller.Options{}, New)
	spec := resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
		{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "c"}},
	}}}
	resources := s.Client.ResourceV1()
	_, err := resources.ResourceClaimTemplates("default").Create(t.Context(), &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "t"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: spec},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	template := "t"
	pods := s.Client.CoreV1().Pods("default")
	pod, err := pods.Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1.PodSpec{
		Containers:     []v1.Container{{Name: "c", Image: "i"}},
		ResourceClaims: []v1.PodResourceClaim{{Name: "dev", ResourceClaimTemplateName: &template}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	name := ""
	told := func(ctx context.Context) (any, bool) {
		p, err := pods.Get(ctx, "p", metav1.GetOptions{})
		if err != nil || len(p.Status.ResourceClaimStatuses) != 1 ||
			*p.Status.ResourceClaimStatuses[0].ResourceClaimName == name {
			return p, false
		}
		name = *p.Status.ResourceClaimStatuses[0].ResourceClaimName
		return p, true
	}
	controllertest.Eventually(t, "the pod's status names a claim", told)
	claim, err := resources.ResourceClaims("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || !metav1.IsControlledBy(claim, pod) || !strings.HasPrefix(name, "p-dev-") {
		t.Fatal(claim, err)
	}
	if err := resources.ResourceClaims("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "it names another one when that is lost", told)
	if _, err := pods.Patch(t.Context(), "p", types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`),
		metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "the claim goes with the pod's end", func(ctx context.Context) (any, bool) {
		c, err := resources.ResourceClaims("default").Get(ctx, name, metav1.GetOptions{})
		return c, apierrors.IsNotFound(err)
	})
}

func TestClaimOf(t *testing.T) {
	template := &resourcev1.ResourceClaimTemplate{}
	for name, test := range map[string]struct{ pod, claim, want string }{
		"short": {"web", "gpu", "web-gpu-"},
		"long":  {strings.Repeat("p", 60), strings.Repeat("c", 20), strings.Repeat("p", 41) + "-" + strings.Repeat("c", 13)},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: test.pod}}
		if got := claimOf(pod, &v1.PodResourceClaim{Name: test.claim}, template).GenerateName; got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestMetrics(t *testing.T) {
	claims := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, c := range []*resourcev1.ResourceClaim{
		{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "b", Annotations: map[string]string{resourcev1.PodResourceClaimAnnotation: "r"}},
			Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{}}},
	} {
		if err := claims.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	r := prometheus.NewPedanticRegistry()
	m := newMetrics(r, resourcelisters.NewResourceClaimLister(claims))
	for _, apiVersion := range []string{"v1", "scheduling.k8s.io/v1beta1"} {
		m.created(&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
			{APIVersion: apiVersion, Kind: "Owner", Controller: ptr.To(true)}}}}, nil)
	}
	const want = `
# HELP dynamic_resource_allocation_resource_claims [ALPHA] Number of ResourceClaims, categorized by allocation status, admin access, and source. Source can be 'resource_claim_template' (created from a template), 'extended_resource' (extended resources), or empty (manually created by a user).
# TYPE dynamic_resource_allocation_resource_claims gauge
dynamic_resource_allocation_resource_claims{admin_access="false",allocated="false",source=""} 1
dynamic_resource_allocation_resource_claims{admin_access="false",allocated="true",source="resource_claim_template"} 1
# HELP dynamic_resource_allocation_resourceclaim_creates_total [ALPHA] Number of ResourceClaims creation requests, categorized by creation status, admin access, and owning API group and kind (either Pod or scheduling.k8s.io/PodGroup)
# TYPE dynamic_resource_allocation_resourceclaim_creates_total counter
dynamic_resource_allocation_resourceclaim_creates_total{admin_access="false",owner_api_group="",owner_api_kind="Owner",status="success"} 1
dynamic_resource_allocation_resourceclaim_creates_total{admin_access="false",owner_api_group="scheduling.k8s.io",owner_api_kind="Owner",status="success"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/version"

	"keelson.dev/apiserver/store/kv"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/features"
)

// TestEmulatedVersion checks a server that emulates 1.36: what it serves and shows, and that it drops
// or rejects what 1.36 does not have.
func TestEmulatedVersion(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) { c.Features.Emulated = 36 }})
	ctx := t.Context()
	get := func(path string) string {
		b, err := s.Client.Discovery().RESTClient().Get().AbsPath(path).DoRaw(ctx)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return string(b)
	}
	var info version.Info
	if err := json.Unmarshal([]byte(get("/version")), &info); err != nil {
		t.Fatal(err)
	}
	if got := info.Minor + " " + info.EmulationMajor + "." + info.EmulationMinor + " " + info.MinCompatibilityMajor +
		"." + info.MinCompatibilityMinor; got != "37 1.36 1.35" {
		t.Errorf("/version: %s", got)
	}
	for _, want := range []string{`,emulation="1.36",min_compat="1.35"} 1`,
		`kubernetes_feature_enabled{name="HPAScaleToZero",stage="ALPHA"} 0`,
		`kubernetes_feature_enabled{name="HostnameOverride",stage="BETA"} 1`} {
		if !strings.Contains(get("/metrics"), want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if strings.Contains(get("/metrics"), `name="HPAGeneration"`) {
		t.Error("metrics have a gate that 1.36 does not have")
	}
	_, lists, err := s.Client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		for _, r := range list.APIResources {
			if slices.Contains([]string{"clustertrustbundles", "devicetaintrules", "podcertificaterequests",
				"storageversionmigrations"}, r.Name) {
				t.Errorf("%s has %s", list.GroupVersion, r.Name)
			}
		}
	}

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "i"}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{
				Name: new("b"), Path: "p"}}}}}}},
	}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := s.Client.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	if pod, err = s.Client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	} else if pod.Spec.Volumes[0].Projected.Sources[0].ClusterTrustBundle != nil {
		t.Error("the pod has a trust bundle")
	}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: appsv1.StatefulSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		UpdateStrategy: appsv1.StatefulSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{
			MaxUnavailable: new(intstr.FromInt32(2))}},
	}}
	if set, err = s.Client.AppsV1().StatefulSets("default").Create(ctx, set, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	} else if rolling := set.Spec.UpdateStrategy.RollingUpdate; rolling == nil || rolling.MaxUnavailable != nil {
		t.Errorf("the stateful set has %v", rolling)
	}
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d.example.com"}}
	if driver, err = s.Client.StorageV1().CSIDrivers().Create(ctx, driver, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	} else if driver.Spec.PreventPodSchedulingIfMissing != nil {
		t.Error("the driver has a field of 1.37")
	}
	hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "h"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: new(int32(0)), MaxReplicas: 2,
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "d", APIVersion: "apps/v1"}}}
	_, err = s.Client.AutoscalingV2().HorizontalPodAutoscalers("default").Create(ctx, hpa, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "must be greater than or equal to 1") {
		t.Errorf("autoscaler with a minimum of zero: %v", err)
	}
}

// TestEmulatedStorageVersion checks that migrations, taint rules and mutating admission policies are
// stored in the versions in which 1.36 stores them, and that a server that emulates nothing reads them.
func TestEmulatedStorageVersion(t *testing.T) {
	turned := features.Turned{features.StorageVersionMigrator: true}
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		c.Features.Emulated, c.Features.Turned = 36, turned
		c.RuntimeConfig = map[string]bool{"storagemigration.k8s.io/v1beta1": true,
			"resource.k8s.io/v1beta2/devicetaintrules": true}
	}})
	ctx := t.Context()
	m := &storagemigrationv1beta1.StorageVersionMigration{ObjectMeta: metav1.ObjectMeta{Name: "m"},
		Spec: storagemigrationv1beta1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Resource: "secrets"}}}
	client := s.Client.StoragemigrationV1beta1().StorageVersionMigrations()
	m, err := client.Create(ctx, m, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Client.StoragemigrationV1().StorageVersionMigrations().List(ctx, metav1.ListOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("v1: %v", err)
	}
	m.Labels = map[string]string{"a": "b"}
	if m, err = client.Update(ctx, m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	rule := &resourcev1beta2.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "r"},
		Spec: resourcev1beta2.DeviceTaintRuleSpec{Taint: resourcev1beta2.DeviceTaint{Key: "example.com/a",
			Effect: resourcev1beta2.DeviceTaintEffectNoSchedule}}}
	if _, err = s.Client.ResourceV1beta2().DeviceTaintRules().Create(ctx, rule, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"},
		Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "p.example.com"}}
	bindings := s.Client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	if _, err = bindings.Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stored := func(resource, version string) {
		t.Helper()
		items, err := s.KV.Range(ctx, kv.RangeOptions{Prefix: "/registry/" + resource + "/"})
		if err != nil || len(items.Items) != 1 || !strings.Contains(string(items.Items[0].Value), version+"\x12") {
			t.Errorf("stored: %v, %v, want %s", items, err, version)
		}
	}
	stored("storageversionmigrations", "storagemigration.k8s.io/v1beta1")
	stored("devicetaintrules", "resource.k8s.io/v1beta2")
	stored("mutatingadmissionpolicybindings", "admissionregistration.k8s.io/v1beta1")
	own := testserver.Start(t, testserver.Options{KV: s.KV, Dir: s.Dir})
	read, err := own.Client.StoragemigrationV1().StorageVersionMigrations().Get(ctx, "m", metav1.GetOptions{})
	if err != nil || read.Spec.Resource.Resource != "secrets" || read.Labels["a"] != "b" || read.UID != m.UID {
		t.Errorf("without emulation: %v, %v", read, err)
	}
	readRule, err := own.Client.ResourceV1().DeviceTaintRules().Get(ctx, "r", metav1.GetOptions{})
	if err != nil || readRule.Spec.Taint.Key != "example.com/a" {
		t.Errorf("without emulation: %v, %v", readRule, err)
	}
	bindings = own.Client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	if binding, err = bindings.Get(ctx, "b", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	binding.Labels = map[string]string{"a": "b"}
	if binding, err = bindings.Update(ctx, binding, metav1.UpdateOptions{}); err != nil ||
		binding.Spec.PolicyName != "p.example.com" {
		t.Errorf("without emulation: %v, %v", binding, err)
	}
	stored("mutatingadmissionpolicybindings", "admissionregistration.k8s.io/v1")
}

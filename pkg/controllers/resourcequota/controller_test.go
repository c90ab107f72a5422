// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

func list(pairs ...string) v1.ResourceList {
	out := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func TestStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		hard, was, counted, want v1.ResourceList
	}{
		"new":                  {list("pods", "5"), nil, list("pods", "2"), list("pods", "2")},
		"not limited any more": {list("pods", "5"), list("pods", "2", "secrets", "1"), list("pods", "3"), list("pods", "3")},
		"could not be counted": {list("pods", "5", "secrets", "4"), list("pods", "2", "secrets", "1"),
			list("pods", "3"), list("pods", "3", "secrets", "1")},
		"unknown resource": {list("hats", "5"), nil, nil, list()},
	} {
		t.Run(name, func(t *testing.T) {
			q := &v1.ResourceQuota{Spec: v1.ResourceQuotaSpec{Hard: tc.hard}, Status: v1.ResourceQuotaStatus{Used: tc.was}}
			got := status(q, tc.counted)
			if !quotav1.Equals(got.Hard, tc.hard) || !quotav1.Equals(got.Used, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

type cluster struct {
	*testing.T
	client kubernetes.Interface
}

func start(t *testing.T) cluster {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	controllertest.RunAs(t, s, "resourcequota-controller", controller.Options{}, New)
	c := cluster{t, s.Client}
	return c
}

func (c cluster) quota(name string, spec v1.ResourceQuotaSpec) {
	c.Helper()
	q := &v1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if _, err := c.client.CoreV1().ResourceQuotas("default").Create(c.Context(), q, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c cluster) used(name string, want v1.ResourceList) {
	c.Helper()
	controllertest.Eventually(c.T, "usage of "+name, func(ctx context.Context) (any, bool) {
		q, err := c.client.CoreV1().ResourceQuotas("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err, false
		}
		return q.Status, equality.Semantic.DeepEqual(q.Status.Hard, q.Spec.Hard) && quotav1.Equals(q.Status.Used, want)
	})
}

func (c cluster) pod(name string, change func(*v1.Pod)) {
	c.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{Containers: []v1.Container{{
		Name: "c", Image: "i",
		Resources: v1.ResourceRequirements{Requests: list("cpu", "100m", "memory", "1Mi"),
			Limits: list("cpu", "1", "memory", "1Mi")},
	}}}}
	change(pod)
	if _, err := c.client.CoreV1().Pods("default").Create(c.Context(), pod, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func TestPods(t *testing.T) {
	c := start(t)
	core := c.client.CoreV1()
	c.pod("before", func(*v1.Pod) {})
	c.quota("compute", v1.ResourceQuotaSpec{Hard: list("pods", "2", "requests.cpu", "1", "limits.memory",
		"10Mi", "count/pods", "5")})
	c.quota("bounded", v1.ResourceQuotaSpec{Hard: list("pods", "1"),
		Scopes: []v1.ResourceQuotaScope{v1.ResourceQuotaScopeTerminating}})
	c.used("compute", list("pods", "1", "requests.cpu", "100m", "limits.memory", "1Mi", "count/pods", "1"))
	c.used("bounded", list("pods", "0"))
	deadline := int64(100)
	c.pod("bounded", func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = &deadline })
	c.used("compute", list("pods", "2", "requests.cpu", "200m", "limits.memory", "2Mi", "count/pods", "2"))
	c.used("bounded", list("pods", "1"))

	third := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "third"}, Spec: v1.PodSpec{Containers: []v1.Container{{
		Name: "c", Image: "i", Resources: v1.ResourceRequirements{Requests: list("cpu", "1m"), Limits: list("memory", "1Mi")},
	}}}}
	if _, err := core.Pods("default").Create(t.Context(), third, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("a pod beyond the quota: %v", err)
	}

	ended, err := core.Pods("default").Get(t.Context(), "before", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ended.Status.Phase = v1.PodSucceeded
	if _, err := core.Pods("default").UpdateStatus(t.Context(), ended, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.used("compute", list("pods", "1", "requests.cpu", "100m", "limits.memory", "1Mi", "count/pods", "2"))
	zero := int64(0)
	for _, name := range []string{"before", "bounded"} {
		if err := core.Pods("default").Delete(t.Context(), name,
			metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
			t.Fatal(err)
		}
	}
	c.used("compute", list("pods", "0", "requests.cpu", "0", "limits.memory", "0", "count/pods", "0"))
	c.used("bounded", list("pods", "0"))
}

// TestUsedTooLow checks that the controller corrects a late write of less usage than it counts, though no
// object changes after it. Otherwise admission would accept too many objects.
func TestUsedTooLow(t *testing.T) {
	c := start(t)
	quotas := c.client.CoreV1().ResourceQuotas("default")
	c.pod("p", func(*v1.Pod) {})
	c.quota("q", v1.ResourceQuotaSpec{Hard: list("pods", "2")})
	c.used("q", list("pods", "1"))
	q, err := quotas.Get(t.Context(), "q", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	q.Status.Used = list("pods", "0")
	if _, err := quotas.UpdateStatus(t.Context(), q, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.used("q", list("pods", "1"))
}

func TestObjects(t *testing.T) {
	c := start(t)
	core := c.client.CoreV1()
	c.quota("objects", v1.ResourceQuotaSpec{Hard: list("configmaps", "9", "count/deployments.apps", "1", "services", "2",
		"services.nodeports", "3", "persistentvolumeclaims", "1", "gold.storageclass.storage.k8s.io/requests.storage", "5Gi",
		"resourcequotas", "1", "count/widgets.example.com", "1", "count/nodes", "1")})
	none := list("configmaps", "0", "count/deployments.apps", "0", "services", "0", "services.nodeports", "0",
		"persistentvolumeclaims", "0", "gold.storageclass.storage.k8s.io/requests.storage", "0", "resourcequotas", "1")
	// The service "kubernetes" exists in this namespace and is counted too.
	base := quotav1.Add(none, list("services", "1"))
	c.used("objects", base)

	labels := map[string]string{"a": "b"}
	class := "gold"
	create := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	create(core.ConfigMaps("default").Create(t.Context(),
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}))
	create(core.Services("default").Create(t.Context(), &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "x"},
		Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeNodePort, Ports: []v1.ServicePort{{Port: 1}},
		}}, metav1.CreateOptions{}))
	create(core.PersistentVolumeClaims("default").Create(t.Context(),
		&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: list("storage", "1Gi")},
		}}, metav1.CreateOptions{}))
	create(c.client.AppsV1().Deployments("default").Create(t.Context(),
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}}},
		}}, metav1.CreateOptions{}))
	c.used("objects", quotav1.Add(base, list("configmaps", "1", "count/deployments.apps", "1", "services", "1",
		"services.nodeports", "1",
		"persistentvolumeclaims", "1", "gold.storageclass.storage.k8s.io/requests.storage", "1Gi")))
	for _, err := range []error{
		core.ConfigMaps("default").Delete(t.Context(), "x", metav1.DeleteOptions{}),
		core.Services("default").Delete(t.Context(), "x", metav1.DeleteOptions{}),
		c.client.AppsV1().Deployments("default").Delete(t.Context(), "x", metav1.DeleteOptions{}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	// The claim still exists, because of a finalizer that another controller would remove.
	c.used("objects", quotav1.Add(base,
		list("persistentvolumeclaims", "1", "gold.storageclass.storage.k8s.io/requests.storage", "1Gi")))
}

// TestDevices checks that ResourceClaims are counted by device class, are rejected if they exceed
// the quota's limit, and are not counted any more after they are deleted.
func TestDevices(t *testing.T) {
	c := start(t)
	const gold = "gold.deviceclass.resource.k8s.io/devices"
	c.quota("devices", v1.ResourceQuotaSpec{Hard: list(gold, "3", "count/resourceclaims.resource.k8s.io", "5")})
	c.used("devices", list(gold, "0", "count/resourceclaims.resource.k8s.io", "0"))
	claims := c.client.ResourceV1().ResourceClaims("default")
	create := func(name string) error {
		_, err := claims.Create(t.Context(),
			&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceClaimSpec{
				Devices: resourcev1.DeviceClaim{
					Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
						DeviceClassName: "gold", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 2,
					}}}},
			}}, metav1.CreateOptions{})
		return err
	}
	if err := create("a"); err != nil {
		t.Fatal(err)
	}
	c.used("devices", list(gold, "2", "count/resourceclaims.resource.k8s.io", "1"))
	if err := create("b"); !apierrors.IsForbidden(err) {
		t.Errorf("a claim beyond the quota: %v", err)
	}
	if err := claims.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.used("devices", list(gold, "0", "count/resourceclaims.resource.k8s.io", "0"))
}

// TestExtendedResources checks that devices are charged under the name of the extended resource of
// their class, whether a pod or a claim requests them, and that requests that exceed the limit are
// rejected.
func TestExtendedResources(t *testing.T) {
	c := start(t)
	name, resources := "example.com/gold", c.client.ResourceV1()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"},
		Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: &name}}
	if _, err := resources.DeviceClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const explicit, implicit = "requests.example.com/gold", "requests.deviceclass.resource.kubernetes.io/gold"
	c.quota("gold", v1.ResourceQuotaSpec{Hard: list(explicit, "3", implicit, "3")})
	c.used("gold", list(explicit, "0", implicit, "0"))
	create := func(name string, n int64) error {
		_, err := resources.ResourceClaims("default").Create(t.Context(),
			&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceClaimSpec{
				Devices: resourcev1.DeviceClaim{
					Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
						DeviceClassName: "gold", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: n,
					}}}},
			}}, metav1.CreateOptions{})
		return err
	}
	controllertest.Eventually(t, "a claim beyond the quota is refused, once the class is known",
		func(ctx context.Context) (any, bool) {
			err := create("beyond", 4)
			if err == nil {
				err = resources.ResourceClaims("default").Delete(ctx, "beyond", metav1.DeleteOptions{})
			}
			return err, apierrors.IsForbidden(err)
		})
	if err := create("a", 1); err != nil {
		t.Fatal(err)
	}
	c.used("gold", list(explicit, "1", implicit, "1"))
	both := list(name, "1", "deviceclass.resource.kubernetes.io/gold", "2")
	if _, err := c.client.CoreV1().Pods("default").Create(t.Context(),
		&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1.PodSpec{Containers: []v1.Container{
			{Name: "c", Image: "i", Resources: v1.ResourceRequirements{Requests: both, Limits: both}},
		}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.used("gold", list(explicit, "2", implicit, "3"))
	if err := create("b", 1); !apierrors.IsForbidden(err) {
		t.Errorf("a claim beyond the quota: %v", err)
	}
}

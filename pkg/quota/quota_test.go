// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/api/clock"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func TestPodUsage(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	for name, tc := range map[string]struct {
		pod  corev1.Pod
		want corev1.ResourceList
	}{
		"requests and limits": {
			corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
				Requests: list("cpu", "100m", "hugepages-2Mi", "4Mi", "example.com/gpu", "2"), Limits: list("memory", "1Gi"),
			}}}}},
			list("count/pods", "1", "pods", "1", "cpu", "100m", "requests.cpu", "100m", "limits.memory", "1Gi",
				"hugepages-2Mi", "4Mi", "requests.hugepages-2Mi", "4Mi", "requests.example.com/gpu", "2"),
		},
		"sidecars add up": {
			corev1.Pod{Spec: corev1.PodSpec{
				InitContainers: []corev1.Container{
					{RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: list("cpu", "1")}}},
				Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list("cpu", "2")}}},
			}},
			list("count/pods", "1", "pods", "1", "cpu", "3", "requests.cpu", "3"),
		},
		"ended": {
			corev1.Pod{
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list("cpu", "2")}}}},
				Status: corev1.PodStatus{Phase: corev1.PodSucceeded},
			},
			list("count/pods", "1"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newPodEvaluator(clock.Real()).Usage(&tc.pod)
			if err != nil || !quotav1.Equals(got, tc.want) {
				t.Errorf("got %v, %v\nwant %v", got, err, tc.want)
			}
		})
	}
}

func TestPodConstraints(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "a", Resources: corev1.ResourceRequirements{Requests: list("cpu", "1")}}, {Name: "b"},
	}}}
	err := newPodEvaluator(clock.Real()).Constraints([]corev1.ResourceName{"cpu", "limits.memory", "pods",
		"ephemeral-storage"}, pod)
	want := "must specify cpu for: b; limits.memory for: a,b"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestClaimUsage(t *testing.T) {
	class := "fast"
	got, err := newClaimEvaluator().Usage(&corev1.PersistentVolumeClaim{
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			Resources:        corev1.VolumeResourceRequirements{Requests: list("storage", "1Gi")},
		},
		Status: corev1.PersistentVolumeClaimStatus{AllocatedResources: list("storage", "2Gi")},
	})
	want := list("count/persistentvolumeclaims", "1", "persistentvolumeclaims", "1", "requests.storage", "2Gi",
		"fast.storageclass.storage.k8s.io/persistentvolumeclaims", "1",
		"fast.storageclass.storage.k8s.io/requests.storage", "2Gi")
	if err != nil || !quotav1.Equals(got, want) {
		t.Errorf("got %v, %v\nwant %v", got, err, want)
	}
}

// TestDeviceUsage checks that a claim is charged for the maximum number of devices that each of its
// requests can get.
func TestDeviceUsage(t *testing.T) {
	exactly := func(class string, mode resourcev1.DeviceAllocationMode, n int64) resourcev1.DeviceRequest {
		return resourcev1.DeviceRequest{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class,
			AllocationMode: mode, Count: n}}
	}
	sub := func(class string, mode resourcev1.DeviceAllocationMode, n int64) resourcev1.DeviceSubRequest {
		return resourcev1.DeviceSubRequest{DeviceClassName: class, AllocationMode: mode, Count: n}
	}
	const n, all = resourcev1.DeviceAllocationModeExactCount, resourcev1.DeviceAllocationModeAll
	claim := &resourcev1.ResourceClaim{
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			exactly("gold", n, 2), exactly("gold", n, 1), exactly("tin", all, 0), exactly("new", "Unheard", 7), {},
			{FirstAvailable: []resourcev1.DeviceSubRequest{sub("gold", n, 1), sub("gold", n, 4), sub("wood", n, 3)}},
		}}}}
	e := newDeviceClaimEvaluator(newDeviceSources(nil, nil), nil)
	got, err := e.Usage(claim)
	const per = ".deviceclass.resource.k8s.io/devices"
	want := list("count/resourceclaims.resource.k8s.io", "1", "gold"+per, "7", "wood"+per, "3", "tin"+per, "32",
		"new"+per, "0",
		classRequestPrefix+"gold", "7", classRequestPrefix+"wood", "3", classRequestPrefix+"tin", "32")
	if err != nil || !quotav1.Equals(got, want) {
		t.Errorf("got %v, %v\nwant %v", got, err, want)
	}
	names := e.MatchingResources([]corev1.ResourceName{"pods", "gold" + per,
		"count/resourceclaims.resource.k8s.io", "count/pods"})
	if !slices.Equal(names, []corev1.ResourceName{"gold" + per, "count/resourceclaims.resource.k8s.io"}) {
		t.Errorf("counts for %v", names)
	}
}

const classRequestPrefix = "requests." + resourcev1.ResourceDeviceClassPrefix

// newDeviceSources returns sources with a device class "gpu", which provides the extended resource
// example.com/gpu.
func newDeviceSources(pod *corev1.Pod, claims []*resourcev1.ResourceClaim) DeviceSources {
	classes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	name := "example.com/gpu"
	_ = classes.Add(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"},
		Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: &name}})
	return DeviceSources{
		Classes: resourcelisters.NewDeviceClassLister(classes),
		Pod: func(_, name string) (*corev1.Pod, error) {
			if pod == nil || pod.Name != name {
				return nil, errors.New("no such pod")
			}
			return pod, nil
		},
		Claims: func(string) ([]*resourcev1.ResourceClaim, error) { return claims, nil },
	}
}

// TestExtendedUsage checks that devices are also charged to the extended resource of their class,
// and that devices for which a pod was charged are not charged again.
func TestExtendedUsage(t *testing.T) {
	const gpu, per = "example.com/gpu", ".deviceclass.resource.k8s.io/devices"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Resources: corev1.ResourceRequirements{Requests: list(gpu, "2", resourcev1.ResourceDeviceClassPrefix+"gpu", "1")}},
		}}}
	claim := func(name string) *resourcev1.ResourceClaim {
		return &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, UID: types.UID(name),
				Annotations:     map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))},
			},
			Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
				{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu",
					AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 3}},
			}}},
		}
	}
	named, other := pod.DeepCopy(), pod.DeepCopy()
	named.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "b"}
	other.UID = "later"
	whole := list("count/resourceclaims.resource.k8s.io", "1", "gpu"+per, "3", "requests."+gpu, "3",
		classRequestPrefix+"gpu", "3")
	rest := list("count/resourceclaims.resource.k8s.io", "1", "gpu"+per, "3", "requests."+gpu, "1",
		classRequestPrefix+"gpu", "2")
	plain := claim("b")
	plain.Annotations = nil
	early, made := claim("c"), claim("b")
	early.CreationTimestamp, made.CreationTimestamp = metav1.Unix(1, 0), metav1.Unix(2, 0)
	for name, tc := range map[string]struct {
		claim  *resourcev1.ResourceClaim
		pod    *corev1.Pod
		others []*resourcev1.ResourceClaim
		want   corev1.ResourceList
	}{
		"created for the pod":   {claim("b"), named, nil, rest},
		"about to be created":   {claim(""), pod, nil, rest},
		"the pod names another": {claim("a"), named, nil, whole},
		"another exists":        {claim(""), pod, []*resourcev1.ResourceClaim{claim("a")}, whole},
		"an older one exists":   {made, pod, []*resourcev1.ResourceClaim{made, early}, whole},
		"a newer one exists":    {early, pod, []*resourcev1.ResourceClaim{made, early}, rest},
		"of an earlier pod":     {claim("b"), other, nil, whole},
		"no pod":                {claim("b"), nil, nil, whole},
		"not for extended":      {plain, named, nil, whole},
	} {
		t.Run(name, func(t *testing.T) {
			e := newDeviceClaimEvaluator(newDeviceSources(tc.pod, tc.others), newPodEvaluator(clock.Real()).usage)
			got, err := e.Usage(tc.claim)
			if err != nil || !quotav1.Equals(got, tc.want) {
				t.Errorf("got %v, %v\nwant %v", got, err, tc.want)
			}
		})
	}
	e := newDeviceClaimEvaluator(newDeviceSources(nil, nil), nil)
	names := []corev1.ResourceName{"requests." + gpu, corev1.ResourceName(classRequestPrefix + "gpu")}
	if got := e.MatchingResources(append(names, "requests.cpu", gpu,
		corev1.ResourceName(classRequestPrefix+"none"), "requests.example.com/none")); !slices.Equal(got, names) {
		t.Errorf("counts for %v", got)
	}
	if got := newPodEvaluator(clock.Real()).MatchingResources(names); !slices.Equal(got, names) {
		t.Errorf("pods count for %v", got)
	}
}

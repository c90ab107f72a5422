// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"

	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

// alpha serves version v1alpha1 of the API, which some agents still use. It lists only the devices
// of main containers.
type alpha struct {
	v1alpha1.UnimplementedPodResourcesListerServer
	source Source
}

// List returns the devices that are assigned to each pod.
func (a alpha) List(context.Context, *v1alpha1.ListPodResourcesRequest) (*v1alpha1.ListPodResourcesResponse, error) {
	out := &v1alpha1.ListPodResourcesResponse{}
	for _, pod := range a.source.Pods() {
		one := &v1alpha1.PodResources{Name: pod.Name, Namespace: pod.Namespace}
		for i := range pod.Spec.Containers {
			c := &v1alpha1.ContainerResources{Name: pod.Spec.Containers[i].Name}
			for _, d := range a.source.Container(pod, &pod.Spec.Containers[i]).GetDevices() {
				c.Devices = append(c.Devices, &v1alpha1.ContainerDevices{ResourceName: d.GetResourceName(),
					DeviceIds: d.GetDeviceIds()})
			}
			one.Containers = append(one.Containers, c)
		}
		out.PodResources = append(out.PodResources, one)
	}
	return out, nil
}

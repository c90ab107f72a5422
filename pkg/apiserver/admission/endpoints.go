// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
)

// restricted is the subresource for which the right to create allows any address.
const restricted = "restricted"

// endpointOwnership rejects endpoint addresses that are not those of pods in the same namespace. A
// user with the right to create the subresource "restricted" of endpoints or endpointslices may use
// any address: controllers do so for pods that they have checked, and administrators for servers
// outside the cluster.
//
// Otherwise, a user who may write endpoints could make any component that forwards to services (an
// ingress controller, a load balancer, the API server's own proxy) connect to pods of other
// namespaces, in spite of their network policies.
type endpointOwnership struct {
	*admission.Handler
	authz  authorizer.Authorizer
	client kubernetes.Interface
}

func newEndpointOwnership(deps Deps) (admission.Interface, error) {
	return &endpointOwnership{admission.NewHandler(admission.Create, admission.Update), deps.Authorizer, deps.Client}, nil
}

// Validate rejects added addresses that are not those of the namespace's pods.
func (p *endpointOwnership) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	fresh := endpointAddresses(a.GetObject()).Difference(endpointAddresses(a.GetOldObject()))
	if fresh.Len() == 0 {
		return nil
	}
	r := a.GetResource()
	decision, _, err := p.authz.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "create", APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource,
		Subresource: restricted,
		Name:        a.GetName(), Namespace: a.GetNamespace(), ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	own, listErr := p.podAddresses(ctx, a.GetNamespace())
	if listErr != nil {
		return admission.NewForbidden(a, errors.Join(err, listErr))
	}
	if foreign := fresh.Difference(own); foreign.Len() > 0 {
		return admission.NewForbidden(a,
			fmt.Errorf("%s is not the address of a pod in namespace %q; the right to create %s/%s is needed",
				sets.List(foreign)[0], a.GetNamespace(), r.Resource, restricted))
	}
	return nil
}

// podAddresses returns the addresses of the namespace's pods. It reads the store and no informer:
// endpoints may be written as soon as a pod has an address.
func (p *endpointOwnership) podAddresses(ctx context.Context, namespace string) (sets.Set[string], error) {
	pods, err := p.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("pods of the namespace: %w", err)
	}
	out := sets.New[string]()
	for i := range pods.Items {
		pod := &pods.Items[i]
		switch {
		case pod.Spec.HostNetwork:
			continue // its address is the node's, which other pods share
		case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
			continue // the address in its status may belong to another pod by now
		}
		for _, ip := range pod.Status.PodIPs {
			out.Insert(ip.IP)
		}
	}
	return out, nil
}

// endpointAddresses returns the addresses of an Endpoints or an EndpointSlice, and none for other
// objects.
func endpointAddresses(obj runtime.Object) sets.Set[string] {
	out := sets.New[string]()
	switch o := obj.(type) {
	case *corev1.Endpoints: // the type is deprecated but still served
		for _, s := range o.Subsets {
			// addresses that are not ready receive traffic too
			for _, list := range [][]corev1.EndpointAddress{s.Addresses, s.NotReadyAddresses} {
				for _, at := range list {
					out.Insert(at.IP)
				}
			}
		}
	case *discoveryv1.EndpointSlice:
		for _, e := range o.Endpoints {
			out.Insert(e.Addresses...)
		}
	}
	return out
}

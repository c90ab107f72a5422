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

// restricted is a subresource of endpoints and endpointslices. A user with the right to create it
// may write endpoints with any address.
const restricted = "restricted"

// endpointOwnership rejects endpoint addresses that are not addresses of pods in the same
// namespace. Users with the right to create the subresource "restricted" of endpoints or
// endpointslices may write any address. Controllers have this right, because they check pods
// themselves, and so have administrators, for servers outside the cluster.
//
// Without this plugin, a user who may write endpoints could make a component that forwards to
// services (an ingress controller, a load balancer, the proxy of the API server) connect to pods of
// other namespaces, although network policies forbid it to the user's pods.
type endpointOwnership struct {
	*admission.Handler
	authz  authorizer.UnconditionalAuthorizer
	client kubernetes.Interface
}

func newEndpointOwnership(deps Deps) (admission.Interface, error) {
	return &endpointOwnership{admission.NewHandler(admission.Create, admission.Update), deps.Authorizer, deps.Client}, nil
}

// Validate rejects a write that adds addresses which are not those of pods in the namespace.
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

// podAddresses returns the addresses of pods in a namespace. It reads from the store and not from
// an informer, because endpoints may be written right after a pod gets its address.
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
			continue // pods on the host network have the address of their node
		case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
			continue // the address of a finished pod may by now belong to another pod
		}
		for _, ip := range pod.Status.PodIPs {
			out.Insert(ip.IP)
		}
	}
	return out, nil
}

// endpointAddresses returns the addresses in obj if it is an Endpoints or EndpointSlice.
func endpointAddresses(obj runtime.Object) sets.Set[string] {
	out := sets.New[string]()
	switch o := obj.(type) {
	case *corev1.Endpoints: // deprecated, but served
		for _, s := range o.Subsets {
			// Include addresses that are not ready, because they can get traffic too.
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

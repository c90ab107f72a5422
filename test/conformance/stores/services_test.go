// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// perServer is the number of Services that each server allocates addresses and ports for.
const perServer = 12

// allocations checks that the servers of a store do not give an address or port to two Services.
type allocations struct {
	services map[string]corev1.Service // by name
	created  int
}

// newAllocations returns allocations without Services.
func newAllocations() *allocations { return &allocations{services: map[string]corev1.Service{}} }

// check lets a server allocate addresses and ports, reject those in use, and use free ones again.
func (a *allocations) check(t *testing.T, v *server) {
	t.Helper()
	a.list(t, v)
	for range perServer {
		s, err := a.create(t, v, "", 0)
		if err != nil {
			t.Errorf("%s: create a Service: %v", v.name, err)
			continue
		}
		a.add(t, v, *s)
	}
	for _, s := range a.services {
		_, err := a.create(t, v, s.Spec.ClusterIP, 0)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "provided IP is already allocated") {
			t.Errorf("%s: create a Service with the address of %s: %v", v.name, s.Name, err)
		}
		_, err = a.create(t, v, "", s.Spec.Ports[0].NodePort)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "provided port is already allocated") {
			t.Errorf("%s: create a Service with the port of %s: %v", v.name, s.Name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.services))[:perServer/2] { // some are of other servers
		s := a.services[name]
		if err := v.client.CoreV1().Services(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("%s: delete %s: %v", v.name, name, err)
		}
		delete(a.services, name)
		next, err := a.create(t, v, s.Spec.ClusterIP, s.Spec.Ports[0].NodePort)
		if err != nil {
			t.Errorf("%s: create a Service with a free address and port: %v", v.name, err)
		} else {
			a.add(t, v, *next)
		}
	}
	a.list(t, v)
	a.repairs(t, v)
}

// create creates a Service with an address and a port, which may be empty.
func (a *allocations) create(t *testing.T, v *server, ip string, port int32) (*corev1.Service, error) {
	t.Helper()
	a.created++
	return v.client.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("allocated-%d", a.created)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: ip,
			Ports: []corev1.ServicePort{{Port: 80, NodePort: port}},
		},
	}, metav1.CreateOptions{})
}

// add adds a new Service. Its address and port must not be in use.
func (a *allocations) add(t *testing.T, v *server, s corev1.Service) {
	t.Helper()
	for _, other := range a.services {
		if s.Spec.ClusterIP == other.Spec.ClusterIP {
			t.Errorf("%s: %s has the address of %s: %s", v.name, s.Name, other.Name, s.Spec.ClusterIP)
		}
		if s.Spec.Ports[0].NodePort == other.Spec.Ports[0].NodePort {
			t.Errorf("%s: %s has the port of %s: %d", v.name, s.Name, other.Name, s.Spec.Ports[0].NodePort)
		}
	}
	a.services[s.Name] = s
}

// list checks that a server has all Services, and exactly one IPAddress for each.
func (a *allocations) list(t *testing.T, v *server) {
	t.Helper()
	services, err := v.client.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("%s: list Services: %v", v.name, err)
	}
	owners := map[string]string{}
	found := 0
	for _, s := range services.Items {
		if s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone {
			owners[s.Spec.ClusterIP] = s.Namespace + "/" + s.Name
		}
		if want, ok := a.services[s.Name]; ok {
			found++
			if s.Spec.ClusterIP != want.Spec.ClusterIP || s.Spec.Ports[0].NodePort != want.Spec.Ports[0].NodePort {
				t.Errorf("%s: address or port of %s has changed: %v, had %v", v.name, s.Name, s.Spec, want.Spec)
			}
		}
	}
	if found != len(a.services) {
		t.Errorf("%s: has %d of %d Services", v.name, found, len(a.services))
	}
	addresses, err := v.client.NetworkingV1().IPAddresses().List(t.Context(), metav1.ListOptions{
		LabelSelector: "ipaddress.kubernetes.io/managed-by=ipallocator.k8s.io",
	})
	if err != nil {
		t.Fatalf("%s: list IPAddresses: %v", v.name, err)
	}
	for _, address := range addresses.Items {
		if have := address.Spec.ParentRef.Namespace + "/" + address.Spec.ParentRef.Name; owners[address.Name] != have {
			t.Errorf("%s: IPAddress %s belongs to %q, not to Service %q", v.name, address.Name, have, owners[address.Name])
		}
		delete(owners, address.Name)
	}
	for address, owner := range owners {
		t.Errorf("%s: Service %s has no IPAddress %s", v.name, owner, address)
	}
}

// repairs checks that no server has had to repair an allocation.
func (a *allocations) repairs(t *testing.T, v *server) {
	t.Helper()
	events, err := v.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("%s: list Events: %v", v.name, err)
	}
	for _, e := range events.Items {
		if strings.Contains(e.Source.Component+e.ReportingController, "repair") {
			t.Errorf("%s: an allocation was repaired: %s %s: %s", v.name, e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}

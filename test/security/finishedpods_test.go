// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/config"
)

// TestAddressesOfFinishedPods uses the IP address in the status of a finished pod. By then a pod of
// another namespace may have this address. A tenant must not reach that pod with endpoints or with
// the API server's proxies.
func TestAddressesOfFinishedPods(t *testing.T) {
	// Deny connections to the address, because the test must not send packets to it.
	lab := newLab(t, func(c *config.Config) { c.Transport.Deny = append(c.Transport.Deny, "203.0.113.0/24") })
	lab.namespace(t, "a")
	lab.namespace(t, "b")
	const four, six = "203.0.113.9", "2001:db8::9"
	for _, phase := range []v1.PodPhase{v1.PodSucceeded, v1.PodFailed} {
		name := strings.ToLower(string(phase))
		lab.pod(t, "a", name, "n0", four, six)
		pod, err := lab.Client.CoreV1().Pods("a").Get(t.Context(), name, metav1.GetOptions{})
		check(t, err)
		pod.Status.Phase = phase
		_, err = lab.Client.CoreV1().Pods("a").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
		check(t, err)
	}
	lab.pod(t, "b", "victim", "n0", four, six)
	lab.pod(t, "a", "own", "n0", "203.0.113.10")
	eve := lab.user(t, "eve", "a", rbacv1.PolicyRule{APIGroups: []string{"", "discovery.k8s.io"},
		Resources: []string{"endpoints", "endpointslices", "pods/proxy", "services/proxy", "services"}, Verbs: []string{"*"}})
	slices := eve.DiscoveryV1().EndpointSlices("a")
	allowed(t, func(ctx context.Context) error {
		_, err := slices.Create(ctx, slice("own", "203.0.113.10"), metav1.CreateOptions{})
		return err
	})
	_, err := slices.Create(t.Context(), slice("four", four), metav1.CreateOptions{})
	refused(t, "a slice", err)
	other := slice("six", six)
	other.AddressType = discoveryv1.AddressTypeIPv6
	_, err = slices.Create(t.Context(), other, metav1.CreateOptions{})
	refused(t, "a slice of the second address", err)
	// Endpoints is deprecated, but the API server still accepts it.
	_, err = eve.CoreV1().Endpoints("a").Create(t.Context(),
		&v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Subsets: []v1.EndpointSubset{{
			Addresses: []v1.EndpointAddress{
				{IP: four, TargetRef: &v1.ObjectReference{Kind: "Pod", Namespace: "a", Name: "failed"}}},
			Ports: []v1.EndpointPort{{Port: 80}}}}}, metav1.CreateOptions{})
	refused(t, "endpoints", err)

	config := lab.UserConfig(t, "eve")
	for _, name := range []string{"succeeded", "failed"} {
		if code, _, body := get(t, config, "/api/v1/namespaces/a/pods/http:"+name+
			":80/proxy/"); code != http.StatusBadRequest || !strings.Contains(body, "has finished") {
			t.Errorf("the proxy of the pod %s: %d %s", name, code, body)
		}
	}
	// Create endpoints with administrator rights: one that could have been written while the pod
	// ran, and one that refers to a pod of another namespace.
	for service, target := range map[string]v1.ObjectReference{
		"finished": {Kind: "Pod", Namespace: "a", Name: "succeeded"},
		"foreign":  {Kind: "Pod", Namespace: "b", Name: "victim"},
	} {
		_, err := lab.Client.CoreV1().Services("a").Create(t.Context(),
			&v1.Service{ObjectMeta: metav1.ObjectMeta{Name: service},
				Spec: v1.ServiceSpec{Ports: []v1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
		check(t, err)
		// Endpoints is deprecated, but the API server still accepts it.
		_, err = lab.Client.CoreV1().Endpoints("a").Create(t.Context(),
			&v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: service}, Subsets: []v1.EndpointSubset{{
				Addresses: []v1.EndpointAddress{{IP: four, TargetRef: &target}},
				Ports:     []v1.EndpointPort{{Port: 80}}}}}, metav1.CreateOptions{})
		check(t, err)
		if code, _, body := get(t, config, "/api/v1/namespaces/a/services/http:"+service+
			":80/proxy/"); code != http.StatusServiceUnavailable || !strings.Contains(body, "no endpoints available") {
			t.Errorf("the proxy of the service %s: %d %s", service, code, body)
		}
	}
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kinds of frontends of the services in these tests.
const (
	toVIP, toExternal, toBalancer, toNodePort = "cluster IP", "external IP", "load balancer", "node port"
)

// staleCase is a change by which a UDP service, or a part of it, is removed.
type staleCase struct {
	reason string
	spec   func(*corev1.ServiceSpec)
	change func(*staleService)
	// end are the kinds of frontends at which flows to the pod a must end. Flows at other frontends
	// must stay. nil means all kinds.
	end []string
	// follow reports whether clients whose flows end must reach the pod b.
	follow bool
	// mayEnd are the kinds of frontends whose flows may end or stay, because the change removes the
	// frontends for a moment.
	mayEnd []string
	// families are the IP families whose flows end. nil means both.
	families []string
}

// staleService is a service under test. At first the pod a is its only endpoint; a case may make
// the pod b an endpoint too.
type staleService struct {
	*cluster
	svc      *corev1.Service
	a, b     *pod
	balancer []string
}

// keep returns a value of staleCase.end for a case in which no flow ends.
func keep() []string { return []string{} }

func localInternally(s *corev1.ServiceSpec) {
	local := corev1.ServiceInternalTrafficPolicyLocal
	s.InternalTrafficPolicy = &local
}

func staleCases() map[string]staleCase {
	port := func(f func(*corev1.ServicePort)) func(*staleService) {
		return func(s *staleService) { s.update(func(spec *corev1.ServiceSpec) { f(&spec.Ports[0]) }) }
	}
	return map[string]staleCase{
		"LastEndpointRemoved": {
			reason: "a service without endpoints rejects packets, also those of old flows",
			change: func(s *staleService) { s.back() },
		},
		"EndpointReplaced": {
			reason: "flows follow the service",
			change: func(s *staleService) { s.back(on("n1", s.b)) }, follow: true,
		},
		"NotReady": {
			reason: "an endpoint that does not serve gets nothing",
			change: func(s *staleService) { s.back(endpoint{pod: s.a, node: "n1", notReady: true}) },
		},
		"TerminatingServes": {
			reason: "a terminating endpoint that serves keeps its flows", end: keep(),
			change: func(s *staleService) { s.back(endpoint{pod: s.a, node: "n1", terminating: true}, on("n1", s.b)) },
		},
		"TerminatingDoesNotServe": {
			reason: "an endpoint that terminates and does not serve gets nothing",
			change: func(s *staleService) { s.back(endpoint{pod: s.a, node: "n1", terminating: true, notReady: true}) },
		},
		"SlicesDeleted": {
			reason: "no slice is no endpoint",
			change: func(s *staleService) {
				for _, f := range []string{"ipv4", "ipv6"} {
					s.must(s.client.DiscoveryV1().EndpointSlices("default").Delete(context.Background(),
						s.svc.Name+"-"+f, metav1.DeleteOptions{}))
				}
			},
		},
		"TargetPortChanged": {
			reason: "the pod is an endpoint with another port",
			change: func(s *staleService) { s.target(9090, on("n1", s.a)) },
		},
		"ExternalLocalEndpointMovesAway": {
			reason: "the old endpoint is gone, and the new one is on another node",
			spec:   func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal },
			change: func(s *staleService) { s.back(on("n2", s.b)) },
		},
		"InternalLocalEndpointMovesAway": {
			reason: "the old endpoint is gone, and the new one is on another node",
			spec:   localInternally,
			change: func(s *staleService) { s.back(on("n2", s.b)) },
		},
		"PolicyBecomesLocal": {
			reason: "a change of policy does not end flows to an endpoint that serves", end: keep(),
			change: func(s *staleService) { s.update(localInternally); s.back(on("n2", s.a)) },
		},
		"ServiceDeleted": {reason: "nothing is at its frontends", change: (*staleService).remove},
		"PortRemoved": {
			reason: "nothing is at the port's frontends",
			change: func(s *staleService) {
				s.update(func(spec *corev1.ServiceSpec) { spec.Ports = spec.Ports[1:] })
			},
		},
		"ProtocolChanged": {
			reason: "the frontends are those of another protocol",
			change: port(func(p *corev1.ServicePort) { p.Protocol = corev1.ProtocolTCP }),
		},
		"PortChanged": {
			reason: "the node port stays, the port is another", end: []string{toVIP, toExternal, toBalancer},
			change: port(func(p *corev1.ServicePort) { p.Port = 90 }),
		},
		"PortRenamed": {
			reason: "the port has the same frontends and endpoints by another name", end: keep(),
			change: port(func(p *corev1.ServicePort) { p.Name = "second-name" }),
		},
		"ClusterIPChanged": {
			reason: "a service of the same name has another address", end: []string{toVIP},
			mayEnd: []string{toExternal, toBalancer, toNodePort},
			change: func(s *staleService) {
				s.remake(func(spec *corev1.ServiceSpec) { spec.ClusterIP, spec.ClusterIPs = "", nil })
			},
		},
		"NodePortChanged": {
			reason: "nothing is at the old node port", end: []string{toNodePort},
			// The server gives ports up to 30085 to other services only if all others are taken.
			change: port(func(p *corev1.ServicePort) { p.NodePort = 30081 }),
		},
		"NodePortsNoMore": {
			reason: "a ClusterIP service has no node port", end: []string{toNodePort, toBalancer},
			change: func(s *staleService) {
				s.update(func(spec *corev1.ServiceSpec) { spec.Type, spec.Ports[0].NodePort = corev1.ServiceTypeClusterIP, 0 })
			},
		},
		"ExternalIPRemoved": {
			reason: "nothing is at the address", end: []string{toExternal},
			change: func(s *staleService) { s.update(func(spec *corev1.ServiceSpec) { spec.ExternalIPs = nil }) },
		},
		"BalancerRemoved": {
			reason: "nothing is at the address", end: []string{toBalancer},
			change: func(s *staleService) { s.ingress() },
		},
		"ExternalName": {
			reason: "a service of this type has no address",
			change: func(s *staleService) {
				s.update(func(spec *corev1.ServiceSpec) {
					*spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}
				})
			},
		},
		"Headless": {
			reason: "a headless service has no address",
			change: func(s *staleService) {
				s.remake(func(spec *corev1.ServiceSpec) {
					*spec = corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone,
						Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolUDP}}}
				})
			},
		},
		"FamilyRemoved": {
			reason: "nothing is at the addresses of the family", families: []string{"IPv6"},
			change: func(s *staleService) {
				s.update(func(spec *corev1.ServiceSpec) {
					single := corev1.IPFamilyPolicySingleStack
					spec.IPFamilyPolicy, spec.IPFamilies, spec.ClusterIPs = &single, spec.IPFamilies[:1], spec.ClusterIPs[:1]
				})
			},
		},
		"OtherProxy": {
			reason: "the service is another proxy's",
			change: func(s *staleService) {
				s.svc.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "other"}
				s.update(func(*corev1.ServiceSpec) {})
			},
		},
	}
}

// back makes the pods the endpoints of the service in both IP families.
func (s *staleService) back(pods ...endpoint) { s.target(targetPort, pods...) }

func (s *staleService) target(port int32, pods ...endpoint) {
	s.t.Helper()
	for _, f := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		e := slice(s.svc.Name, corev1.ProtocolUDP, f, pods...)
		first, second, third := "first", "second", "second-name"
		e.Ports = []discoveryv1.EndpointPort{
			{Name: &first, Port: &port, Protocol: e.Ports[0].Protocol},
			{Name: &second, Port: &port, Protocol: e.Ports[0].Protocol},
			{Name: &third, Port: &port, Protocol: e.Ports[0].Protocol},
		}
		client := s.client.DiscoveryV1().EndpointSlices("default")
		_, err := client.Update(context.Background(), e, metav1.UpdateOptions{})
		s.must(err)
	}
}

func (s *staleService) update(f func(*corev1.ServiceSpec)) {
	s.t.Helper()
	f(&s.svc.Spec)
	var err error
	s.svc, err = s.client.CoreV1().Services("default").Update(context.Background(), s.svc, metav1.UpdateOptions{})
	s.must(err)
}

func (s *staleService) remove() {
	s.t.Helper()
	s.must(s.client.CoreV1().Services("default").Delete(context.Background(), s.svc.Name, metav1.DeleteOptions{}))
}

// remake deletes the service and creates another one with the same name.
func (s *staleService) remake(f func(*corev1.ServiceSpec)) {
	s.t.Helper()
	old := s.svc
	// A third service takes the cluster IP of the deleted one, so that the service with the same
	// name gets another.
	s.remove()
	taken := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: old.Name + "-taken"}, Spec: corev1.ServiceSpec{
		ClusterIP: old.Spec.ClusterIPs[0], ClusterIPs: old.Spec.ClusterIPs, IPFamilyPolicy: old.Spec.IPFamilyPolicy,
		Ports: []corev1.ServicePort{{Port: 7, Protocol: corev1.ProtocolTCP}},
	}}
	s.create(taken)
	next := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: old.Name}, Spec: *old.Spec.DeepCopy()}
	f(&next.Spec)
	next, err := s.client.CoreV1().Services("default").Create(context.Background(), next, metav1.CreateOptions{})
	s.must(err)
	s.svc = next
	if next.Spec.Type == corev1.ServiceTypeLoadBalancer {
		s.ingress(s.balancer...)
	}
}

// ingress sets the addresses of the service's load balancer.
func (s *staleService) ingress(addrs ...string) {
	s.t.Helper()
	s.svc.Status.LoadBalancer.Ingress = nil
	for _, a := range addrs {
		s.svc.Status.LoadBalancer.Ingress = append(s.svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
	}
	var err error
	s.svc, err = s.client.CoreV1().Services("default").UpdateStatus(context.Background(), s.svc, metav1.UpdateOptions{})
	s.must(err)
}

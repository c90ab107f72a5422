// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// expect compares the fields and reasons of all errors with want. Their order does not count.
func expect(t *testing.T, errs field.ErrorList, want []string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Field+" "+err.Type.String())
	}
	slices.Sort(got)
	if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
		t.Errorf("findings:\n\t%s\nwant:\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// changed returns a deep copy of obj, modified by change.
func changed[T runtime.Object](obj T, change func(T)) T {
	out := obj.DeepCopyObject().(T)
	if change != nil {
		change(out)
	}
	return out
}

var service = &corev1.Service{Spec: corev1.ServiceSpec{
	Type: corev1.ServiceTypeClusterIP, SessionAffinity: corev1.ServiceAffinityNone,
	ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"},
	IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack),
	InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
	Ports: []corev1.ServicePort{
		{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(80)},
	},
}}

// balanced makes s a service of type LoadBalancer.
func balanced(s *corev1.Service) {
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Spec.AllocateLoadBalancerNodePorts = new(true)
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
}

func TestValidateService(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *corev1.Service)
		want   []string
	}{
		"unchanged":     {nil, nil},
		"load balancer": {balanced, nil},
		"no ports": {
			func(s *corev1.Service) { s.Spec.Ports = nil }, []string{"spec.ports Required value"},
		},
		"headless without ports": {
			func(s *corev1.Service) {
				s.Spec.Ports, s.Spec.ClusterIP, s.Spec.ClusterIPs = nil, corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
			},
			nil,
		},
		"type": {
			func(s *corev1.Service) { s.Spec.Type = "Any" },
			[]string{"spec.type Unsupported value"},
		},
		"external name without a name": {
			func(s *corev1.Service) {
				s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, SessionAffinity: corev1.ServiceAffinityNone}
			},
			[]string{"spec.externalName Required value"},
		},
		"external name with an address": {
			func(s *corev1.Service) {
				s.Spec = corev1.ServiceSpec{
					Type: corev1.ServiceTypeExternalName, SessionAffinity: corev1.ServiceAffinityNone, ExternalName: "a.example",
					ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"},
				}
			},
			[]string{"spec.clusterIPs Forbidden"},
		},
		"headless node port": {
			func(s *corev1.Service) {
				s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, corev1.ServiceExternalTrafficPolicyCluster
				s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
			},
			[]string{"spec.clusterIPs[0] Invalid value"},
		},
		"addresses that differ": {
			func(s *corev1.Service) { s.Spec.ClusterIP = "10.0.0.2" },
			[]string{"spec.clusterIPs Invalid value"},
		},
		"two ports without names": {
			func(s *corev1.Service) {
				s.Spec.Ports = append(s.Spec.Ports, s.Spec.Ports[0])
				s.Spec.Ports[1].Port = 81
			},
			[]string{"spec.ports[0].name Required value", "spec.ports[1].name Required value"},
		},
		"one port twice": {
			func(s *corev1.Service) {
				s.Spec.Ports = append(s.Spec.Ports, s.Spec.Ports[0])
				s.Spec.Ports[0].Name, s.Spec.Ports[1].Name = "a", "b"
			},
			[]string{"spec.ports[1] Duplicate value"},
		},
		"port out of range": {
			func(s *corev1.Service) { s.Spec.Ports[0].Port = 0 }, []string{"spec.ports[0].port Invalid value"},
		},
		"protocol": {
			func(s *corev1.Service) { s.Spec.Ports[0].Protocol = "ICMP" }, []string{"spec.ports[0].protocol Unsupported value"},
		},
		"node port of an inner service": {
			func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30000 }, []string{"spec.ports[0].nodePort Forbidden"},
		},
		"selector": {
			func(s *corev1.Service) { s.Spec.Selector = map[string]string{"a b": ""} }, []string{"spec.selector Invalid value"},
		},
		"affinity": {
			func(s *corev1.Service) { s.Spec.SessionAffinity = "" }, []string{"spec.sessionAffinity Required value"},
		},
		"affinity without a time": {
			func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP },
			[]string{"spec.sessionAffinityConfig Required value"},
		},
		"affinity for too long": {
			func(s *corev1.Service) {
				s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
					ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(86401))},
				}
			},
			[]string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds Invalid value"},
		},
		"external address of the loopback": {
			func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"127.0.0.1"} },
			[]string{"spec.externalIPs[0] Invalid value", "spec.externalTrafficPolicy Required value"},
		},
		"source ranges without a load balancer": {
			func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"} },
			[]string{"spec.LoadBalancerSourceRanges Forbidden"},
		},
		"source range": {
			func(s *corev1.Service) {
				balanced(s)
				s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0"}
			},
			[]string{"spec.LoadBalancerSourceRanges[0] Invalid value"},
		},
		"class of a load balancer that is none": {
			func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("a/b") }, []string{"spec.loadBalancerClass Forbidden"},
		},
		"local traffic without a health port": {
			func(s *corev1.Service) {
				balanced(s)
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			},
			[]string{"spec.healthCheckNodePort Required value"},
		},
		"health port without local traffic": {
			func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 30000 }, []string{"spec.healthCheckNodePort Invalid value"},
		},
		"no inner policy": {
			func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = nil },
			[]string{"spec.internalTrafficPolicy Required value"},
		},
		"distribution": {
			func(s *corev1.Service) { s.Spec.TrafficDistribution = new("Far") },
			[]string{"spec.trafficDistribution Unsupported value"},
		},
		"topology annotations that differ": {
			func(s *corev1.Service) {
				s.Annotations = map[string]string{hintsAnnotation: "Auto", modeAnnotation: "Disabled"}
			},
			[]string{"metadata.annotations[service.kubernetes.io/topology-mode] Invalid value"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, validateService(t.Context(), changed(service, test.change)), test.want)
		})
	}
}

func TestValidateServiceUpdate(t *testing.T) {
	for name, test := range map[string]struct {
		before, change func(s *corev1.Service)
		want           []string
	}{
		"unchanged": {nil, nil, nil},
		"another address": {
			nil, func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs[0] = "10.0.0.2", "10.0.0.2" },
			[]string{"spec.clusterIPs[0] Invalid value"},
		},
		"another class": {
			func(s *corev1.Service) { balanced(s); s.Spec.LoadBalancerClass = new("a/b") },
			func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("a/c") },
			[]string{"spec.loadBalancerClass Invalid value"},
		},
		"a class that goes": {
			func(s *corev1.Service) { balanced(s); s.Spec.LoadBalancerClass = new("a/b") },
			func(s *corev1.Service) { s.Spec.LoadBalancerClass = nil },
			[]string{"spec.loadBalancerClass Invalid value"},
		},
		"old source range": {
			func(s *corev1.Service) { balanced(s); s.Spec.LoadBalancerSourceRanges = []string{"010.0.0.0/8"} }, nil, nil,
		},
		"from headless to a name": {
			func(s *corev1.Service) {
				s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
			},
			func(s *corev1.Service) {
				s.Spec = corev1.ServiceSpec{
					Type: corev1.ServiceTypeExternalName, SessionAffinity: corev1.ServiceAffinityNone, ExternalName: "a.example",
				}
			},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			old := changed(service, test.before)
			expect(t, validateServiceUpdate(t.Context(), changed(old, test.change), old), test.want)
		})
	}
}

func TestValidateConfigMap(t *testing.T) {
	large := strings.Repeat("x", corev1.MaxSecretSize)
	for name, test := range map[string]struct {
		old, obj corev1.ConfigMap
		want     []string
	}{
		"empty":   {},
		"largest": {obj: corev1.ConfigMap{Data: map[string]string{"a": large}}},
		"too large": {
			obj: corev1.ConfigMap{Data: map[string]string{"a": large, "b": "x"}}, want: []string{"[] Too long"},
		},
		"key": {
			obj: corev1.ConfigMap{Data: map[string]string{"a/b": ""}}, want: []string{"data[a/b] Invalid value"},
		},
		"key that leads up": {
			obj: corev1.ConfigMap{Data: map[string]string{"..": ""}}, want: []string{"data[..] Invalid value"},
		},
		"key in both": {
			obj:  corev1.ConfigMap{Data: map[string]string{"a": ""}, BinaryData: map[string][]byte{"a": nil}},
			want: []string{"data[a] Invalid value"},
		},
		"made immutable": {obj: corev1.ConfigMap{Immutable: new(true)}},
		"immutable": {
			old: corev1.ConfigMap{Immutable: new(true), Data: map[string]string{"a": "x"}},
			obj: corev1.ConfigMap{Immutable: new(true), Data: map[string]string{"a": "y"}}, want: []string{"data Forbidden"},
		},
		"no longer immutable": {old: corev1.ConfigMap{Immutable: new(true)}, want: []string{"immutable Forbidden"}},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, validateConfigMapUpdate(t.Context(), &test.obj, &test.old), test.want)
		})
	}
}

func TestValidateSecret(t *testing.T) {
	for name, test := range map[string]struct {
		kind corev1.SecretType
		data map[string][]byte
		want []string
	}{
		"opaque":   {kind: corev1.SecretTypeOpaque},
		"own type": {kind: "example.com/any"},
		"token": {
			kind: corev1.SecretTypeServiceAccountToken,
			want: []string{"metadata.annotations[kubernetes.io/service-account.name] Required value"},
		},
		"pull secret without a key": {
			kind: corev1.SecretTypeDockerConfigJson, want: []string{"data[.dockerconfigjson] Required value"},
		},
		"pull secret that is not JSON": {
			kind: corev1.SecretTypeDockerConfigJson, data: map[string][]byte{".dockerconfigjson": []byte("x")},
			want: []string{"data[.dockerconfigjson] Invalid value"},
		},
		"login by password alone": {kind: corev1.SecretTypeBasicAuth, data: map[string][]byte{"password": nil}},
		"login without both": {
			kind: corev1.SecretTypeBasicAuth, want: []string{"data[username] Required value", "data[password] Required value"},
		},
		"empty SSH key": {
			kind: corev1.SecretTypeSSHAuth, data: map[string][]byte{"ssh-privatekey": nil},
			want: []string{"data[ssh-privatekey] Required value"},
		},
		"certificate without a key": {
			kind: corev1.SecretTypeTLS, data: map[string][]byte{"tls.crt": nil}, want: []string{"data[tls.key] Required value"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			errs := validateSecret(t.Context(), &corev1.Secret{Type: test.kind, Data: test.data})
			expect(t, errs, test.want)
			for _, err := range errs {
				if text, ok := err.BadValue.(string); ok && text == "x" {
					t.Error("the error shows the secret")
				}
			}
		})
	}
}

var claim = &corev1.PersistentVolumeClaim{
	Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("fast"),
		VolumeMode: new(corev1.PersistentVolumeFilesystem), VolumeName: "v",
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")},
		},
	},
	Status: corev1.PersistentVolumeClaimStatus{
		Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")},
	},
}

func TestValidateClaimUpdate(t *testing.T) {
	size := func(text string) func(c *corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(text)
		}
	}
	for name, test := range map[string]struct {
		before, change func(c *corev1.PersistentVolumeClaim)
		want           []string
	}{
		"unchanged": {nil, nil, nil},
		"grows":     {nil, size("3Gi"), nil},
		"shrinks":   {nil, size("1Gi"), []string{"spec.resources.requests.storage Forbidden"}},
		"gives up growing": {
			size("4Gi"), size("3Gi"), nil,
		},
		"grows before it is bound": {
			func(c *corev1.PersistentVolumeClaim) { c.Status = corev1.PersistentVolumeClaimStatus{} }, size("3Gi"),
			[]string{"spec Forbidden"},
		},
		"is bound": {
			func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "" },
			func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "v" }, nil,
		},
		"another volume": {
			nil, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "w" }, []string{"spec Forbidden"},
		},
		"a first class": {
			func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil },
			func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("fast") }, nil,
		},
		"another class": {
			nil, func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("slow") }, []string{"spec Forbidden"},
		},
		"another mode": {
			nil, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) },
			[]string{"spec Forbidden", "volumeMode Invalid value"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			old := changed(claim, test.before)
			expect(t, validatePersistentVolumeClaimUpdate(t.Context(), changed(old, test.change), old), test.want)
		})
	}
}

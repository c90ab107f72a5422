// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/podspec"
)

// change modifies a specification.
type change func(s *corev1.PodSpec)

// first returns a change that applies f to the first container.
func first(f func(c *corev1.Container)) change {
	return func(s *corev1.PodSpec) { f(&s.Containers[0]) }
}

// volume returns a change that adds a volume with this source.
func volume(source corev1.VolumeSource) change {
	return func(s *corev1.PodSpec) {
		s.Volumes = append(s.Volumes, corev1.Volume{Name: "v", VolumeSource: source})
	}
}

// mounted returns a change that adds an emptyDir volume and mounts it in the first container.
func mounted(mount corev1.VolumeMount) change {
	return func(s *corev1.PodSpec) {
		volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})(s)
		mount.Name = "v"
		s.Containers[0].VolumeMounts = append(s.Containers[0].VolumeMounts, mount)
	}
}

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// required returns a change that sets a required node affinity with the requirement r.
func required(r corev1.NodeSelectorRequirement) change {
	return func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{r}}},
			},
		}}
	}
}

func security(c corev1.SecurityContext) change {
	return first(func(x *corev1.Container) { x.SecurityContext = &c })
}

func probe(p corev1.Probe) change {
	return first(func(c *corev1.Container) { c.LivenessProbe = &p })
}

func env(vars ...corev1.EnvVar) change {
	return first(func(c *corev1.Container) { c.Env = vars })
}

// TestValidateSpec makes one change to a valid specification and compares the fields and reasons of
// all errors, in any order. If want is empty, the specification must be valid.
func TestValidateSpec(t *testing.T) {
	web := corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(80), Scheme: corev1.URISchemeHTTP}
	for name, test := range map[string]struct {
		change change
		want   []string
	}{
		"unchanged": {func(*corev1.PodSpec) {}, nil},

		// Rules about the pod as a whole.
		"no containers": {func(s *corev1.PodSpec) { s.Containers = nil }, []string{"spec.containers Required value"}},
		"restart policy": {
			func(s *corev1.PodSpec) { s.RestartPolicy = "Maybe" }, []string{"spec.restartPolicy Unsupported value"},
		},
		"no restart policy": {
			func(s *corev1.PodSpec) { s.RestartPolicy = "" }, []string{"spec.restartPolicy Required value"},
		},
		"DNS policy": {func(s *corev1.PodSpec) { s.DNSPolicy = "Any" }, []string{"spec.dnsPolicy Unsupported value"}},
		"DNS policy None without servers": {
			func(s *corev1.PodSpec) { s.DNSPolicy = corev1.DNSNone }, []string{"spec.dnsConfig Required value"},
		},
		"zero deadline": {
			func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = new(int64(0)) },
			[]string{"spec.activeDeadlineSeconds Invalid value"},
		},
		"node selector": {
			func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"a b": "c"} },
			[]string{"spec.nodeSelector Invalid value"},
		},
		"service account": {
			func(s *corev1.PodSpec) { s.ServiceAccountName = "No Name" }, []string{"spec.serviceAccountName Invalid value"},
		},
		"node name": {func(s *corev1.PodSpec) { s.NodeName = "a_b" }, []string{"spec.nodeName Invalid value"}},
		"host name": {func(s *corev1.PodSpec) { s.Hostname = "a.b" }, []string{"spec.hostname Invalid value"}},
		"subdomain": {func(s *corev1.PodSpec) { s.Subdomain = "a.b" }, []string{"spec.subdomain Invalid value"}},
		"invalid address of a host alias": {
			func(s *corev1.PodSpec) { s.HostAliases = []corev1.HostAlias{{IP: "1.2.3", Hostnames: []string{"h"}}} },
			[]string{"spec.hostAliases[0].ip Invalid value"},
		},
		"priority class": {
			func(s *corev1.PodSpec) { s.PriorityClassName = "a b" }, []string{"spec.priorityClassName Invalid value"},
		},

		// Rules about containers.
		"no name":  {first(func(c *corev1.Container) { c.Name = "" }), []string{"spec.containers[0].name Required value"}},
		"bad name": {first(func(c *corev1.Container) { c.Name = "A" }), []string{"spec.containers[0].name Invalid value"}},
		"duplicate container name": {
			func(s *corev1.PodSpec) { s.Containers = append(s.Containers, s.Containers[0]) },
			[]string{"spec.containers[1].name Duplicate value"},
		},
		"init container with the name of a container": {
			func(s *corev1.PodSpec) { s.InitContainers = append(s.InitContainers, s.Containers[0]) },
			[]string{"spec.initContainers[0].name Duplicate value"},
		},
		"no image": {
			first(func(c *corev1.Container) { c.Image = "" }), []string{"spec.containers[0].image Required value"},
		},
		"pull policy": {
			first(func(c *corev1.Container) { c.ImagePullPolicy = "Often" }),
			[]string{"spec.containers[0].imagePullPolicy Unsupported value"},
		},
		"message policy": {
			first(func(c *corev1.Container) { c.TerminationMessagePolicy = "" }),
			[]string{"spec.containers[0].terminationMessagePolicy Required value"},
		},
		"init container with a probe": {
			func(s *corev1.PodSpec) {
				c := s.Containers[0]
				c.Name, c.ReadinessProbe = "i", &corev1.Probe{}
				s.InitContainers = append(s.InitContainers, c)
			},
			[]string{"spec.initContainers[0].readinessProbe Forbidden"},
		},
		"sidecar": {
			func(s *corev1.PodSpec) {
				c := s.Containers[0]
				c.Name, c.RestartPolicy = "i", new(corev1.ContainerRestartPolicyAlways)
				s.InitContainers = append(s.InitContainers, c)
			},
			nil,
		},

		// Rules about ports.
		"no port": {
			first(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{Protocol: "TCP"}} }),
			[]string{"spec.containers[0].ports[0].containerPort Required value"},
		},
		"port out of range": {
			first(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{ContainerPort: 65536, Protocol: "TCP"}} }),
			[]string{"spec.containers[0].ports[0].containerPort Invalid value"},
		},
		"protocol": {
			first(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{ContainerPort: 1, Protocol: "ICMP"}} }),
			[]string{"spec.containers[0].ports[0].protocol Unsupported value"},
		},
		"duplicate port name": {
			first(func(c *corev1.Container) {
				c.Ports = []corev1.ContainerPort{
					{Name: "web", ContainerPort: 1, Protocol: "TCP"}, {Name: "web", ContainerPort: 2, Protocol: "TCP"},
				}
			}),
			[]string{"spec.containers[0].ports[1].name Duplicate value"},
		},
		"duplicate host port": {
			func(s *corev1.PodSpec) {
				s.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 1, HostPort: 80, Protocol: "TCP"}}
				c := *s.Containers[0].DeepCopy()
				c.Name = "d"
				s.Containers = append(s.Containers, c)
			},
			[]string{"spec.containers[1].ports[0].hostPort Duplicate value"},
		},

		// Rules about environment variables.
		"variable without a name": {
			env(corev1.EnvVar{Value: "x"}), []string{"spec.containers[0].env[0].name Required value"},
		},
		"variable name with an equals sign": {
			env(corev1.EnvVar{Name: "a=b"}), []string{"spec.containers[0].env[0].name Invalid value"},
		},
		"value and source": {
			env(corev1.EnvVar{Name: "A", Value: "x", ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"},
			}}),
			[]string{"spec.containers[0].env[0].valueFrom Invalid value"},
		},
		"empty value source": {
			env(corev1.EnvVar{Name: "A", ValueFrom: &corev1.EnvVarSource{}}),
			[]string{"spec.containers[0].env[0].valueFrom Invalid value"},
		},
		"unknown field": {
			env(corev1.EnvVar{Name: "A", ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.generation"},
			}}),
			[]string{"spec.containers[0].env[0].valueFrom.fieldRef.fieldPath Invalid value"},
		},
		"unsupported field": {
			env(corev1.EnvVar{Name: "A", ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "spec.schedulerName"},
			}}),
			[]string{"spec.containers[0].env[0].valueFrom.fieldRef.fieldPath Unsupported value"},
		},

		// Rules about mounts and volumes.
		"mount of an unknown volume": {
			first(func(c *corev1.Container) { c.VolumeMounts = []corev1.VolumeMount{{Name: "x", MountPath: "/x"}} }),
			[]string{"spec.containers[0].volumeMounts[0].name Not found"},
		},
		"mount without a path": {
			mounted(corev1.VolumeMount{}),
			[]string{"spec.containers[0].volumeMounts[0].mountPath Required value"},
		},
		"duplicate mount path": {
			func(s *corev1.PodSpec) {
				mounted(corev1.VolumeMount{MountPath: "/v"})(s)
				c := &s.Containers[0]
				c.VolumeMounts = append(c.VolumeMounts, c.VolumeMounts[0])
			},
			[]string{"spec.containers[0].volumeMounts[1].mountPath Invalid value"},
		},
		"subPath that leaves the volume": {
			mounted(corev1.VolumeMount{MountPath: "/v", SubPath: "a/../.."}),
			[]string{"spec.containers[0].volumeMounts.subPath Invalid value"},
		},
		"volume without a source": {volume(corev1.VolumeSource{}), []string{"spec.volumes[0] Required value"}},
		"volume with two sources": {
			volume(corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{},
				HostPath: &corev1.HostPathVolumeSource{Path: "/x", Type: new(corev1.HostPathUnset)},
			}),
			[]string{"spec.volumes[0].hostPath Forbidden"},
		},
		"host path with two dots": {
			volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
				Path: "/a/../b", Type: new(corev1.HostPathUnset),
			}}),
			[]string{"spec.volumes[0].hostPath.path Invalid value"},
		},
		"negative size": {
			volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("-1"))}}),
			[]string{"spec.volumes[0].emptyDir.sizeLimit Forbidden"},
		},
		"secret without a name": {
			volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{DefaultMode: new(int32(0o644))}}),
			[]string{"spec.volumes[0].secret.secretName Required value"},
		},
		"invalid file mode": {
			volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", DefaultMode: new(int32(0o1000))}}),
			[]string{"spec.volumes[0].secret.defaultMode Invalid value"},
		},
		"key whose path has two dots": {
			volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "c"}, DefaultMode: new(int32(0o644)),
				Items: []corev1.KeyToPath{{Key: "k", Path: "../k"}},
			}}),
			[]string{"spec.volumes[0].configMap.items[0].path Invalid value"},
		},
		"claim without a name": {
			volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}),
			[]string{"spec.volumes[0].persistentVolumeClaim.claimName Required value"},
		},

		// Rules about resources.
		"request over the limit": {
			first(func(c *corev1.Container) {
				c.Resources = corev1.ResourceRequirements{Requests: list("cpu", "2"), Limits: list("cpu", "1")}
			}),
			[]string{"spec.containers[0].resources.requests Invalid value"},
		},
		"negative request": {
			first(func(c *corev1.Container) { c.Resources.Requests = list("cpu", "-1") }),
			[]string{"spec.containers[0].resources.requests[cpu] Invalid value"},
		},
		"extended resource without a limit": {
			first(func(c *corev1.Container) { c.Resources.Requests = list("example.com/gpu", "1") }),
			[]string{"spec.containers[0].resources.limits Required value"},
		},
		"fraction of a device": {
			first(func(c *corev1.Container) {
				c.Resources.Requests, c.Resources.Limits = list("example.com/gpu", "500m"), list("example.com/gpu", "500m")
			}),
			[]string{
				"spec.containers[0].resources.limits[example.com/gpu] Invalid value",
				"spec.containers[0].resources.requests[example.com/gpu] Invalid value",
			},
		},
		"unknown resource": {
			first(func(c *corev1.Container) { c.Resources.Requests = list("gpu", "1") }),
			[]string{
				"spec.containers[0].resources.requests[gpu] Invalid value",
				"spec.containers[0].resources.requests[gpu] Invalid value",
			},
		},

		// Rules about probes.
		"probe without an action": {
			probe(corev1.Probe{TimeoutSeconds: 1, PeriodSeconds: 1, SuccessThreshold: 1, FailureThreshold: 1}),
			[]string{"spec.containers[0].livenessProbe Required value"},
		},
		"liveness probe with two successes": {
			probe(corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{HTTPGet: &web}, TimeoutSeconds: 1, PeriodSeconds: 1, SuccessThreshold: 2,
				FailureThreshold: 1,
			}),
			[]string{"spec.containers[0].livenessProbe.successThreshold Invalid value"},
		},
		"negative period": {
			probe(corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{HTTPGet: &web}, TimeoutSeconds: 1, PeriodSeconds: -1, SuccessThreshold: 1,
				FailureThreshold: 1,
			}),
			[]string{"spec.containers[0].livenessProbe.periodSeconds Invalid value"},
		},
		"hook without a command": {
			first(func(c *corev1.Container) {
				c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{}}}
			}),
			[]string{"spec.containers[0].lifecycle.postStart.exec.command Required value"},
		},

		// Rules about security contexts.
		"privileged without escalation": {
			security(corev1.SecurityContext{Privileged: new(true), AllowPrivilegeEscalation: new(false)}),
			[]string{"spec.containers[0].securityContext Invalid value"},
		},
		"negative user": {
			security(corev1.SecurityContext{RunAsUser: new(int64(-1))}),
			[]string{"spec.containers[0].securityContext.runAsUser Invalid value"},
		},
		"seccomp profile without a file": {
			security(corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost}}),
			[]string{"spec.containers[0].securityContext.seccompProfile.localhostProfile Required value"},
		},

		// Rules about the placement on nodes.
		"node affinity without values": {
			required(corev1.NodeSelectorRequirement{Key: "k", Operator: corev1.NodeSelectorOpIn}),
			[]string{affinity + "matchExpressions[0].values Required value"},
		},
		"node affinity Exists with values": {
			required(corev1.NodeSelectorRequirement{
				Key: "k", Operator: corev1.NodeSelectorOpExists, Values: []string{"x"},
			}),
			[]string{affinity + "matchExpressions[0].values Forbidden"},
		},
		"node affinity with an unknown operator": {
			required(corev1.NodeSelectorRequirement{Key: "k", Operator: "Like"}),
			[]string{affinity + "matchExpressions[0].operator Invalid value"},
		},
		"toleration with an unknown operator": {
			func(s *corev1.PodSpec) { s.Tolerations = []corev1.Toleration{{Key: "k", Operator: "Like"}} },
			[]string{"spec.tolerations[0].operator Unsupported value"},
		},
		"toleration seconds without NoExecute": {
			func(s *corev1.PodSpec) {
				s.Tolerations = []corev1.Toleration{{
					Key: "k", Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(1)),
					Effect: corev1.TaintEffectNoSchedule,
				}}
			},
			[]string{"spec.tolerations[0].effect Invalid value"},
		},
		"spread constraint without a topology key": {
			func(s *corev1.PodSpec) {
				s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
					MaxSkew: 0, TopologyKey: "", WhenUnsatisfiable: corev1.DoNotSchedule,
				}}
			},
			[]string{
				"spec.topologySpreadConstraints[0].maxSkew Invalid value",
				"spec.topologySpreadConstraints[0].topologyKey Required value",
			},
		},
		"duplicate scheduling gate": {
			func(s *corev1.PodSpec) {
				s.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a"}, {Name: "a"}}
			},
			[]string{"spec.schedulingGates[1] Duplicate value"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &corev1.PodSpec{
				Containers: []corev1.Container{{Name: "c", Image: "i"}},
			}
			podspec.DefaultSpec(spec)
			test.change(spec)
			var got []string
			for _, err := range podspec.ValidateSpec(t.Context(), spec, &metav1.ObjectMeta{}, field.NewPath("spec")) {
				got = append(got, err.Field+" "+err.Type.String())
			}
			slices.Sort(got)
			if want := slices.Sorted(slices.Values(test.want)); !slices.Equal(got, want) {
				t.Errorf("findings:\n\t%s\nwant:\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
			}
		})
	}
}

const affinity = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]."

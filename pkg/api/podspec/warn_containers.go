// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *cautions) containers(path *field.Path, annotations map[string]string, spec *corev1.PodSpec) {
	at := path.Child("spec")
	for place, container := range Containers(spec, at) {
		if container.SecurityContext == nil || container.SecurityContext.SeccompProfile == nil {
			c.seccomp(path, annotations, "container.seccomp.security.alpha.kubernetes.io/"+container.Name)
		}
		c.appArmor(path, annotations, spec, container)
		resources := place.Path.Child("resources")
		for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			c.fraction(container.Resources.Limits, name, resources.Child("limits"))
			c.fraction(container.Resources.Requests, name, resources.Child("requests"))
		}
		c.hiddenEnv(container.Env, place.Path.Child("env"))
	}
	c.ports(spec, at)
	c.portNames(spec, at)
}

// hiddenEnv tells of variables that hide an earlier one. To extend the earlier
// value by naming it is no hiding.
func (c *cautions) hiddenEnv(env []corev1.EnvVar, path *field.Path) {
	seen := map[string]bool{}
	for i, v := range env {
		if !seen[v.Name] {
			seen[v.Name] = true
			continue
		}
		reference := "$(" + v.Name + ")"
		if v.ValueFrom != nil || v.Value == reference || !strings.Contains(v.Value, reference) {
			c.say(path.Index(i), "hides previous definition of %q, which may be dropped when using apply", v.Name)
		}
	}
}

// ports tells of ports that are defined twice, or nearly.
func (c *cautions) ports(spec *corev1.PodSpec, path *field.Path) {
	type definition struct {
		at   *field.Path
		port corev1.ContainerPort
	}
	seen := map[string][]definition{}
	for place, container := range Containers(spec, path) {
		for i, port := range container.Ports {
			at := place.Path.Child("ports").Index(i)
			if port.HostIP != "" && port.HostPort == 0 {
				c.say(at, "hostIP set without hostPort: %+v", port)
			}
			key := fmt.Sprintf("%d/%s", port.ContainerPort, port.Protocol)
			for _, other := range seen[key] {
				if relation := likeness(port, other.port); relation != "" {
					c.say(at, "%s port definition with %s", relation, other.at)
				}
			}
			seen[key] = append(seen[key], definition{at, port})
		}
	}
}

func likeness(a, b corev1.ContainerPort) string {
	switch {
	case a.HostIP == b.HostIP && a.HostPort == b.HostPort:
		return "duplicate"
	case a.HostPort == 0 || b.HostPort == 0:
		return "overlapping"
	case a.HostPort == b.HostPort && (a.HostIP == "") != (b.HostIP == ""):
		return "dangerously ambiguous"
	}
	return ""
}

func (c *cautions) portNames(spec *corev1.PodSpec, path *field.Path) {
	seen := map[string]*field.Path{}
	for place, container := range Containers(spec, path) {
		for i, port := range container.Ports {
			if port.Name == "" {
				continue
			}
			at := place.Path.Child("ports").Index(i)
			if other, taken := seen[port.Name]; taken {
				c.say(at, "duplicate port name %q with %s, services and probes that select ports by name will use %s", port.Name, other, other)
				continue
			}
			seen[port.Name] = at
		}
	}
}

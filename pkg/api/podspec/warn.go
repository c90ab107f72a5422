// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/keelson/pkg/api/report"
)

// cautions is a list of warnings.
type cautions []string

// addf appends a warning about the field at path.
func (c *cautions) addf(path *field.Path, format string, args ...any) {
	*c = append(*c, path.String()+": "+fmt.Sprintf(format, args...))
}

// Warn returns warnings about a valid pod or template at path. path is nil for a pod.
func Warn(path *field.Path, meta *metav1.ObjectMeta, spec *corev1.PodSpec) []string {
	var c cautions
	at := path.Child("spec")
	c.nodeLabels(spec, at)
	c.annotations(meta.Annotations, path.Child("metadata", "annotations"))
	c.volumes(spec.Volumes, at.Child("volumes"))
	for i := range spec.Volumes {
		c.overlaps(&spec.Volumes[i])
	}
	c.repeats(spec, at)
	c.fractions(spec.Overhead, at.Child("overhead"))
	c.profiles(path, meta.Annotations, spec)
	c.containers(path, meta.Annotations, spec)
	if grace := spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		c.addf(at.Child("terminationGracePeriodSeconds"),
			"must be >= 0; negative values are invalid and will be treated as 1")
	}
	c.affinity(spec.Affinity, at.Child("affinity"))
	if spec.DNSConfig != nil {
		for i, server := range spec.DNSConfig.Nameservers {
			c = append(c, validation.GetWarningsForIP(at.Child("dnsConfig", "nameservers").Index(i), server)...)
		}
	}
	for i, alias := range spec.HostAliases {
		c = append(c, validation.GetWarningsForIP(at.Child("hostAliases").Index(i).Child("ip"), alias.IP)...)
	}
	return c
}

// WarnOfName warns about a name that is not a DNS label. The argument uses names the host names or
// other names that contain it.
func WarnOfName(name, uses string) []string {
	reasons := naming.IsDNS1123Label(name)
	if len(reasons) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("metadata.name: this is used in %s, which can result in surprising "+
		"behavior; a DNS label is recommended: %v", uses, reasons)}
}

// WarnOfTemplate returns warnings about a pod template. If name is not empty, it is the name of the
// template's owner, and WarnOfTemplate also warns about it.
func WarnOfTemplate(name string, path *field.Path, template *corev1.PodTemplateSpec) []string {
	var warnings []string
	if name != "" {
		warnings = WarnOfName(name, "Pod names and hostnames")
	}
	if template == nil {
		return warnings
	}
	return append(warnings, Warn(path, &template.ObjectMeta, &template.Spec)...)
}

func (c *cautions) nodeLabels(spec *corev1.PodSpec, path *field.Path) {
	for _, key := range report.Keys(spec.NodeSelector) {
		if message, old := OldNodeLabel(key); old {
			c.addf(path.Child("nodeSelector").Key(key), "%s", message)
		}
	}
	if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
		affinity, at := spec.Affinity.NodeAffinity, path.Child("affinity", "nodeAffinity")
		if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			for i := range required.NodeSelectorTerms {
				*c = append(*c, WarnOfNodeTerm(&required.NodeSelectorTerms[i], false,
					at.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms").Index(i))...)
			}
		}
		for i := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
			*c = append(*c, WarnOfNodeTerm(&affinity.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference, true,
				at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("preference"))...)
		}
	}
	for i, constraint := range spec.TopologySpreadConstraints {
		at := path.Child("topologySpreadConstraints").Index(i)
		if message, old := OldNodeLabel(constraint.TopologyKey); old {
			c.addf(at.Child("topologyKey"), "%s is %s", constraint.TopologyKey, message)
		}
		if constraint.LabelSelector == nil {
			c.addf(at.Child("labelSelector"), matchesNothing)
		}
	}
}

const matchesNothing = "a null labelSelector results in matching no pod"

func (c *cautions) annotations(annotations map[string]string, path *field.Path) {
	for _, a := range []struct{ key, message string }{
		{"scheduler.alpha.kubernetes.io/critical-pod", `non-functional in v1.16+; use the "priorityClassName" field instead`},
		{"security.alpha.kubernetes.io/sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
		{"security.alpha.kubernetes.io/unsafe-sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
	} {
		if _, there := annotations[a.key]; there {
			c.addf(path.Key(a.key), "%s", a.message)
		}
	}
}

func (c *cautions) affinity(affinity *corev1.Affinity, path *field.Path) {
	if affinity == nil {
		return
	}
	terms := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, path *field.Path) {
		for i := range required {
			if required[i].LabelSelector == nil {
				c.addf(path.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i).Child("labelSelector"), matchesNothing)
			}
		}
		for i := range preferred {
			if preferred[i].PodAffinityTerm.LabelSelector == nil {
				c.addf(path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child(
					"podAffinityTerm", "labelSelector"), matchesNothing)
			}
		}
	}
	if a := affinity.PodAffinity; a != nil {
		terms(a.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))
	}
	if a := affinity.PodAntiAffinity; a != nil {
		terms(a.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))
	}
}

// repeats warns about host aliases and image pull secrets that occur twice, and about image pull
// secrets without a name.
func (c *cautions) repeats(spec *corev1.PodSpec, path *field.Path) {
	var seen []string
	for i, alias := range spec.HostAliases {
		if slices.Contains(seen, alias.IP) {
			c.addf(path.Child("hostAliases").Index(i).Child("ip"), "duplicate ip %q", alias.IP)
		}
		seen = append(seen, alias.IP)
	}
	seen = nil
	secrets := path.Child("imagePullSecrets")
	for i, secret := range spec.ImagePullSecrets {
		if slices.Contains(seen, secret.Name) {
			c.addf(secrets.Index(i).Child("name"), "duplicate name %q", secret.Name)
		}
		seen = append(seen, secret.Name)
	}
	for i, secret := range spec.ImagePullSecrets {
		if secret.Name == "" {
			c.addf(secrets.Index(i).Child("name"), "invalid empty name %q", secret.Name)
		}
	}
}

// fractions warns about quantities of memory and ephemeral storage that are not whole numbers of
// bytes.
func (c *cautions) fractions(list corev1.ResourceList, path *field.Path) {
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		c.fraction(list, name, path)
	}
}

func (c *cautions) fraction(list corev1.ResourceList, name corev1.ResourceName, path *field.Path) {
	if value, there := list[name]; there && !whole(value) {
		c.addf(path.Key(string(name)), "fractional byte value %q is invalid, must be an integer", value.String())
	}
}

// WarnOfClaim returns warnings about the specification of a volume claim.
func WarnOfClaim(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) []string {
	var c cautions
	c.fraction(spec.Resources.Requests, corev1.ResourceStorage, path.Child("resources", "requests"))
	c.fraction(spec.Resources.Limits, corev1.ResourceStorage, path.Child("resources", "limits"))
	return c
}

// profiles warns about a pod's seccomp annotation if the field that replaced it is unset.
func (c *cautions) profiles(path *field.Path, annotations map[string]string, spec *corev1.PodSpec) {
	if spec.SecurityContext != nil && spec.SecurityContext.SeccompProfile != nil {
		return
	}
	c.seccomp(path, annotations, "seccomp.security.alpha.kubernetes.io/pod")
}

func (c *cautions) seccomp(path *field.Path, annotations map[string]string, key string) {
	if _, there := annotations[key]; there {
		c.addf(path.Child("metadata", "annotations").Key(key),
			`non-functional in v1.27+; use the "seccompProfile" field instead`)
	}
}

// appArmor warns about the AppArmor annotation of a container if the field that replaced it is
// unset. It is only for templates: for pods, ProfilesFromAnnotations returns the warnings.
func (c *cautions) appArmor(path *field.Path, annotations map[string]string, spec *corev1.PodSpec,
	container *corev1.Container) {
	if path == nil || container.SecurityContext != nil && container.SecurityContext.AppArmorProfile != nil {
		return
	}
	key := appArmorPrefix + container.Name
	text, there := annotations[key]
	if !there {
		return
	}
	if spec.SecurityContext != nil && spec.SecurityContext.AppArmorProfile != nil &&
		equality.Semantic.DeepEqual(spec.SecurityContext.AppArmorProfile, parseProfile(text)) {
		return
	}
	c.addf(path.Child("metadata", "annotations").Key(key), "%s", appArmorMoved)
}

const appArmorMoved = `deprecated since v1.30; use the "appArmorProfile" field instead`

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

// hiddenEnv warns about variables that replace an earlier variable with the same name. It does not
// warn if the new value contains the value of the earlier variable and more.
func (c *cautions) hiddenEnv(env []corev1.EnvVar, path *field.Path) {
	seen := map[string]bool{}
	for i, v := range env {
		if !seen[v.Name] {
			seen[v.Name] = true
			continue
		}
		reference := "$(" + v.Name + ")"
		if v.ValueFrom != nil || v.Value == reference || !strings.Contains(v.Value, reference) {
			c.addf(path.Index(i), "hides previous definition of %q, which may be dropped when using apply", v.Name)
		}
	}
}

// ports warns about ports that are defined twice, or whose definitions may conflict, and about host
// IPs without a host port.
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
				c.addf(at, "hostIP set without hostPort: %+v", port)
			}
			key := fmt.Sprintf("%d/%s", port.ContainerPort, port.Protocol)
			for _, other := range seen[key] {
				if relation := likeness(port, other.port); relation != "" {
					c.addf(at, "%s port definition with %s", relation, other.at)
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
				c.addf(at,
					"duplicate port name %q with %s, services and probes that select ports by name will use %s",
					port.Name, other, other)
				continue
			}
			seen[port.Name] = at
		}
	}
}

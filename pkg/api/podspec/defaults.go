// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson.dev/keelson/pkg/api/unset"
)

// DefaultSpec fills what is unset in the specification of a pod or a template.
func DefaultSpec(spec *corev1.PodSpec) {
	// Older clients know the account by another name; what is stored has both.
	unset.Fill(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	unset.Fill(&spec.DNSPolicy, corev1.DNSClusterFirst)
	unset.Fill(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	unset.Fill(&spec.SchedulerName, corev1.DefaultSchedulerName)
	unset.Point(&spec.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	for _, c := range Containers(spec, nil) {
		defaultContainer(c)
	}
	Milli(spec.Overhead)
	if spec.Resources != nil {
		Milli(spec.Resources.Limits)
		Milli(spec.Resources.Requests)
	}
}

func defaultContainer(c *corev1.Container) {
	defaultPullPolicy(&c.ImagePullPolicy, c.Image)
	unset.Fill(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	unset.Fill(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		unset.Fill(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from == nil {
			continue
		}
		defaultFieldRef(from.FieldRef)
		if from.FileKeyRef != nil {
			unset.Point(&from.FileKeyRef.Optional, false)
		}
	}
	Milli(c.Resources.Limits)
	Milli(c.Resources.Requests)
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(probe)
	}
	if c.Lifecycle != nil {
		defaultHook(c.Lifecycle.PostStart)
		defaultHook(c.Lifecycle.PreStop)
	}
}

// defaultPullPolicy looks at the image only where the policy is unset, which that of
// nothing stored is: every object that is read is defaulted, and names of images are
// read by regular expressions.
func defaultPullPolicy(policy *corev1.PullPolicy, image string) {
	if *policy == "" {
		*policy = pullPolicy(image)
	}
}

// pullPolicy is Always for an image that may change behind its name. An image
// that does not parse is left to validation, and is treated as fixed.
func pullPolicy(image string) corev1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return corev1.PullIfNotPresent
	}
	tagged, hasTag := named.(reference.Tagged)
	_, hasDigest := named.(reference.Digested)
	if (hasTag && tagged.Tag() == "latest") || (!hasTag && !hasDigest) {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	unset.Fill(&p.TimeoutSeconds, 1)
	unset.Fill(&p.PeriodSeconds, 10)
	unset.Fill(&p.SuccessThreshold, 1)
	unset.Fill(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		unset.Point(&p.GRPC.Service, "")
	}
}

func defaultHook(h *corev1.LifecycleHandler) {
	if h != nil {
		defaultHTTPGet(h.HTTPGet)
	}
}

func defaultHTTPGet(get *corev1.HTTPGetAction) {
	if get != nil {
		unset.Fill(&get.Path, "/")
		unset.Fill(&get.Scheme, corev1.URISchemeHTTP)
	}
}

func defaultFieldRef(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		unset.Fill(&ref.APIVersion, "v1")
	}
}

// Milli rounds quantities up to thousandths, the finest that the API keeps.
func Milli(list corev1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(resource.Milli)
		list[name] = quantity
	}
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/keelson/pkg/api/report"
)

// Role says which of the three lists of containers in a pod's specification a container is in.
type Role int

// The roles of containers, in the order in which Containers iterates over them.
const (
	Init Role = iota
	Main
	Ephemeral
)

// Containers iterates over all containers of a specification. path is the path of the
// specification. For an ephemeral container, it yields a Container that shares memory with the
// specification, so that changes of the Container change the specification.
func Containers(spec *corev1.PodSpec, path *field.Path) iter.Seq2[Place, *corev1.Container] {
	return func(yield func(Place, *corev1.Container) bool) {
		for i := range spec.InitContainers {
			if !yield(Place{Init, path.Child("initContainers").Index(i)}, &spec.InitContainers[i]) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(Place{Main, path.Child("containers").Index(i)}, &spec.Containers[i]) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			c := (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)
			if !yield(Place{Ephemeral, path.Child("ephemeralContainers").Index(i)}, c) {
				return
			}
		}
	}
}

// Place says where a container is in a pod's specification.
type Place struct {
	Role Role
	Path *field.Path
}

// Restartable reports whether an init container is a sidecar, which keeps running beside the main
// containers.
func Restartable(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func (c *check) checkMain(path *field.Path) {
	if len(c.spec.Containers) == 0 {
		c.Required(path, "")
		return
	}
	names := sets.New[string]()
	for i := range c.spec.Containers {
		container, at := &c.spec.Containers[i], path.Index(i)
		c.checkContainer(container, at)
		if names.Has(container.Name) {
			c.Duplicate(at.Child("name"), container.Name)
		}
		names.Insert(container.Name)
		c.checkLifecycle(container, at)
		c.checkRestartRules(container.RestartPolicy, container.RestartPolicyRules, at)
	}
	c.checkHostPortConflicts(c.spec.Containers, path)
}

func (c *check) checkInit(path *field.Path) {
	names := sets.New[string]()
	for i := range c.spec.Containers {
		names.Insert(c.spec.Containers[i].Name)
	}
	for i := range c.spec.InitContainers {
		container, at := &c.spec.InitContainers[i], path.Index(i)
		c.checkContainer(container, at)
		c.checkInitRestart(container, at)
		if names.Has(container.Name) {
			c.Duplicate(at.Child("name"), container.Name)
		} else if container.Name != "" {
			names.Insert(container.Name)
		}
		c.checkHostPortConflicts(c.spec.InitContainers[i:i+1], path)
		if Restartable(container) {
			c.checkLifecycle(container, at)
			continue
		}
		c.checkRunsOnce(container, at)
	}
}

func (c *check) checkInitRestart(container *corev1.Container, at *field.Path) {
	if container.RestartPolicy != nil {
		c.checkRestartRules(container.RestartPolicy, container.RestartPolicyRules, at)
	} else if len(container.RestartPolicyRules) > 0 {
		c.Required(at.Child("restartPolicy"), "must specify restartPolicy when restart rules are used")
	}
}

// checkRunsOnce reports fields that have no meaning for an init container that must finish before
// the next container starts.
func (c *check) checkRunsOnce(container *corev1.Container, at *field.Path) {
	const detail = "may not be set for init containers without restartPolicy=Always"
	if container.Lifecycle != nil {
		c.Forbidden(at.Child("lifecycle"), detail)
	}
	if container.LivenessProbe != nil {
		c.Forbidden(at.Child("livenessProbe"), detail)
	}
	if container.ReadinessProbe != nil {
		c.Forbidden(at.Child("readinessProbe"), detail)
	}
	if container.StartupProbe != nil {
		c.Forbidden(at.Child("startupProbe"), detail)
	}
	if c.old != nil && slices.ContainsFunc(c.old.InitContainers, runsAgain) {
		return
	}
	for j, policy := range container.ResizePolicy {
		if policy.RestartPolicy == corev1.RestartContainer {
			c.Invalid(at.Child("resizePolicy").Index(j).Child("restartPolicy"), policy.RestartPolicy,
				"must not be set to 'RestartContainer' for non-sidecar initContainers")
		}
	}
}

// runsAgain reports whether a resize would restart an init container that must finish. New pods
// must not have such a container, but older versions accepted them.
func runsAgain(container corev1.Container) bool {
	return !Restartable(&container) &&
		slices.ContainsFunc(container.ResizePolicy, func(p corev1.ContainerResizePolicy) bool {
			return p.RestartPolicy == corev1.RestartContainer
		})
}

func (c *check) checkEphemeral(path *field.Path) {
	targets := sets.New[string]()
	for place, container := range Containers(c.spec, path) {
		if place.Role != Ephemeral {
			targets.Insert(container.Name)
		}
	}
	names := targets.Clone()
	for i := range c.spec.EphemeralContainers {
		ephemeral, at := &c.spec.EphemeralContainers[i], path.Index(i)
		container := (*corev1.Container)(&ephemeral.EphemeralContainerCommon)
		c.checkContainer(container, at)
		c.checkImageSpace(container, at)
		if names.Has(ephemeral.Name) {
			c.Duplicate(at.Child("name"), ephemeral.Name)
		}
		names.Insert(ephemeral.Name)
		if target := ephemeral.TargetContainerName; target != "" && !targets.Has(target) {
			c.NotFound(at.Child("targetContainerName"), target)
		}
		c.checkEphemeralFields(container, at)
	}
}

func (c *check) checkEphemeralFields(container *corev1.Container, at *field.Path) {
	const detail = "cannot be set for an Ephemeral Container"
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"ports", container.Ports != nil},
		{"resources", container.Resources.Limits != nil || container.Resources.Requests != nil ||
			container.Resources.Claims != nil},
		{"resizePolicy", container.ResizePolicy != nil},
		{"restartPolicy", container.RestartPolicy != nil},
		{"restartPolicyRules", container.RestartPolicyRules != nil},
		{"livenessProbe", container.LivenessProbe != nil},
		{"readinessProbe", container.ReadinessProbe != nil},
		{"startupProbe", container.StartupProbe != nil},
		{"lifecycle", container.Lifecycle != nil},
	} {
		if f.set {
			c.Forbidden(at.Child(f.name), detail)
		}
	}
	for i, mount := range container.VolumeMounts {
		if mount.SubPath != "" {
			c.Forbidden(at.Child("volumeMounts").Index(i).Child("subPath"), detail)
		}
		if mount.SubPathExpr != "" {
			c.Forbidden(at.Child("volumeMounts").Index(i).Child("subPathExpr"), detail)
		}
	}
}

// checkContainer checks the rules that apply to main, init and ephemeral containers.
func (c *check) checkContainer(container *corev1.Container, at *field.Path) {
	c.RequiredLabel(at.Child("name"), container.Name)
	if container.Image == "" {
		c.Required(at.Child("image"), "")
	}
	report.OneOfRequired(&c.Report, at.Child("terminationMessagePolicy"), container.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)
	c.checkPorts(container.Ports, at.Child("ports"))
	c.checkEnv(container, at)
	c.checkMounts(container, at.Child("volumeMounts"))
	c.checkDevices(container, at.Child("volumeDevices"))
	c.checkPullPolicy(container.ImagePullPolicy, at.Child("imagePullPolicy"))
	c.Add(ValidateResources(&container.Resources, c.claims, at.Child("resources"))...)
	c.checkResizePolicy(container.ResizePolicy, at.Child("resizePolicy"))
	c.checkSecurity(container.SecurityContext, at.Child("securityContext"))
}

func (c *check) checkPullPolicy(policy corev1.PullPolicy, path *field.Path) {
	report.OneOfRequired(&c.Report, path, policy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}

func (c *check) checkImageSpace(container *corev1.Container, at *field.Path) {
	if strings.TrimSpace(container.Image) != container.Image {
		c.Invalid(at.Child("image"), container.Image, "must not have leading or trailing whitespace")
	}
}

func (c *check) checkPorts(ports []corev1.ContainerPort, path *field.Path) {
	names := sets.New[string]()
	for i, port := range ports {
		at := path.Index(i)
		if port.Name != "" {
			if reasons := naming.IsValidPortName(port.Name); len(reasons) > 0 {
				c.Each(at.Child("name"), port.Name, reasons)
			} else if names.Has(port.Name) {
				c.Duplicate(at.Child("name"), port.Name)
			} else {
				names.Insert(port.Name)
			}
		}
		if port.ContainerPort == 0 {
			c.Required(at.Child("containerPort"), "")
		} else {
			c.Each(at.Child("containerPort"), port.ContainerPort, validation.IsValidPortNum(int(port.ContainerPort)))
		}
		if port.HostPort != 0 {
			c.Each(at.Child("hostPort"), port.HostPort, validation.IsValidPortNum(int(port.HostPort)))
		}
		report.OneOfRequired(&c.Report, at.Child("protocol"), port.Protocol, corev1.ProtocolSCTP,
			corev1.ProtocolTCP, corev1.ProtocolUDP)
	}
}

func (c *check) checkHostPortConflicts(containers []corev1.Container, path *field.Path) {
	taken := sets.New[string]()
	for i := range containers {
		for j, port := range containers[i].Ports {
			if port.HostPort == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort)
			if taken.Has(key) {
				c.Duplicate(path.Index(i).Child("ports").Index(j).Child("hostPort"), key)
			}
			taken.Insert(key)
		}
	}
}

// checkHostPorts requires that each host port of a pod in the host's network is equal to the
// container port.
func (c *check) checkHostPorts(path *field.Path) {
	if !c.spec.HostNetwork {
		return
	}
	for i := range c.spec.Containers {
		for j, port := range c.spec.Containers[i].Ports {
			if (c.isPod() || port.HostPort != 0) && port.HostPort != port.ContainerPort {
				c.Invalid(path.Index(i).Child("ports").Index(j).Child("hostPort"), port.HostPort,
					"must match `containerPort` when `hostNetwork` is true")
			}
		}
	}
}

func (c *check) checkResizePolicy(policies []corev1.ContainerResizePolicy, path *field.Path) {
	seen := sets.New[corev1.ResourceName]()
	for i, p := range policies {
		if seen.Has(p.ResourceName) {
			c.Duplicate(path.Index(i), p.ResourceName)
		}
		seen.Insert(p.ResourceName)
		report.OneOfRequired(&c.Report, path, p.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)
		report.OneOfRequired(&c.Report, path, p.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)
		if c.spec.RestartPolicy == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired {
			c.Invalid(path, p.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")
		}
	}
}

const (
	maxRestartRules = 20
	maxExitCodes    = 255
)

func (c *check) checkRestartRules(policy *corev1.ContainerRestartPolicy, rules []corev1.ContainerRestartRule,
	at *field.Path) {
	if policy != nil {
		report.OneOf(&c.Report, at.Child("restartPolicy"), *policy,
			corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)
	} else if len(rules) > 0 {
		c.Required(at.Child("restartPolicy"), "must specify restartPolicy when restart rules are used")
	} else {
		return
	}
	path := at.Child("restartPolicyRules")
	if len(rules) > maxRestartRules {
		c.TooMany(path, len(rules), maxRestartRules)
	}
	for i, rule := range rules {
		report.OneOf(&c.Report, path.Index(i).Child("action"), rule.Action,
			corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)
		codes := path.Index(i).Child("exitCodes")
		if rule.ExitCodes == nil {
			c.Required(codes, "must be specified")
			continue
		}
		report.OneOf(&c.Report, codes.Child("operator"), rule.ExitCodes.Operator,
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)
		if n := len(rule.ExitCodes.Values); n > maxExitCodes {
			c.TooMany(codes.Child("values"), n, maxExitCodes)
		}
	}
}

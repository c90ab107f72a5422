// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/keelson/pkg/api/report"
)

// checkLifecycle validates the hooks and probes of a main container or sidecar.
func (c *check) checkLifecycle(container *corev1.Container, at *field.Path) {
	if l := container.Lifecycle; l != nil {
		path := at.Child("lifecycle")
		if l.PostStart != nil {
			c.checkAction(hookAction(l.PostStart), path.Child("postStart"))
		}
		if l.PreStop != nil {
			c.checkAction(hookAction(l.PreStop), path.Child("preStop"))
		}
	}
	if p := container.LivenessProbe; p != nil {
		c.checkProbe(p, at.Child("livenessProbe"))
		c.checkOneSuccess(p, at.Child("livenessProbe"))
	}
	if p := container.ReadinessProbe; p != nil {
		c.checkProbe(p, at.Child("readinessProbe"))
		if p.TerminationGracePeriodSeconds != nil {
			c.Invalid(at.Child("readinessProbe", "terminationGracePeriodSeconds"),
				p.TerminationGracePeriodSeconds, "must not be set for readinessProbes")
		}
	}
	if p := container.StartupProbe; p != nil {
		c.checkProbe(p, at.Child("startupProbe"))
		c.checkOneSuccess(p, at.Child("startupProbe"))
	}
}

func (c *check) checkOneSuccess(p *corev1.Probe, path *field.Path) {
	if p.SuccessThreshold != 1 {
		c.Invalid(path.Child("successThreshold"), p.SuccessThreshold, "must be 1")
	}
}

func (c *check) checkProbe(p *corev1.Probe, path *field.Path) {
	c.checkAction(action{p.Exec, p.HTTPGet, p.TCPSocket, p.GRPC, nil}, path)
	c.NotNegative(path.Child("initialDelaySeconds"), int64(p.InitialDelaySeconds))
	c.NotNegative(path.Child("timeoutSeconds"), int64(p.TimeoutSeconds))
	c.NotNegative(path.Child("periodSeconds"), int64(p.PeriodSeconds))
	c.NotNegative(path.Child("successThreshold"), int64(p.SuccessThreshold))
	c.NotNegative(path.Child("failureThreshold"), int64(p.FailureThreshold))
	if grace := p.TerminationGracePeriodSeconds; grace != nil && *grace <= 0 {
		c.Invalid(path.Child("terminationGracePeriodSeconds"), *grace, "must be greater than 0")
	}
}

// action is the action of a probe or hook. Exactly one field must be set.
type action struct {
	exec  *corev1.ExecAction
	get   *corev1.HTTPGetAction
	tcp   *corev1.TCPSocketAction
	grpc  *corev1.GRPCAction
	sleep *corev1.SleepAction
}

func hookAction(h *corev1.LifecycleHandler) action {
	return action{h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep}
}

func (c *check) checkAction(a action, path *field.Path) {
	found := false
	one := func(name string, set bool, validate func(*field.Path)) {
		if !set {
			return
		}
		if found {
			c.Forbidden(path.Child(name), "may not specify more than 1 handler type")
			return
		}
		found = true
		validate(path.Child(name))
	}
	one("exec", a.exec != nil, func(at *field.Path) {
		if len(a.exec.Command) == 0 {
			c.Required(at.Child("command"), "")
		}
	})
	one("httpGet", a.get != nil, func(at *field.Path) { c.checkHTTPGet(a.get, at) })
	one("tcpSocket", a.tcp != nil, func(at *field.Path) { c.checkPort(a.tcp.Port, at.Child("port")) })
	one("grpc", a.grpc != nil, func(at *field.Path) { c.checkPort(intstr.FromInt32(a.grpc.Port), at.Child("port")) })
	one("sleep", a.sleep != nil, func(at *field.Path) {
		grace := c.spec.TerminationGracePeriodSeconds
		if grace != nil && (a.sleep.Seconds < 0 || a.sleep.Seconds > *grace) {
			c.Invalid(at, a.sleep.Seconds,
				fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace))
		}
	})
	if !found {
		c.Required(path, "must specify a handler type")
	}
}

func (c *check) checkHTTPGet(get *corev1.HTTPGetAction, path *field.Path) {
	if get.Path == "" {
		c.Required(path.Child("path"), "")
	}
	c.checkPort(get.Port, path.Child("port"))
	report.OneOf(&c.Report, path.Child("scheme"), get.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)
	for _, header := range get.HTTPHeaders {
		c.Each(path.Child("httpHeaders"), header.Name, validation.IsHTTPHeaderName(header.Name))
	}
}

func (c *check) checkPort(port intstr.IntOrString, path *field.Path) {
	c.Add(ValidatePort(port, path)...)
}

// ValidatePort requires a valid port number or port name.
func ValidatePort(port intstr.IntOrString, path *field.Path) field.ErrorList {
	var r report.Report
	if port.Type == intstr.String {
		r.Each(path, port.StrVal, naming.IsValidPortName(port.StrVal))
	} else {
		r.Each(path, port.IntValue(), validation.IsValidPortNum(port.IntValue()))
	}
	return r.Errors
}

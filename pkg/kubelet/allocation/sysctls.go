// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/node/util/sysctl"
)

const reasonSysctl = "SysctlForbidden"

// safe returns the sysctls that every pod may set. The value is the first kernel version in which
// the sysctl is namespaced; an empty value means all supported versions.
func safe() map[string]string {
	return map[string]string{
		"kernel.shm_rmid_forced":              "",
		"net.ipv4.ip_local_port_range":        "",
		"net.ipv4.tcp_syncookies":             "",
		"net.ipv4.ping_group_range":           "",
		"net.ipv4.ip_unprivileged_port_start": "",
		"net.ipv4.ip_local_reserved_ports":    "3.16",
		"net.ipv4.tcp_keepalive_time":         "4.5",
		"net.ipv4.tcp_keepalive_intvl":        "4.5",
		"net.ipv4.tcp_keepalive_probes":       "4.5",
		"net.ipv4.tcp_fin_timeout":            "4.6",
		"net.ipv4.tcp_rmem":                   "4.15",
		"net.ipv4.tcp_wmem":                   "4.15",
	}
}

// Sysctls holds the sysctls that pods may set, by name and by prefix.
type Sysctls struct {
	names, prefixes map[string]sysctl.Namespace
}

// NewSysctls allows the safe sysctls that this kernel namespaces, and the sysctls in allowed, which
// the operator has configured. kernel is the version in the form of uname. An entry of allowed is a
// name, or a prefix followed by "*".
func NewSysctls(kernel string, allowed []string) (*Sysctls, error) {
	s := &Sysctls{names: map[string]sysctl.Namespace{}, prefixes: map[string]sysctl.Namespace{}}
	running, err := version.ParseGeneric(kernel)
	for name, since := range safe() {
		if since == "" || err == nil && running.AtLeast(version.MustParseGeneric(since)) {
			allowed = append(allowed[:len(allowed):len(allowed)], name)
		}
	}
	var errs []error
	for _, pattern := range allowed {
		ns, name, prefix := sysctl.GetNamespace(pattern)
		switch {
		case ns == sysctl.UnknownNamespace:
			errs = append(errs, fmt.Errorf("the sysctls %q are not known to be namespaced", name))
		case prefix:
			s.prefixes[name] = ns
		default:
			s.names[name] = ns
		}
	}
	return s, errors.Join(errs...)
}

// Check returns why the pod may not set its sysctls, or nil if it may.
func (s *Sysctls) Check(pod *v1.Pod) *Refusal {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	hostUsers := pod.Spec.HostUsers == nil || *pod.Spec.HostUsers
	for _, want := range pod.Spec.SecurityContext.Sysctls {
		name := sysctl.NormalizeName(want.Name)
		ns, ok := s.namespace(name)
		switch {
		case !ok:
			return &Refusal{Reason: reasonSysctl, Message: fmt.Sprintf("forbidden sysctl: %q not allowlisted", name)}
		case ns == sysctl.IPCNamespace && pod.Spec.HostIPC, ns == sysctl.NetNamespace && pod.Spec.HostNetwork,
			ns == sysctl.UserNamespace && hostUsers:
			return &Refusal{Reason: reasonSysctl,
				Message: fmt.Sprintf("forbidden sysctl: %q not allowed with host %s enabled", name, ns)}
		}
	}
	return nil
}

func (s *Sysctls) namespace(name string) (sysctl.Namespace, bool) {
	if ns, ok := s.names[name]; ok {
		return ns, true
	}
	for prefix, ns := range s.prefixes {
		if strings.HasPrefix(name, prefix) {
			return ns, true
		}
	}
	return "", false
}

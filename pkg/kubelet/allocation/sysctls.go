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

// safe returns the sysctls that every pod may set, each with the first kernel version in which it
// is namespaced.
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

// Sysctls knows which sysctls pods may set.
type Sysctls struct {
	names, prefixes map[string]sysctl.Namespace
}

// NewSysctls allows the safe sysctls that are namespaced in the kernel (its version as uname
// reports it), and the sysctls that the operator allows by name or as "prefix*".
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

// Check returns why the pod's sysctls are not allowed, or nil.
func (s *Sysctls) Check(pod *v1.Pod) *Refusal {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	for _, want := range pod.Spec.SecurityContext.Sysctls {
		name := sysctl.NormalizeName(want.Name)
		ns, ok := s.namespace(name)
		switch {
		case !ok:
			return &Refusal{Reason: reasonSysctl, Message: fmt.Sprintf("forbidden sysctl: %q not allowlisted", name)}
		case ns == sysctl.IPCNamespace && pod.Spec.HostIPC, ns == sysctl.NetNamespace && pod.Spec.HostNetwork:
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

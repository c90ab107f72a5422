// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// masterService is the Service of the API server, in the namespace default. Every container gets
// its variables.
const masterService = "kubernetes"

// serviceVariables returns the environment variables with the addresses of Services. They include
// the Services in the pod's namespace if links is true, and the API server's Service in any case.
func serviceVariables(services []*v1.Service, namespace string, links bool) map[string]string {
	visible := map[string]*v1.Service{}
	for _, s := range services {
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == v1.ClusterIPNone || len(s.Spec.Ports) == 0 {
			continue
		}
		switch {
		case s.Namespace == metav1.NamespaceDefault && s.Name == masterService:
			// A Service of this name in the pod's own namespace takes precedence.
			if _, ok := visible[s.Name]; !ok {
				visible[s.Name] = s
			}
		case s.Namespace == namespace && links:
			visible[s.Name] = s
		}
	}
	vars := map[string]string{}
	for _, s := range visible {
		addService(vars, s)
	}
	return vars
}

func addService(vars map[string]string, s *v1.Service) {
	prefix := variableName(s.Name)
	ip := s.Spec.ClusterIP
	first := s.Spec.Ports[0]
	vars[prefix+"_SERVICE_HOST"] = ip
	vars[prefix+"_SERVICE_PORT"] = strconv.Itoa(int(first.Port))
	for _, p := range s.Spec.Ports {
		if p.Name != "" {
			vars[prefix+"_SERVICE_PORT_"+variableName(p.Name)] = strconv.Itoa(int(p.Port))
		}
	}
	// The following variables have the names that Docker used for links to containers.
	vars[prefix+"_PORT"] = portURL(ip, first)
	for _, p := range s.Spec.Ports {
		name := fmt.Sprintf("%s_PORT_%d_%s", prefix, p.Port, strings.ToUpper(protocol(p)))
		vars[name] = portURL(ip, p)
		vars[name+"_PROTO"] = strings.ToLower(protocol(p))
		vars[name+"_PORT"] = strconv.Itoa(int(p.Port))
		vars[name+"_ADDR"] = ip
	}
}

func variableName(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "-", "_")) }

func protocol(p v1.ServicePort) string {
	if p.Protocol == "" {
		return string(v1.ProtocolTCP)
	}
	return string(p.Protocol)
}

func portURL(ip string, p v1.ServicePort) string {
	return strings.ToLower(protocol(p)) + "://" + net.JoinHostPort(ip, strconv.Itoa(int(p.Port)))
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"fmt"
	"net/netip"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SandboxInput holds what a sandbox's configuration depends on, besides the pod.
type SandboxInput struct {
	Attempt uint32
	// Hostname is empty for pods that use the host's network.
	Hostname     string
	DNS          *runtimeapi.DNSConfig
	LogRoot      string
	CgroupParent string
	// UserNamespace is nil for pods that use the host's user namespace.
	UserNamespace *runtimeapi.UserNamespace
	// Resources and Overhead determine the size of the sandbox if the runtime runs it in a virtual
	// machine.
	Resources, Overhead *runtimeapi.LinuxContainerResources
}

// maxFileName is the maximum length of a file name in bytes.
const maxFileName = 255

// PodLogDir returns the directory for the logs of a pod's containers. Its name is
// NAMESPACE_NAME_UID. If this is too long for a file name, the pod's name is truncated. The
// directory is unique in any case, because its name contains the UID.
func PodLogDir(root string, pod *v1.Pod) string {
	before, after := pod.Namespace+"_", "_"+string(pod.UID)
	name := pod.Name[:min(len(pod.Name), max(maxFileName-len(before)-len(after), 1))]
	return filepath.Join(root, before+name+after)
}

// SandboxConfig returns the configuration of a pod's sandbox.
func SandboxConfig(pod *v1.Pod, in SandboxInput) (*runtimeapi.PodSandboxConfig, error) {
	sc, err := sandboxSecurity(pod, in.UserNamespace)
	if err != nil {
		return nil, err
	}
	linux := &runtimeapi.LinuxPodSandboxConfig{
		CgroupParent: in.CgroupParent, SecurityContext: sc, Sysctls: map[string]string{},
		Resources: in.Resources, Overhead: in.Overhead,
	}
	if p := pod.Spec.SecurityContext; p != nil {
		for _, s := range p.Sysctls {
			linux.Sysctls[s.Name] = s.Value
		}
	}
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace,
			Uid: string(pod.UID), Attempt: in.Attempt},
		Labels:       podLabels(pod),
		Annotations:  pod.Annotations,
		Hostname:     in.Hostname,
		DnsConfig:    in.DNS,
		LogDirectory: PodLogDir(in.LogRoot, pod),
		PortMappings: portMappings(pod),
		Linux:        linux,
	}, nil
}

func sandboxSecurity(pod *v1.Pod, userns *runtimeapi.UserNamespace) (*runtimeapi.LinuxSandboxSecurityContext, error) {
	sc := &runtimeapi.LinuxSandboxSecurityContext{
		Privileged:       privileged(pod),
		Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
		NamespaceOptions: namespaces(pod, userns),
	}
	p := pod.Spec.SecurityContext
	if p == nil {
		return sc, nil
	}
	sc.RunAsUser, sc.RunAsGroup = int64Value(p.RunAsUser), int64Value(p.RunAsGroup)
	sc.SelinuxOptions = selinux(p.SELinuxOptions)
	var err error
	sc.SupplementalGroups, sc.SupplementalGroupsPolicy, err = groups(p)
	return sc, err
}

func groups(p *v1.PodSecurityContext) ([]int64, runtimeapi.SupplementalGroupsPolicy, error) {
	var ids []int64
	if p.FSGroup != nil {
		ids = append(ids, *p.FSGroup)
	}
	ids = append(ids, p.SupplementalGroups...)
	policy := runtimeapi.SupplementalGroupsPolicy_Merge
	if want := p.SupplementalGroupsPolicy; want != nil {
		v, ok := runtimeapi.SupplementalGroupsPolicy_value[string(*want)]
		if !ok {
			return nil, policy, fmt.Errorf("unsupported supplementalGroupsPolicy: %s", *want)
		}
		policy = runtimeapi.SupplementalGroupsPolicy(v)
	}
	return ids, policy, nil
}

func namespaces(pod *v1.Pod, userns *runtimeapi.UserNamespace) *runtimeapi.NamespaceOption {
	o := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER, UsernsOptions: userns}
	if pod.Spec.HostNetwork {
		o.Network = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		o.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		o.Pid = runtimeapi.NamespaceMode_NODE
	case pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace:
		o.Pid = runtimeapi.NamespaceMode_POD
	}
	return o
}

func privileged(pod *v1.Pod) bool {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			if c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged {
				return true
			}
		}
	}
	return false
}

// portMappings returns the ports of the pod's main containers and sidecars. If a container has the
// same port twice, the port is returned once for this container.
func portMappings(pod *v1.Pod) []*runtimeapi.PortMapping {
	var out []*runtimeapi.PortMapping
	containers := append([]v1.Container{}, pod.Spec.Containers...)
	for _, c := range pod.Spec.InitContainers {
		if Sidecar(&c) {
			containers = append(containers, c)
		}
	}
	for _, c := range containers {
		seen := map[string]bool{}
		for _, p := range c.Ports {
			family := "any"
			if ip, err := netip.ParseAddr(p.HostIP); err == nil {
				family = map[bool]string{true: "v6", false: "v4"}[ip.Is6()]
			}
			name := p.Name
			if name == "" {
				name = fmt.Sprintf("%s-%s-%s:%d:%d", family, p.Protocol, p.HostIP, p.ContainerPort, p.HostPort)
			}
			if seen[name] {
				continue
			}
			seen[name] = true
			out = append(out, &runtimeapi.PortMapping{
				Protocol: protocol(p.Protocol), ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP,
			})
		}
	}
	return out
}

func protocol(p v1.Protocol) runtimeapi.Protocol {
	switch p {
	case v1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case v1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	default:
		return runtimeapi.Protocol_TCP
	}
}

// Sidecar reports whether c is a sidecar: an init container with the restart policy Always, which
// keeps running beside the main containers.
func Sidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

func int64Value(v *int64) *runtimeapi.Int64Value {
	if v == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *v}
}

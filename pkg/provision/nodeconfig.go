// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"net"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentconfig "k8s.io/component-base/config/v1alpha1"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// podProcesses is the maximum number of processes and threads in a pod.
const podProcesses = 4096

// When a machine shuts down, the kubelet gives its pods shutdownPeriod to end. The last part of it,
// shutdownCritical, is for critical pods. Without these periods, pods get no signal until systemd
// ends all remaining processes, and systemd then waits 90 s for those that ignore it.
const (
	shutdownPeriod   = 20 * time.Second
	shutdownCritical = 5 * time.Second
)

func (n *Node) kubeletConfiguration() *kubeletconfig.KubeletConfiguration {
	yes, no := true, false
	first := n.Cluster.Families[0]
	out := &kubeletconfig.KubeletConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: "kubelet.config.k8s.io/v1beta1", Kind: "KubeletConfiguration"},
		Address:  first.Unspecified().String(),
		Authentication: kubeletconfig.KubeletAuthentication{
			X509:      kubeletconfig.KubeletX509Authentication{ClientCAFile: nodeCA},
			Webhook:   kubeletconfig.KubeletWebhookAuthentication{Enabled: &yes},
			Anonymous: kubeletconfig.KubeletAnonymousAuthentication{Enabled: &no},
		},
		Authorization: kubeletconfig.KubeletAuthorization{Mode: kubeletconfig.KubeletAuthorizationModeWebhook},
		// The kubelet's first certificates may be written for it; the kubelet renews them by itself.
		ServerTLSBootstrap: true,
		RotateCertificates: true,
		TLSMinVersion:      tlsVersion,
		TLSCipherSuites:    tlsSuites(),
		StaticPodPath:      staticPods,
		// Pods ask the DNS forwarder on their node first, and the DNS Service if the forwarder does
		// not respond.
		ClusterDNS:     []string{n.Addresses[0], first.DNS.String()},
		ClusterDomain:  n.Cluster.Domain,
		ResolverConfig: pointer("/etc/resolv.conf"),
		// Not systemd's driver, because crun is built without systemd.
		CgroupDriver:             "cgroupfs",
		CgroupRoot:               "/",
		ContainerRuntimeEndpoint: "unix://" + ContainerdSocket,
		FailSwapOn:               &no,
		SeccompDefault:           &yes,
		PodPidsLimit:             pointer(int64(podProcesses)),
		EnableProfilingHandler:   &no,
		ReadOnlyPort:             0,
		// 0 disables the unauthenticated port: /healthz is served on the kubelet's authenticated
		// port.
		HealthzPort:                     pointer(int32(0)),
		ShutdownGracePeriod:             metav1.Duration{Duration: shutdownPeriod},
		ShutdownGracePeriodCriticalPods: metav1.Duration{Duration: shutdownCritical},
	}
	if n.Kubelet != nil {
		n.Kubelet(out)
	}
	return out
}

func (n *Node) proxyConfiguration() *proxyconfig.KubeProxyConfiguration {
	first := n.Cluster.Families[0]
	return &proxyconfig.KubeProxyConfiguration{
		TypeMeta:           metav1.TypeMeta{APIVersion: "kubeproxy.config.k8s.io/v1alpha1", Kind: "KubeProxyConfiguration"},
		BindAddress:        first.Unspecified().String(),
		HealthzBindAddress: net.JoinHostPort(first.loopback(), "10256"),
		MetricsBindAddress: net.JoinHostPort(first.loopback(), "10249"),
		ClusterCIDR:        n.Cluster.podRanges(),
		HostnameOverride:   n.Name,
		Mode:               "nftables",
		ClientConnection:   componentconfig.ClientConnectionConfiguration{Kubeconfig: proxyConf},
	}
}

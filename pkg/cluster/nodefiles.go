// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"text/template"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/atomicfile"
)

// Paths of files inside a node.
const (
	kubeletConf    = "/etc/kubernetes/kubelet.conf"
	bootstrapConf  = "/etc/kubernetes/bootstrap-kubelet.conf"
	kubeletYAML    = "/var/lib/kubelet/config.yaml"
	kubeletCerts   = "/var/lib/kubelet/pki"
	nodeCA         = "/etc/kubernetes/pki/ca.crt"
	proxyRoot      = "/var/lib/kube-proxy"
	proxyConf      = proxyRoot + "/kubeconfig.conf"
	proxyYAML      = proxyRoot + "/config.conf"
	proxyPair      = proxyRoot + "/client" // without the extensions .crt and .key
	containerdTOML = "/etc/containerd/config.toml"
	containerdRoot = "/var/lib/containerd"
	containerdSock = "/run/containerd/containerd.sock"
	registryConfig = "/etc/containerd/certs.d"
	sandboxImage   = "registry.k8s.io/pause:3.10.2"
)

// podProcesses is the maximum number of processes and threads in a pod.
const podProcesses = 4096

// makeNode writes the files that a node needs before its host starts. It does not replace
// certificates, or files that an operator may have changed.
func makeNode(c *Config, n Node, clk clock.Clock) error {
	d, nd := c.dirs(), c.dirs().node(n.Name)
	for _, dir := range []string{"etc.work", "tmp", "var/lib/kubelet", "var/lib/cni", "var/log/pods", "var/log/containers",
		"opt/cni/bin", "etc/cni/net.d", registryConfig, "etc/kubernetes/manifests"} {
		if err := os.MkdirAll(nd.path(dir), 0o755); err != nil {
			return fmt.Errorf("node directory: %w", err)
		}
	}
	for _, dir := range []string{kubeletCerts, proxyRoot} {
		if err := os.MkdirAll(nd.path(dir), 0o700); err != nil {
			return fmt.Errorf("node directory: %w", err)
		}
	}
	if err := os.Chmod(nd.path("tmp"), 0o777|os.ModeSticky); err != nil {
		return fmt.Errorf("node directory: %w", err)
	}
	if err := nodeCredentials(d, nd, c, n, clk); err != nil {
		return err
	}
	if err := linkPlugins(c.ToolsDir, nd.path("opt/cni/bin")); err != nil {
		return err
	}
	files, err := nodeFiles(c, n)
	if err != nil {
		return err
	}
	for _, f := range files {
		mode := os.FileMode(0o600)
		if f.public {
			mode = 0o644
		}
		if f.keep && exists(nd.path(f.path)) {
			if err := os.Chmod(nd.path(f.path), mode); err != nil {
				return fmt.Errorf("node file: %w", err)
			}
			continue
		}
		if err := atomicfile.WriteDurably(nd.path(f.path), f.data, mode); err != nil {
			return err
		}
	}
	return writeJSON(nd.spec(), n)
}

type nodeFile struct {
	path string
	data []byte
	keep bool // do not replace an existing file
	// public makes the file readable by all users. Programs that run as other users than root need
	// it.
	public bool
}

func nodeFiles(c *Config, n Node) ([]nodeFile, error) {
	kubelet, err := yaml.Marshal(kubeletConfiguration(c, n))
	if err != nil {
		return nil, fmt.Errorf("kubelet configuration: %w", err)
	}
	proxy, err := yaml.Marshal(proxyConfiguration(n))
	if err != nil {
		return nil, fmt.Errorf("proxy configuration: %w", err)
	}
	runtime, err := containerdConfig(containerdRoot, cmp.Or(c.Runtime, crun), exists(filepath.Join(c.ToolsDir, runc)))
	if err != nil {
		return nil, err
	}
	id := sha256.Sum256([]byte(c.Name + "/" + n.Name))
	return []nodeFile{
		{path: kubeletYAML, data: kubelet, keep: true},
		{path: proxyYAML, data: proxy, keep: true},
		{path: containerdTOML, data: runtime, keep: true},
		{path: "/etc/hostname", data: []byte(n.Name + "\n"), public: true},
		{path: "/etc/hosts", data: []byte(hostsFile(n)), public: true},
		// The file has no name server. Outside the cluster, none is reachable, and pods must not
		// use the machine's name servers.
		{path: "/etc/resolv.conf", data: []byte("options ndots:1\n"), public: true},
		{path: "/etc/machine-id", data: []byte(hex.EncodeToString(id[:16]) + "\n"), public: true},
	}, nil
}

// linkPlugins links the CNI plugins into the directory from which the container runtime runs them.
// A pod that installs a plugin in another version than the node's replaces only the link, not the
// file that all nodes share.
func linkPlugins(tools, bin string) error {
	entries, err := os.ReadDir(filepath.Join(tools, "cni"))
	if err != nil {
		return fmt.Errorf("CNI plugins: %w", err)
	}
	for _, e := range entries {
		link := filepath.Join(bin, e.Name())
		if exists(link) {
			continue
		}
		if err := os.Symlink(filepath.Join(insideTools, "cni", e.Name()), link); err != nil {
			return fmt.Errorf("CNI plugin: %w", err)
		}
	}
	return nil
}

func kubeletConfiguration(c *Config, n Node) *kubeletconfig.KubeletConfiguration {
	yes, no := true, false
	return &kubeletconfig.KubeletConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: "kubelet.config.k8s.io/v1beta1", Kind: "KubeletConfiguration"},
		Address:  n.IPFamily.primary().all,
		Authentication: kubeletconfig.KubeletAuthentication{
			X509:      kubeletconfig.KubeletX509Authentication{ClientCAFile: nodeCA},
			Webhook:   kubeletconfig.KubeletWebhookAuthentication{Enabled: &yes},
			Anonymous: kubeletconfig.KubeletAnonymousAuthentication{Enabled: &no},
		},
		Authorization: kubeletconfig.KubeletAuthorization{Mode: kubeletconfig.KubeletAuthorizationModeWebhook},
		// Keelson writes the kubelet's first certificates; the kubelet renews them by itself.
		ServerTLSBootstrap: true,
		RotateCertificates: true,
		TLSMinVersion:      tlsVersion,
		TLSCipherSuites:    tlsSuites(),
		StaticPodPath:      "/etc/kubernetes/manifests",
		// Pods ask the DNS forwarder on their node first, and the DNS Service if the forwarder does
		// not respond.
		ClusterDNS:               []string{n.Addresses()[0], n.IPFamily.primary().dns},
		ClusterDomain:            clusterDomain,
		ResolverConfig:           pointer("/etc/resolv.conf"),
		CgroupDriver:             "cgroupfs",
		CgroupRoot:               cgroupOf(c.Name, n.Name),
		ContainerRuntimeEndpoint: "unix://" + containerdSock,
		FailSwapOn:               &no,
		// All nodes use the machine's disk. Pods must run even if that disk is 90% full, so the
		// limits are lower than the kubelet's defaults.
		EvictionHard: map[string]string{
			"memory.available": "100Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%",
			"imagefs.available": "1%", "imagefs.inodesFree": "1%",
		},
		ImageGCHighThresholdPercent: pointer(int32(100)),
		SeccompDefault:              &yes,
		PodPidsLimit:                pointer(int64(podProcesses)),
		EnableProfilingHandler:      &no,
		ReadOnlyPort:                0,
		// 0 disables the unauthenticated port: /healthz is served on the kubelet's authenticated
		// port.
		HealthzPort:         pointer(int32(0)),
		ShutdownGracePeriod: metav1.Duration{Duration: 0},
	}
}

func proxyConfiguration(n Node) *proxyconfig.KubeProxyConfiguration {
	all := n.IPFamily.primary()
	return &proxyconfig.KubeProxyConfiguration{
		TypeMeta:           metav1.TypeMeta{APIVersion: "kubeproxy.config.k8s.io/v1alpha1", Kind: "KubeProxyConfiguration"},
		BindAddress:        all.all,
		HealthzBindAddress: net.JoinHostPort(all.loopback, "10256"),
		MetricsBindAddress: net.JoinHostPort(all.loopback, "10249"),
		ClusterCIDR:        n.IPFamily.podCIDRs(),
		HostnameOverride:   n.Name,
		Mode:               "nftables",
		ClientConnection:   proxyClient(),
	}
}

func hostsFile(n Node) string {
	out := "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"
	for _, a := range n.Addresses() {
		out += a + " " + n.Name + "\n"
	}
	return out
}

func pointer[T any](v T) *T { return &v }

// containerdTemplate is the template of containerd's configuration. A RuntimeClass can name the
// handlers crun, test-handler, and runc if it is built. Kubernetes' conformance tests use
// test-handler, which runs crun.
var containerdTemplate = template.Must(template.New("containerd").Parse(`version = 3
root = "{{.Root}}"
state = "/run/containerd"

[grpc]
  address = "{{.Socket}}"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  use_local_image_pull = true
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{{.Sandbox}}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "{{.Registry}}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true
  # The kubelet takes rates over ten seconds itself: counting every second is for nobody.
  stats_collect_period = "10s"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "{{.Default}}"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.crun]
      runtime_type = "io.containerd.runc.v2"
      # What the runtime tells kubelets: left out it is systemd's where that runs, and containers are made by cgroupfs.
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.crun.options]
        BinaryName = "{{.Tools}}/crun"
        SystemdCgroup = false
{{- if .Runc}}
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = "{{.Tools}}/runc"
        SystemdCgroup = false
{{- end}}
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.test-handler]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.test-handler.options]
        BinaryName = "{{.Tools}}/crun"
        SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    # The loopback interface is brought up without running a plugin for it.
    use_internal_loopback = true
    bin_dirs = ["/opt/cni/bin"]
    conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.nri.v1.nri"]
  disable = true
`))

// containerdConfig returns containerd's configuration for a root directory and a default runtime.
// The handler runc is included only if withRunc is true.
func containerdConfig(root, defaultRuntime string, withRunc bool) ([]byte, error) {
	var buf bytes.Buffer
	err := containerdTemplate.Execute(&buf, map[string]any{
		"Root": root, "Socket": containerdSock, "Sandbox": sandboxImage, "Registry": registryConfig, "Tools": insideTools,
		"Default": defaultRuntime, "Runc": withRunc,
	})
	if err != nil {
		return nil, fmt.Errorf("containerd configuration: %w", err)
	}
	return buf.Bytes(), nil
}

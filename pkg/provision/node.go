// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"keelson.dev/keelson/pkg/atomicfile"
)

// Paths of files on a node, as the node sees them.
const (
	// BootstrapKubeconfig is the kubeconfig with a join token, with which a kubelet requests its
	// first certificate.
	BootstrapKubeconfig = "/etc/kubernetes/bootstrap-kubelet.conf"
	// ProxyCertificate is the proxy's client certificate, without the extensions .crt and .key.
	ProxyCertificate = ProxyRoot + "/client"
	// ProxyRoot is the directory of the proxy's files.
	ProxyRoot = "/var/lib/kube-proxy"
	// AgentProxyPair is the file with the proxy's client certificate and its key, if the machine's
	// agent has requested the certificate.
	AgentProxyPair = ProxyRoot + "/kube-proxy-client-current.pem"
	// KubeletKubeconfig is the kubelet's kubeconfig.
	KubeletKubeconfig = "/etc/kubernetes/kubelet.conf"

	kubeletYAML    = "/var/lib/kubelet/config.yaml"
	kubeletCerts   = "/var/lib/kubelet/pki"
	nodeCA         = "/etc/kubernetes/pki/ca.crt"
	staticPods     = "/etc/kubernetes/manifests"
	proxyConf      = ProxyRoot + "/kubeconfig.conf"
	proxyYAML      = ProxyRoot + "/config.conf"
	networkPlugins = "/opt/cni/bin"
)

// Node describes a node: a kubelet, a proxy and a containerd.
type Node struct {
	Cluster *Cluster
	Name    string
	// Addresses has the node's addresses, one for each IP family.
	Addresses []string
	// Root is the directory that the node sees as /. It is empty on a machine.
	Root string
	// Tools is the directory of containerd's tools as the node sees it: the OCI runtimes and, in the
	// subdirectory cni, the network plugins. ToolsSource is the same directory as the caller sees it,
	// if its path differs.
	Tools, ToolsSource string
	// Runtime is the OCI runtime of containers whose pod has no RuntimeClass. If empty, Crun.
	Runtime string
	// Server is the API server's URL for the kubelet and the proxy.
	Server string
	// Joins is true for a node whose kubelet starts with a join token and requests its own
	// certificates.
	Joins bool
	// OverrideHostname is true if the host name may differ from Name.
	OverrideHostname bool
	// Kubelet, if it is not nil, changes the kubelet's configuration, which is otherwise that of a
	// machine. It must not change the paths of files.
	Kubelet func(*kubeletconfig.KubeletConfiguration)
}

func (n *Node) path(inside ...string) string {
	return filepath.Join(append([]string{n.Root}, inside...)...)
}

// WriteFiles makes the directories, configuration files and links to network plugins that the node's
// programs need. It keeps existing files, because the operator may have changed them.
func (n *Node) WriteFiles() error {
	for _, dir := range []struct {
		path string
		mode os.FileMode
	}{
		{"/var/lib/kubelet", 0o755}, {kubeletCerts, 0o700}, {"/var/lib/cni", 0o755}, {"/var/log/pods", 0o755},
		{"/var/log/containers", 0o755}, {networkPlugins, 0o755}, {"/etc/cni/net.d", 0o755}, {registryConfig, 0o755},
		{staticPods, 0o755}, {ProxyRoot, 0o700},
	} {
		if err := os.MkdirAll(n.path(dir.path), dir.mode); err != nil {
			return fmt.Errorf("node directory: %w", err)
		}
	}
	if err := n.linkPlugins(); err != nil {
		return err
	}
	files, err := n.files()
	if err != nil {
		return err
	}
	return WriteFiles(n.Root, files)
}

// files returns the node's configuration files.
func (n *Node) files() ([]File, error) {
	kubelet, err := yaml.Marshal(n.kubeletConfiguration())
	if err != nil {
		return nil, fmt.Errorf("kubelet configuration: %w", err)
	}
	proxy, err := yaml.Marshal(n.proxyConfiguration())
	if err != nil {
		return nil, fmt.Errorf("proxy configuration: %w", err)
	}
	runtime, err := Containerd{
		Root: ContainerdRoot, Tools: n.Tools, Runtime: cmp.Or(n.Runtime, Crun),
		WithRunc: exists(filepath.Join(n.source(), Runc)),
	}.Config()
	if err != nil {
		return nil, err
	}
	return []File{
		{Path: kubeletYAML, Data: kubelet, Mode: 0o600, Keep: true},
		{Path: proxyYAML, Data: proxy, Mode: 0o600, Keep: true},
		{Path: containerdTOML, Data: runtime, Mode: 0o600, Keep: true},
	}, nil
}

// source returns the directory of containerd's tools as the caller sees it.
func (n *Node) source() string { return cmp.Or(n.ToolsSource, n.Tools) }

// linkPlugins links the network plugins into the directory from which the container runtime runs
// them. A pod that installs a plugin in another version than the node's replaces only the link, not
// the file that all nodes share.
func (n *Node) linkPlugins() error {
	entries, err := os.ReadDir(filepath.Join(n.source(), "cni"))
	if err != nil {
		return fmt.Errorf("CNI plugins: %w", err)
	}
	for _, e := range entries {
		link := n.path(networkPlugins, e.Name())
		if exists(link) {
			continue
		}
		if err := os.Symlink(filepath.Join(n.Tools, "cni", e.Name()), link); err != nil {
			return fmt.Errorf("CNI plugin: %w", err)
		}
	}
	return nil
}

// KubeletArgs returns the flags of the kubelet.
func (n *Node) KubeletArgs() []string {
	out := []string{
		"--config=" + kubeletYAML, "--kubeconfig=" + KubeletKubeconfig,
		"--node-ip=" + strings.Join(n.Addresses, ","), "--cert-dir=" + kubeletCerts,
		"--disk-volumes=true",
	}
	if n.Cluster.ownNetwork() {
		out = append(out, "--pod-network-cidrs="+n.Cluster.podRanges())
	} else {
		out = append(out, "--network-plugin="+ExternalNetwork)
	}
	if n.Joins {
		out = append(out, "--bootstrap-kubeconfig="+BootstrapKubeconfig)
	}
	if n.OverrideHostname {
		out = append(out, "--hostname-override="+n.Name)
	}
	return out
}

// ProxyArgs returns the flags of the proxy.
func (n *Node) ProxyArgs() []string {
	return []string{
		"--config=" + proxyYAML, "--hostname-override=" + n.Name,
		fmt.Sprintf("--network-policy=%t", n.Cluster.ownNetwork()),
	}
}

// ContainerdArgs returns the flags of containerd.
func (n *Node) ContainerdArgs() []string { return []string{"--config", containerdTOML} }

// File is a file of a node.
type File struct {
	Path string // as the node sees it
	Data []byte
	Mode os.FileMode
	Keep bool // do not replace the content of an existing file
}

// WriteFiles writes files of the node whose root directory is root.
func WriteFiles(root string, files []File) error {
	for _, f := range files {
		path := filepath.Join(root, f.Path)
		if f.Keep && exists(path) {
			if err := os.Chmod(path, f.Mode); err != nil {
				return fmt.Errorf("node file: %w", err)
			}
			continue
		}
		if err := atomicfile.WriteDurably(path, f.Data, f.Mode); err != nil {
			return err
		}
	}
	return nil
}

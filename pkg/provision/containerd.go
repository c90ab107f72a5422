// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"bytes"
	"fmt"
	"text/template"
)

// Paths of containerd's files, as a node sees them.
const (
	ContainerdRoot   = "/var/lib/containerd"
	ContainerdSocket = "/run/containerd/containerd.sock"
	containerdTOML   = "/etc/containerd/config.toml"
	registryConfig   = "/etc/containerd/certs.d"
	sandboxImage     = "registry.k8s.io/pause:3.10.2"
)

// The OCI runtimes that containerd's configuration can have.
const (
	Crun = "crun"
	Runc = "runc"
)

// Containerd describes a containerd.
type Containerd struct {
	Root string // directory of its images and containers
	// Tools is the directory of the OCI runtimes.
	Tools string
	// Runtime is the OCI runtime of containers whose pod has no RuntimeClass: Crun or Runc.
	Runtime string
	// WithRunc adds the handler runc. It needs the program runc in Tools.
	WithRunc bool
}

// Config returns containerd's configuration.
func (c Containerd) Config() ([]byte, error) {
	var buf bytes.Buffer
	err := containerdTemplate.Execute(&buf, map[string]any{
		"Root": c.Root, "Socket": ContainerdSocket, "Sandbox": sandboxImage, "Registry": registryConfig, "Tools": c.Tools,
		"Default": c.Runtime, "Runc": c.WithRunc,
	})
	if err != nil {
		return nil, fmt.Errorf("containerd configuration: %w", err)
	}
	return buf.Bytes(), nil
}

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

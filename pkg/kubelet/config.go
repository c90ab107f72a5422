// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"crypto/tls"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/daemon"
)

// Config holds a Kubelet's settings.
type Config struct {
	// Kubelet is the configuration, with defaults applied.
	Kubelet *kubeletconfig.KubeletConfiguration
	// Flags are the values of the process's flags, for /flagz.
	Flags map[string]string
	// Version is the version that the kubelet reports.
	Version string

	// The node.

	NodeName string
	Hostname string
	NodeIPs  []string
	Labels   map[string]string

	// Files.

	RootDir string
	CertDir string
	Plugins Plugins
	// RuntimeCgroups is the cgroup of the container runtime, whose usage is reported. If it is
	// empty, the cgroup of the process that serves the runtime's socket is used.
	RuntimeCgroups string

	// What the node provides.

	// ExternalNetwork leaves the pod network to CNI plugins that the operator installed.
	ExternalNetwork bool
	// PodNetwork are the cluster's pod ranges. If it is empty, a Node may have any pod range.
	PodNetwork []netip.Prefix
	// DiskVolumes serves the driver for volumes on the node's own disk.
	DiskVolumes bool

	// Connections to other programs.

	Client kubernetes.Interface
	// GetCertificate returns the server's certificate. If it is nil, the certificate is read from
	// the files that the configuration names.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Tracing exports spans; nil disables that.
	Tracing *daemon.Tracing
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics Registry
}

// Registry registers the kubelet's metrics and returns those that the kubelet serves at /metrics.
type Registry interface {
	prometheus.Registerer
	prometheus.Gatherer
}

// Plugins are programs that provide credentials for image registries. Both fields are empty if
// there are none.
type Plugins struct {
	// Config is a CredentialProviderConfig file or a directory of such files. BinDir is the
	// directory of the programs.
	Config, BinDir string
}

// Paths on a node that other software around Kubernetes relies on.
const (
	linkRoot    = "/var/log/containers"
	logDir      = "/var/log"
	cgroupMount = "/sys/fs/cgroup"
	cniConfDir  = "/etc/cni/net.d"
	cniBinDir   = "/opt/cni/bin"
	cniCacheDir = "/var/lib/cni"
)

// cniPlugin is the path of our CNI plugin, which is installed beside the kubelet.
func cniPlugin() string {
	self, err := os.Executable()
	if err != nil {
		return "" // the network then reports that the plugin is missing
	}
	return filepath.Join(filepath.Dir(self), "cni")
}

// tracer creates the kubelet's own spans.
func (c Config) tracer() trace.Tracer { return c.Tracing.Tracer("keelson.dev/keelson/pkg/kubelet") }

// maxBackoff returns the longest delay before a container restarts; 0 means Kubernetes' default.
func maxBackoff(c *kubeletconfig.KubeletConfiguration) time.Duration {
	if c.CrashLoopBackOff.MaxContainerRestartPeriod == nil {
		return 0
	}
	return c.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
}

// parallelPulls returns the maximum number of concurrent image pulls; 0 means no limit.
func parallelPulls(c *kubeletconfig.KubeletConfiguration) int {
	switch {
	case c.SerializeImagePulls != nil && *c.SerializeImagePulls:
		return 1
	case c.MaxParallelImagePulls != nil:
		return int(*c.MaxParallelImagePulls)
	}
	return 0
}

// pullRate returns a function that reports whether another pull may begin now, or nil for no limit.
func pullRate(c *kubeletconfig.KubeletConfiguration) func() bool {
	if c.RegistryPullQPS == nil || *c.RegistryPullQPS <= 0 {
		return nil
	}
	return flowcontrol.NewTokenBucketRateLimiter(float32(*c.RegistryPullQPS), int(c.RegistryBurst)).TryAccept
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

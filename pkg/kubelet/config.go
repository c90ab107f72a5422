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
	// Kubelet is the kubelet's configuration, with all defaults set.
	Kubelet *kubeletconfig.KubeletConfiguration
	// Flags are the values of the process's flags. The kubelet serves them at /flagz.
	Flags map[string]string
	// Version is the version of the kubelet, which the Node's status reports.
	Version string

	// Settings of the node:

	NodeName string
	Hostname string
	NodeIPs  []string
	Labels   map[string]string

	// Files and programs on the node:

	RootDir string
	CertDir string
	Plugins Plugins
	// RuntimeCgroups is the path of the cgroup of the container runtime. The kubelet reports its
	// usage. If it is empty, the cgroup of the process that serves the runtime's socket is used.
	RuntimeCgroups string

	// Services for pods that the kubelet itself may provide:

	// ExternalNetwork leaves the pod network to CNI plugins that the operator has installed.
	// Otherwise the kubelet provides the pod network.
	ExternalNetwork bool
	// PodNetwork lists the cluster's address ranges for pods. The pod ranges of all nodes must be
	// within them. If PodNetwork is empty, any pod range is accepted.
	PodNetwork []netip.Prefix
	// DiskVolumes makes the kubelet serve its built-in CSI driver, whose volumes are on the node's
	// own disk.
	DiskVolumes bool

	// Connections to other programs and the kubelet's instrumentation:

	Client kubernetes.Interface
	// GetCertificate returns the certificate of the kubelet's HTTPS server. If it is nil, the
	// kubelet reads the certificate from the files that the configuration names.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Tracing exports spans. If it is nil, the kubelet exports none.
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

// Plugins configures the programs that provide credentials for image registries. Both fields are
// empty if there are no such programs.
type Plugins struct {
	// Config is the path of a CredentialProviderConfig file, or of a directory with such files.
	// BinDir is the directory that contains the programs.
	Config, BinDir string
}

// Paths on a node that other software for Kubernetes relies on.
const (
	linkRoot    = "/var/log/containers"
	logDir      = "/var/log"
	cgroupMount = "/sys/fs/cgroup"
	cniConfDir  = "/etc/cni/net.d"
	cniBinDir   = "/opt/cni/bin"
	cniCacheDir = "/var/lib/cni"
)

// cniPlugin returns the path of Keelson's own CNI plugin, which is installed in the kubelet's
// directory.
func cniPlugin() string {
	self, err := os.Executable()
	if err != nil {
		return "" // the network later reports that the plugin is missing
	}
	return filepath.Join(filepath.Dir(self), "cni")
}

// tracer returns the tracer for spans that the kubelet itself starts.
func (c Config) tracer() trace.Tracer { return c.Tracing.Tracer("keelson.dev/keelson/pkg/kubelet") }

// maxBackoff returns the longest delay before a container restarts. 0 means Kubernetes' default.
func maxBackoff(c *kubeletconfig.KubeletConfiguration) time.Duration {
	if c.CrashLoopBackOff.MaxContainerRestartPeriod == nil {
		return 0
	}
	return c.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
}

// parallelPulls returns the maximum number of concurrent image pulls. 0 means no limit.
func parallelPulls(c *kubeletconfig.KubeletConfiguration) int {
	switch {
	case c.SerializeImagePulls != nil && *c.SerializeImagePulls:
		return 1
	case c.MaxParallelImagePulls != nil:
		return int(*c.MaxParallelImagePulls)
	}
	return 0
}

// pullRate returns a function that reports whether another image pull may begin now. It returns nil
// if the rate of pulls is not limited.
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

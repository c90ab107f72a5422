// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/beneath"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/daemon/scrape"
	"keelson.dev/keelson/pkg/daemon/zpages"
	"keelson.dev/keelson/pkg/health"
)

// Pods provides information about pods.
type Pods interface {
	// Pods returns the pods of this node with their current status. It includes static pods.
	Pods() []*v1.Pod
	// Pod returns the pod with a name.
	Pod(namespace, name string) (*v1.Pod, bool)
	// RunningPods returns the pods that run in the runtime. They contain only the fields that the
	// runtime reports.
	RunningPods(ctx context.Context) ([]*v1.Pod, error)
	// ContainerLog returns the log of a container of the pod. If previous is true, it returns the
	// log of the container's previous run. The server returns the error to users unchanged, for
	// example 'container "c" in pod "p" is waiting to start: ContainerCreating'.
	ContainerLog(ctx context.Context, pod *v1.Pod, container string, previous bool) (LogSource, error)
}

// LogSource is the log of a container.
type LogSource struct {
	// Path is the path of the log file, which is in the CRI log format.
	Path string
	// Running reports whether the container is still running. When it has ended, a followed log
	// ends too.
	Running func(ctx context.Context) (bool, error)
}

// StreamOptions says which streams an exec or attach request uses.
type StreamOptions struct {
	Stdin, Stdout, Stderr, TTY bool
}

// Runtime provides the URLs of the runtime's streaming server. Its errors may be gRPC status
// errors.
type Runtime interface {
	Exec(ctx context.Context, pod *v1.Pod, container string, command []string, o StreamOptions) (*url.URL, error)
	Attach(ctx context.Context, pod *v1.Pod, container string, o StreamOptions) (*url.URL, error)
	PortForward(ctx context.Context, pod *v1.Pod, ports []int32) (*url.URL, error)
	// Checkpoint writes the state of a running container to a file and returns its name. The
	// timeout is in seconds; 0 means the runtime's default.
	Checkpoint(ctx context.Context, pod *v1.Pod, container string, seconds int64) (file string, err error)
	// Run runs a command and returns its stdout and stderr together.
	Run(ctx context.Context, pod *v1.Pod, container string, command []string) ([]byte, error)
}

// Stats provides the statistics for /stats/summary and /metrics/resource.
type Stats interface {
	Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error)
}

// Config holds a Server's settings.
type Config struct {
	// Settings for listening and TLS.

	// Listener is the listener to serve on. If it is nil, the server listens on Address.
	Listener net.Listener
	Address  string
	// GetCertificate returns the serving certificate that the API server has issued. It returns
	// the renewed certificate after a renewal. It may be nil.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// CertDir is the directory of the self-signed serving certificate, which is used if no other is
	// configured.
	CertDir string
	// NodeAddresses are the addresses in a self-signed certificate.
	NodeAddresses []string

	// Settings for authentication and authorization, and other settings of the kubelet.

	// Kubelet is the kubelet's configuration, with its defaults. The server uses the settings for
	// authentication, authorization, TLS and debugging.
	Kubelet *kubeletconfig.KubeletConfiguration
	// NodeName is the node's name, for authorization.
	NodeName string
	// Client creates token and access reviews.
	Client kubernetes.Interface
	// Flags are the values of the process's flags, for /flagz.
	Flags map[string]string

	// The data that the server serves.

	Pods    Pods
	Runtime Runtime
	Stats   Stats
	// Drivers serves POST /csi/{driver}/{service}/{method}, with which the control plane calls
	// storage drivers. If it is nil, the server returns 404 for these paths.
	Drivers http.HandlerFunc
	// Health are the checks that /healthz runs.
	Health []health.Check
	// Metrics and ProbeMetrics are served at /metrics and /metrics/probes.
	Metrics, ProbeMetrics prometheus.Gatherer
	// Containers are the metrics that /metrics/cadvisor serves; nil means none.
	Containers prometheus.Gatherer
	// LogDir is the directory that /logs/ serves, /var/log.
	LogDir string

	// Metrics and traces of the server itself.

	// Register is where the server registers its own metrics. It may be nil.
	Register prometheus.Registerer
	// Tracing exports a span for each request; nil disables that.
	Tracing *daemon.Tracing
	Clock   clock.Clock
	Log     *slog.Logger
}

const (
	// idleTimeout is how long an idle connection is kept open: as long as Go's HTTP client keeps
	// it.
	idleTimeout = 90 * time.Second
	// headerTimeout is how long a client may take to send the header of a request.
	headerTimeout = 32 * time.Second
	// requestTimeout is the maximum duration of a request, including one that follows a log.
	requestTimeout = 4 * time.Hour
	maxHeaders     = 1 << 20
)

// Server is the kubelet's HTTPS server.
type Server struct {
	cfg   Config
	authn authenticator.Request
	ca    *dynamiccertificates.DynamicFileCAContent // nil if client certificates are not configured
	authz authorizer
	tls   *tls.Config
	// results counts the results of health checks of both servers: this one and Health.
	results *health.Results
	health  http.Handler
}

// New returns a Server. It reads the certificates but does not listen yet.
func New(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg, results: health.NewResults()}
	s.health = health.Handler("/healthz", cfg.Log, s.results.Watch("healthz", cfg.Health)...)
	var err error
	if s.authn, s.ca, err = newAuthenticator(cfg.Client, cfg.Kubelet.Authentication); err != nil {
		return nil, err
	}
	if s.authz, err = newAuthorizer(cfg.Client, cfg.NodeName, cfg.Kubelet.Authorization, cfg.Clock); err != nil {
		return nil, err
	}
	if s.tls, err = tlsConfig(cfg); err != nil {
		return nil, err
	}
	return s, nil
}

// Run serves until ctx ends. Then it closes all connections.
func (s *Server) Run(ctx context.Context) error {
	l := s.cfg.Listener
	if l == nil {
		var err error
		if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Address); err != nil {
			return fmt.Errorf("kubelet server: %w", err)
		}
	}
	srv := &http.Server{
		Handler:           s.Handler(),
		TLSConfig:         s.tls,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
		IdleTimeout:       idleTimeout,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		MaxHeaderBytes:    maxHeaders,
	}
	var background sync.WaitGroup
	defer background.Wait()
	if s.ca != nil {
		background.Go(func() { s.ca.Run(ctx, 1) })
	}
	background.Go(func() {
		<-ctx.Done()
		_ = srv.Close() // requests end with ctx, and the runtime closes its streams itself
	})
	if err := srv.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("kubelet server: %w", err)
	}
	return nil
}

// Handler returns the handler of all paths, with authentication and authorization.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	s.always(mux)
	if s.cfg.Kubelet.EnableDebuggingHandlers == nil || *s.cfg.Kubelet.EnableDebuggingHandlers {
		s.debugging(mux)
	} else {
		for _, root := range []string{"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/",
			"/runningpods/", "/debug/pprof/", "/logs/", "/configz", "/checkpoint/"} {
			mux.Handle(root, disabled("Debug endpoints are disabled."))
		}
	}
	return newRequestMetrics(s.cfg.Register, s.cfg.Clock).measured(s.cfg.Tracing.Handler(s.authorized(mux), "kubelet"))
}

// always registers the paths that the server serves in every configuration.
func (s *Server) always(mux *http.ServeMux) {
	mux.Handle("/healthz", s.health)
	mux.Handle("/healthz/", s.health)
	mux.Handle(health.ResultsPath, s.results.Handler())
	mux.HandleFunc("GET /pods", s.pods)
	mux.HandleFunc("GET /pods/{$}", s.pods)
	mux.HandleFunc("GET /stats/summary", s.summary)
	mux.HandleFunc("POST /stats/summary", s.summary)
	if s.cfg.Drivers != nil {
		mux.HandleFunc("POST /csi/{driver}/{service}/{method}", s.cfg.Drivers)
	}
	pages := zpages.Handler("kubelet", s.cfg.Flags, 0, "/configz", "/debug", "/healthz", "/metrics")
	mux.Handle("GET "+zpages.Statusz, pages)
	mux.Handle("GET "+zpages.Flagz, pages)
	mux.Handle("GET /metrics", metricsHandler(s.cfg.Metrics))
	mux.Handle("GET /metrics/probes", metricsHandler(s.cfg.ProbeMetrics))
	mux.Handle("GET /metrics/cadvisor", metricsHandler(s.cfg.Containers))
	resources := prometheus.NewRegistry()
	resources.MustRegister(resourceMetrics{stats: s.cfg.Stats, log: s.cfg.Log})
	mux.Handle("GET /metrics/resource", metricsHandler(resources))
}

func metricsHandler(g prometheus.Gatherer) http.Handler {
	if g == nil {
		g = prometheus.NewRegistry()
	}
	return scrape.PartialHandler(g)
}

// debugging registers the paths that the server serves only with enableDebuggingHandlers.
func (s *Server) debugging(mux *http.ServeMux) {
	for _, method := range []string{"GET ", "POST "} {
		mux.HandleFunc(method+"/exec/{namespace}/{pod}/{container}", s.exec)
		mux.HandleFunc(method+"/exec/{namespace}/{pod}/{uid}/{container}", s.exec)
		mux.HandleFunc(method+"/attach/{namespace}/{pod}/{container}", s.attach)
		mux.HandleFunc(method+"/attach/{namespace}/{pod}/{uid}/{container}", s.attach)
		mux.HandleFunc(method+"/portForward/{namespace}/{pod}", s.portForward)
		mux.HandleFunc(method+"/portForward/{namespace}/{pod}/{uid}", s.portForward)
	}
	mux.HandleFunc("POST /run/{namespace}/{pod}/{container}", s.run)
	mux.HandleFunc("POST /run/{namespace}/{pod}/{uid}/{container}", s.run)
	mux.HandleFunc("POST /checkpoint/{namespace}/{pod}/{container}", s.checkpoint)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.containerLogs)
	mux.HandleFunc("GET /runningpods", s.runningPods)
	mux.HandleFunc("GET /runningpods/{$}", s.runningPods)
	mux.HandleFunc("GET /configz", s.configz)
	if on := s.cfg.Kubelet.EnableSystemLogHandler; on == nil || *on {
		mux.Handle("GET /logs/", http.StripPrefix("/logs/", s.nodeLogs()))
	} else {
		mux.Handle("/logs/", disabled("logs endpoint is disabled."))
	}
	if on := s.cfg.Kubelet.EnableProfilingHandler; on == nil || *on {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	} else {
		mux.Handle("/debug/pprof/", disabled("profiling endpoint is disabled."))
	}
}

// nodeLogs returns the handler of the log directory. It answers queries for logs of services if
// enableSystemLogQuery is true.
func (s *Server) nodeLogs() http.Handler {
	if on := s.cfg.Kubelet.EnableSystemLogQuery; on == nil || !*on {
		return http.FileServerFS(beneath.Files(s.cfg.LogDir))
	}
	return newNodeLogs(s.cfg.LogDir)
}

func disabled(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, text, http.StatusMethodNotAllowed)
	})
}

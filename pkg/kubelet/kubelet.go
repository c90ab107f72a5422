// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/kubelet/allocation"
	"keelson.dev/keelson/pkg/kubelet/cgroup"
	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/csi"
	"keelson.dev/keelson/pkg/kubelet/dns"
	"keelson.dev/keelson/pkg/kubelet/eviction"
	"keelson.dev/keelson/pkg/kubelet/images"
	"keelson.dev/keelson/pkg/kubelet/localdisk"
	"keelson.dev/keelson/pkg/kubelet/logs"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/node"
	"keelson.dev/keelson/pkg/kubelet/objects"
	"keelson.dev/keelson/pkg/kubelet/podresources"
	"keelson.dev/keelson/pkg/kubelet/prober"
	"keelson.dev/keelson/pkg/kubelet/qos"
	"keelson.dev/keelson/pkg/kubelet/server"
	"keelson.dev/keelson/pkg/kubelet/shims"
	"keelson.dev/keelson/pkg/kubelet/shutdown"
	"keelson.dev/keelson/pkg/kubelet/static"
	"keelson.dev/keelson/pkg/kubelet/status"
	"keelson.dev/keelson/pkg/kubelet/volume"
	"keelson.dev/keelson/pkg/kubelet/worker"
	"keelson.dev/keelson/pkg/network"
)

// Config is what a Kubelet is made of.
type Config struct {
	Client kubernetes.Interface
	// Kubelet is the configuration, complete.
	Kubelet  *kubeletconfig.KubeletConfiguration
	NodeName string
	Hostname string
	NodeIPs  []string
	Labels   map[string]string
	RootDir  string
	CertDir  string
	Plugins  Plugins
	// ExternalNetwork leaves the pod network to what the operator installed.
	ExternalNetwork bool
	// PodNetwork are the cluster's pod ranges; empty allows any range in a Node.
	PodNetwork []netip.Prefix
	// DiskVolumes has volumes made on the node's own disk, by the kubelet's own driver.
	DiskVolumes bool
	// RuntimeCgroups is the cgroup of the runtime, to tell what it uses; "" is that of the process which serves the runtime's socket.
	RuntimeCgroups string
	// Version is what the kubelet says it is.
	Version string
	// GetCertificate gives the server's certificate; nil: it is in the files that
	// the configuration names.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Flags are the values of the process's flags.
	Flags map[string]string
	// Tracing is where spans go; nil: nowhere.
	Tracing *daemon.Tracing
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *prometheus.Registry
}

// Plugins are programs that give logins for images; both empty if there are none.
type Plugins struct {
	// Config is a CredentialProviderConfig, or a directory of such files; BinDir has the programs.
	Config, BinDir string
}

// Where things are on a node, as everything around Kubernetes expects it.
const (
	linkRoot    = "/var/log/containers"
	logDir      = "/var/log"
	cgroupMount = "/sys/fs/cgroup"
	cniConfDir  = "/etc/cni/net.d"
	cniBinDir   = "/opt/cni/bin"
	cniCacheDir = "/var/lib/cni"
)

// cniPlugin is our CNI plugin's program: it is beside the kubelet's.
func cniPlugin() string {
	self, err := os.Executable()
	if err != nil {
		return "" // whoever looks for the plugin tells that it is missing
	}
	return filepath.Join(filepath.Dir(self), "cni")
}

// Kubelet is a node's agent.
type Kubelet struct {
	cfg     Config
	runtime *runtime
	sources *sources
	objects *objects.Manager
	volumes *volume.Manager
	drivers *csi.Manager
	cgroups *cgroup.Manager
	status  *status.Manager
	node    *node.Node
	network *network.Network // nil with an external network
	// namespaces are those of sandboxes, with any network.
	namespaces *network.Namespaces
	shims      *shims.Finder
	events     *events
	machine    node.Machine
	pool       *worker.Pool
	handler    *prober.Handler
	qos        qos.Node
	limits     v1.ResourceList // allocatable
	kept       reserved
	podMemory  int64 // what pods may have together, if that is enforced
	rates      rates
	// probeMetrics are told apart from others, since there are many.
	probeMetrics *prometheus.Registry
	begun        time.Time

	loop       *loop
	listAgain  chan struct{} // holds one token when the runtime is to be listed now
	allocation *allocation.Manager
	sysctls    *allocation.Sysctls
	hardware   *hardware
	pins       *pins
	shutdown   *shutdown.Manager
	counts     *metrics.Pods
	// nodeCounts are of what keeps the node in order.
	nodeCounts *metrics.Node
	starts     starts
	resizes    resizes
	// preemptions are of pods by critical ones.
	preemptions *preemptions

	logs      *logs.Keeper
	collector *images.Collector
	records   *images.Records
	providers *images.Plugins // nil if there are none
	eviction  *eviction.Manager
}

// New puts a kubelet together. It starts nothing.
func New(cfg Config) (*Kubelet, error) {
	client, err := cri.Dial(cri.Target{
		Endpoint: cfg.Kubelet.ContainerRuntimeEndpoint, Images: cfg.Kubelet.ImageServiceEndpoint, Timeout: cfg.Kubelet.RuntimeRequestTimeout.Duration,
		Options: cfg.Tracing.Dial(),
	}, cri.NewMetrics(cfg.Clock, cfg.Metrics))
	if err != nil {
		return nil, err
	}
	k := &Kubelet{cfg: cfg, events: newEvents(cfg), loop: &loop{clock: cfg.Clock}, listAgain: make(chan struct{}, 1), pins: newPins(),
		namespaces: network.NewNamespaces(network.NamespacesDir, "/proc", cfg.Clock), shims: shims.New("/proc", cfg.Clock), counts: metrics.NewPods(cfg.Metrics), nodeCounts: metrics.NewNode(cfg.Metrics), starts: newStarts(cfg.Metrics), resizes: newResizes(cfg.Metrics), probeMetrics: prometheus.NewRegistry(), begun: cfg.Clock.Now(), preemptions: newPreemptions(cfg.Clock, cfg.Log, cfg.RootDir)}
	if k.machine, err = node.ReadMachine(cfg.RootDir); err != nil {
		return nil, fmt.Errorf("look at the machine: %w", err)
	}
	if !cfg.ExternalNetwork {
		k.network = network.New(network.Config{
			NodeName: cfg.NodeName, Client: cfg.Client, ConfDir: cniConfDir, BinDir: cniBinDir, CacheDir: cniCacheDir, Plugin: cniPlugin(),
			PodRanges: cfg.PodNetwork, Clock: cfg.Clock, Log: cfg.Log,
		})
	}
	k.runtime = newRuntime(client, k.network, cfg)
	k.sources = newSources(cfg)
	if c := cfg.Kubelet; c.StaticPodPath != "" || c.StaticPodURL != "" {
		k.sources.static = static.New(static.Config{
			URL: c.StaticPodURL, Header: c.StaticPodURLHeader, URLPeriod: c.HTTPCheckFrequency.Duration,
			Path: c.StaticPodPath, Period: cfg.Kubelet.FileCheckFrequency.Duration, NodeName: cfg.NodeName, Client: cfg.Client,
			Node: func() *v1.Node { return k.node.Current() }, Seen: k.sources.bound, Reflect: func() { k.status.Reflect() }, Restarted: func() { k.counts.Restarted(true) }, Clock: cfg.Clock, Log: cfg.Log,
		})
	}
	if err := k.resources(); err != nil {
		return nil, err
	}
	k.objects = objects.New(objects.Config{Client: cfg.Client, Clock: cfg.Clock, Log: cfg.Log})
	k.status = status.NewManager(status.Config{Client: cfg.Client, Clock: cfg.Clock, Log: cfg.Log, Metrics: k.counts, Mirror: k.mirror, Resumed: k.resumed, Gone: k.gone})
	k.handler = &prober.Handler{Exec: k.runtime.exec, Clock: cfg.Clock, FellBack: k.fellBack}
	storage := metrics.NewStorage(cfg.Metrics)
	k.drivers, err = csi.New(csi.Config{
		Metrics: storage,
		RootDir: cfg.RootDir, NodeName: cfg.NodeName, Client: cfg.Client, Token: k.objects.ServiceAccountToken,
		Changed: func() { k.node.Poke() }, UpdatePeriod: k.sources.updatePeriod, Attaches: k.sources.attaches, Clock: cfg.Clock, Log: cfg.Log,
	})
	if err == nil {
		err = k.sources.onDrivers(func() {
			k.drivers.Look()
			k.node.Poke()
		})
	}
	if err != nil {
		return nil, err
	}
	if k.hardware, err = newHardware(cfg, k.kept, k.drivers, func() { k.node.Poke() }, k.pins.again, k.wake); err != nil {
		return nil, err
	}
	k.shutdown = shutdown.New(k.shutdownConfig())
	k.node = node.New(k.nodeConfig())
	if err := k.upkeep(); err != nil {
		return nil, err
	}
	if k.sysctls, err = allocation.NewSysctls(k.machine.Info.KernelVersion, cfg.Kubelet.AllowedUnsafeSysctls); err != nil {
		return nil, fmt.Errorf("allowedUnsafeSysctls: %w", err)
	}
	k.allocation = allocation.NewManager(allocation.Config{Log: cfg.Log, Dir: cfg.RootDir, Pods: k.Pods, Check: k.check, Fixed: k.fixed, Freed: k.wake, Infeasible: k.resizes.infeasible, Accepted: k.resizes.accepted})
	cfg.Metrics.MustRegister(&waitingResizes{k.Pods})
	k.volumes = volume.New(volume.Config{
		RootDir: cfg.RootDir, NodeName: cfg.NodeName, Client: cfg.Client, Objects: k.objects, Drivers: k.drivers, Allocatable: k.allocatable,
		NodeLabels: k.node.Labels, Label: volume.SELinux(), Metrics: storage, Clock: cfg.Clock, Log: cfg.Log,
		Event: func(pod *v1.Pod, eventType, reason, message string) {
			k.events.pod(pod, "", eventType, reason, message)
		},
	})
	cfg.Metrics.MustRegister(&metrics.Volumes{Claims: k.volumes.ClaimStats, Counts: k.volumes.Counts})
	return k, nil
}

// resources reads what the node gives to pods out of the machine and the configuration.
func (k *Kubelet) resources() error {
	c := k.cfg.Kubelet
	capacity := k.machine.Capacity(k.maxPods())
	var err error
	if k.kept, err = reservations(c, capacity); err != nil {
		return err
	}
	k.limits = node.Allocatable(capacity, k.kept.list)
	if k.qos, err = k.nodeQOS(); err != nil {
		return err
	}
	config := k.cgroupConfig(capacity)
	if config.Pods != nil && config.Pods.Memory != nil {
		k.podMemory = *config.Pods.Memory
	}
	k.cgroups, err = cgroup.New(config)
	return err
}

// maxPods is how many pods may be on the node.
func (k *Kubelet) maxPods() int32 {
	c := k.cfg.Kubelet
	if c.PodsPerCore == 0 {
		return c.MaxPods
	}
	return int32(min(int64(c.MaxPods), int64(c.PodsPerCore)*int64(k.machine.CPUs)))
}

func (k *Kubelet) allocatable() v1.ResourceList { return k.limits }

func (k *Kubelet) nodeConfig() node.Config {
	c := k.cfg.Kubelet
	info := k.machine.Info
	info.KubeletVersion = k.cfg.Version
	return node.Config{
		Client: k.cfg.Client, Clock: k.cfg.Clock, Log: k.cfg.Log, Name: k.cfg.NodeName, Hostname: k.cfg.Hostname, IPs: k.cfg.NodeIPs,
		Port: c.Port, Labels: k.cfg.Labels, Taints: c.RegisterWithTaints, ProviderID: c.ProviderID, Registered: !*c.RegisterNode, Capacity: k.machine.Capacity(k.maxPods()), Allocatable: k.limits, Devices: k.hardware.devices.Resources, VolumesInUse: k.drivers.InUse,
		Info: info, RuntimeVersion: k.runtime.version, Handlers: k.runtime.handlers, Features: k.runtime.features, Declared: declared(c.FeatureGates), Ready: k.ready,
		Pressures: k.pressures,
		Images:    k.runtime.images,
		Period:    c.NodeStatusUpdateFrequency.Duration, ReportPeriod: c.NodeStatusReportFrequency.Duration, LeaseDuration: time.Duration(c.NodeLeaseDurationSeconds) * time.Second,
		StartGrace: startGrace,
	}
}

// gone is told of pods that the API turned out not to have.
func (k *Kubelet) gone(uid types.UID) {
	if k.pool != nil {
		k.pool.Remove(uid)
	}
}

// resumed passes the status that the API shows of a static pod to the worker. An earlier kubelet
// process ran the pod.
func (k *Kubelet) resumed(uid types.UID, s v1.PodStatus) {
	if k.pool != nil {
		k.pool.Resume(uid, s)
	}
}

// wake has a pod looked at.
func (k *Kubelet) wake(uid types.UID) {
	if k.pool != nil {
		k.pool.Wake(uid)
	}
}

// forget drops what is kept of a pod of which nothing is left on the node.
func (k *Kubelet) forget(uid types.UID) {
	k.roomBy(uid)
	k.preemptions.forget(uid)
	k.allocation.Forget(uid)
}

// left is told of pods that the pool does not know any more.
func (k *Kubelet) left(types.UID) {
	if s := k.sources.static; s != nil {
		s.Poke()
	}
}

// mirror is the pod of the API that shows a static pod, or nil.
func (k *Kubelet) mirror(pod *v1.Pod) *v1.Pod {
	if k.sources.static == nil {
		return nil
	}
	return k.sources.static.Mirror(pod)
}

// Run is the kubelet's life; it ends with ctx. Pods go on running.
func (k *Kubelet) Run(ctx context.Context) error {
	defer func() { _ = k.runtime.client.Close() }()
	k.runtime.changed = k.runtimeChanged
	k.pool = worker.NewPool(ctx, k.workerConfig())
	k.cfg.Metrics.MustRegister(k.state())
	serve, err := server.New(k.serverConfig())
	if err != nil {
		return err
	}
	defer k.objects.Subscribe(k.objectChanged)()
	g, ctx := errgroup.WithContext(ctx)
	k.events.start(ctx)
	defer k.events.stop()
	g.Go(func() error { return k.node.Run(ctx) })
	g.Go(func() error { return k.hardware.devices.Run(ctx) })
	g.Go(func() error { return k.hardware.plugins.Run(ctx) })
	g.Go(func() error { return k.hardware.claims.Run(ctx) })
	g.Go(func() error {
		return podresources.New(filepath.Join(k.cfg.RootDir, "pod-resources", "kubelet.sock"), resources{k}, k.cfg.Metrics).Run(ctx)
	})
	if *k.cfg.Kubelet.EnableServer {
		g.Go(func() error { return serve.Run(ctx) })
	}
	g.Go(func() error { return k.health(ctx, serve.Health()) })
	g.Go(func() error { return k.status.Run(ctx) })
	g.Go(func() error { return k.objects.Run(ctx) })
	g.Go(func() error { return k.volumes.Run(ctx) })
	g.Go(func() error { return k.drivers.Run(ctx) })
	if k.cfg.DiskVolumes {
		d := localdisk.New(localdisk.Config{RootDir: k.cfg.RootDir, NodeName: k.cfg.NodeName, Version: k.cfg.Version, Log: k.cfg.Log})
		g.Go(func() error { return d.Run(ctx) })
	}
	g.Go(func() error { return k.runtime.watchState(ctx) })
	g.Go(func() error { return k.watchdog(ctx) })
	g.Go(func() error { return k.work(ctx) })
	err = g.Wait()
	k.pool.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// runtimeChanged is told when the runtime or the network became ready, or ceased to be.
func (k *Kubelet) runtimeChanged() {
	k.node.Poke()
	k.pool.WakeAll()
}

// objectChanged has pods looked at that could not start for want of an object.
func (k *Kubelet) objectChanged(_ objects.Ref, pods []*v1.Pod) {
	for _, pod := range pods {
		k.pool.Wake(pod.UID)
	}
}

// work takes up what the runtime has, and then follows the API and the runtime.
func (k *Kubelet) work(ctx context.Context) error {
	driver, err := k.runtime.cgroupDriver(ctx)
	if err == nil {
		err = k.takeUp(ctx)
	}
	if err != nil {
		return nil // only ctx ends the waiting for the runtime
	}
	if err := k.setupCgroups(driver); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	if k.network != nil {
		g.Go(func() error { return k.network.Run(ctx) })
	}
	if s := k.sources.static; s != nil {
		s.Start(k.pool)
		g.Go(func() error { return s.Run(ctx) })
	}
	g.Go(func() error { return k.follow(ctx) })
	g.Go(func() error {
		if err := k.sources.run(ctx, k.pool); err != nil {
			return err
		}
		k.relistNow() // what nobody knows can be told apart now
		return k.tidy(ctx)
	})
	if k.hardware.cpus.Static() {
		g.Go(func() error { return k.repin(ctx) })
	}
	g.Go(func() error { return k.shutdown.Run(ctx) })
	g.Go(func() error { return k.logs.Run(ctx) })
	g.Go(func() error { return k.collector.Run(ctx) })
	return g.Wait()
}

// takeUp waits for the runtime, and gives back addresses of sandboxes that are gone.
func (k *Kubelet) takeUp(ctx context.Context) error {
	for {
		err := k.collectAttachments(ctx)
		if err == nil {
			return nil
		}
		k.cfg.Log.Debug("waiting for the container runtime", "error", err)
		if !pause(ctx, k.cfg.Clock, startPoll) {
			return ctx.Err()
		}
	}
}

func (k *Kubelet) workerConfig() worker.Config {
	c := k.cfg.Kubelet
	return worker.Config{
		Clock: k.cfg.Clock, Log: k.cfg.Log, Runtime: k.runtime.client, Volumes: k.volumes, Objects: k.objects, Cgroups: classes{k.cgroups, k}, Devices: k.hardware, Released: k.released, Room: k.preemptions.until, UserNamespace: k.userNamespace, Pinned: k.hardware.pinned, Exclusive: k.hardware.exclusive,
		Images: images.New(images.Config{
			Runtime: k.runtime.client, Secrets: k.objects, Records: k.records, Plugins: k.providers, Metrics: k.nodeCounts, Clock: k.cfg.Clock, Event: k.events.pod,
			Parallel: parallelPulls(c), Allow: pullRate(c),
		}),
		Status: k.status, Handler: k.handler, ProbeMetrics: k.probeMetrics, Tracer: k.tracer(), Event: k.events.pod, Asked: k.resizes.asked, Resized: k.resizes.took, Started: k.starts.observe, Metrics: k.counts, Listening: k.runtime.listening, Allocation: k.allocation, Left: k.forget, Doomed: k.doomed, Gone: k.left, Ready: k.runtime.networkReady,
		Services: k.sources.servicesFor, RuntimeHandler: k.sources.runtimeHandler, Allocatable: k.allocatable,
		DNS: dns.Settings{
			ClusterDNS: c.ClusterDNS, ClusterDomain: c.ClusterDomain, ResolvConf: deref(c.ResolverConfig), NodeIPs: k.cfg.NodeIPs,
		},
		ClusterDomain: c.ClusterDomain, HostIPs: k.cfg.NodeIPs, RootDir: k.cfg.RootDir, LogRoot: c.PodLogsDir, LinkRoot: linkRoot,
		SeccompRoot: filepath.Join(k.cfg.RootDir, "seccomp"), SeccompDefault: c.SeccompDefault != nil && *c.SeccompDefault,
		MaxBackoff: maxBackoff(c), Node: k.qos, RuntimeName: "containerd", RecursiveReadOnly: k.runtime.recursiveReadOnly,
	}
}

// maxBackoff is the longest that a container waits for its next start; 0 is Kubernetes' own.
func maxBackoff(c *kubeletconfig.KubeletConfiguration) time.Duration {
	if c.CrashLoopBackOff.MaxContainerRestartPeriod == nil {
		return 0
	}
	return c.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
}

// parallelPulls is how many images may be pulled at a time; 0 means any number.
func parallelPulls(c *kubeletconfig.KubeletConfiguration) int {
	switch {
	case c.SerializeImagePulls != nil && *c.SerializeImagePulls:
		return 1
	case c.MaxParallelImagePulls != nil:
		return int(*c.MaxParallelImagePulls)
	}
	return 0
}

// pullRate bounds how often registries are asked; nil does not.
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

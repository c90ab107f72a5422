// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/allocation"
	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/csi"
	"keelson.dev/keelson/pkg/kubelet/dns"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/node"
	"keelson.dev/keelson/pkg/kubelet/objects"
	"keelson.dev/keelson/pkg/kubelet/podcertificate"
	"keelson.dev/keelson/pkg/kubelet/podsapi"
	"keelson.dev/keelson/pkg/kubelet/prober"
	"keelson.dev/keelson/pkg/kubelet/status"
	"keelson.dev/keelson/pkg/kubelet/volume"
	"keelson.dev/keelson/pkg/kubelet/worker"
	"keelson.dev/keelson/pkg/network"
)

// New builds a Kubelet without starting it.
//
// Parts are built in the order of their dependencies: what all parts share; the machine and the
// runtime; pods; the node's resources that pods use; upkeep; the workers, which use all the parts
// before them; and last the servers. Most parts exist before the workers. To wake or end a pod,
// they therefore use shared.workers, which finds the pod's worker later. To update the Node's
// status, they use shared.node.
func New(cfg Config) (*Kubelet, error) {
	client, err := cri.Dial(cri.Target{
		Endpoint: cfg.Kubelet.ContainerRuntimeEndpoint, Images: cfg.Kubelet.ImageServiceEndpoint,
		Timeout: cfg.Kubelet.RuntimeRequestTimeout.Duration, Options: cfg.Tracing.Dial(),
	}, cri.NewMetrics(cfg.Clock, cfg.Metrics))
	if err != nil {
		return nil, err
	}
	k := &Kubelet{shared: newShared(cfg)}
	if k.node.resources, err = readResources(cfg); err != nil {
		return nil, err
	}
	k.runtime = newRuntime(client, newNetwork(cfg), cfg, func() {
		k.shared.node.Poke()
		k.shared.workers.WakeAll()
	})
	if err := k.buildPods(); err != nil {
		return nil, err
	}
	if err := k.buildNode(); err != nil {
		return nil, err
	}
	if err := k.buildUpkeep(); err != nil {
		return nil, err
	}
	k.serving, err = newServing(k.shared, &k.pods, client, k.node.usage, k.node.hardware)
	return k, err
}

// newNetwork returns the built-in pod network, or nil if the operator has installed CNI plugins
// instead.
func newNetwork(cfg Config) *network.Network {
	if cfg.ExternalNetwork {
		return nil
	}
	return network.New(network.Config{
		NodeName: cfg.NodeName, Client: cfg.Client, ConfDir: cniConfDir, BinDir: cniBinDir, CacheDir: cniCacheDir,
		Plugin: cniPlugin(), PodRanges: cfg.PodNetwork, Clock: cfg.Clock, Log: cfg.Log,
	})
}

// buildPods builds the parts that read pods, report their statuses, and provide the objects and
// volumes that pods use.
func (k *Kubelet) buildPods() error {
	s, cfg := k.shared, k.shared.cfg
	api := newAPICache(cfg)
	k.pods.changes = podsapi.NewChanges(cfg.Log)
	k.pods.status = status.NewManager(status.Config{
		Client: cfg.Client, Clock: cfg.Clock, Log: cfg.Log, Metrics: s.metrics.pods, Mirror: mirrors(cfg, api),
		Resumed: s.workers.Resume, Changed: k.pods.changes.Updated, Deleted: s.workers.Remove,
	})
	k.pods.sources = newSources(s, api, k.pods.status.SyncMirrors)
	k.pods.view = &podView{k.pods.sources, k.pods.status, k.runtime.client}
	k.pods.events = newPodEvents(s, k.runtime.client, k.pods.sources.listed)
	cfg.Metrics.MustRegister(newState(s, k.pods.view), &waitingResizes{k.pods.view.Pods})

	k.pods.objects = objects.New(objects.Config{Client: cfg.Client, Clock: cfg.Clock, Log: cfg.Log})
	drivers, err := csi.New(csi.Config{
		Metrics: s.metrics.storage, RootDir: cfg.RootDir, NodeName: cfg.NodeName, Client: cfg.Client,
		Token: k.pods.objects.ServiceAccountToken, Changed: s.node.Poke,
		UpdatePeriod: api.updatePeriod, Attaches: api.attaches, Clock: cfg.Clock, Log: cfg.Log,
	})
	if err != nil {
		return err
	}
	k.pods.drivers = drivers
	podEvent := func(pod *v1.Pod, eventType, reason, message string) {
		s.events.pod(pod, "", eventType, reason, message)
	}
	k.pods.certificates = podcertificate.New(podcertificate.Config{
		NodeName: cfg.NodeName, Node: s.node.Current, Requests: cfg.Client.CertificatesV1(),
		Accounts: cfg.Client.CoreV1(), Changed: k.certificateChanged, Event: podEvent,
		Clock: cfg.Clock, Log: cfg.Log, Rand: clock.NewRand(),
	})
	k.pods.volumes = volume.New(volume.Config{
		RootDir: cfg.RootDir, NodeName: cfg.NodeName, Client: cfg.Client, Objects: k.pods.objects, Drivers: drivers,
		Certificates: k.pods.certificates, Event: podEvent,
		Allocatable: func() v1.ResourceList { return k.node.resources.allocatable }, NodeLabels: s.node.Labels,
		Label: volume.SELinux(), Metrics: s.metrics.storage, Clock: cfg.Clock, Log: cfg.Log,
	})
	cfg.Metrics.MustRegister(&metrics.Volumes{Claims: k.pods.volumes.ClaimStats, Counts: k.pods.volumes.Counts},
		&metrics.PodCertificates{States: k.pods.certificates.States})
	return api.subscribe(func() {
		drivers.Resync()
		s.node.Poke()
	})
}

// buildNode builds the parts that assign the machine's resources to pods and measure their use.
func (k *Kubelet) buildNode() error {
	s, cfg, r := k.shared, k.shared.cfg, k.node.resources
	cpusChanged := newSignal()
	h, err := newHardware(s, r.reserved, k.runtime, k.pods.drivers, cpusChanged.raise)
	if err != nil {
		return err
	}
	k.node.hardware = h
	k.node.pinning = &pinning{cfg: cfg, client: k.runtime.client, cpus: h.cpus, sources: k.pods.sources,
		changed: cpusChanged}
	k.node.cgroups, err = newPodCgroups(s, r, k.pods.sources.live,
		func(pod types.UID) bool { return h.Exclusive(pod, "") })
	if err != nil {
		return err
	}
	k.node.usage = &usage{
		cfg: cfg, begun: cfg.Clock.Now(), machine: r.machine, podMemory: r.podMemory(), runtime: k.runtime,
		sources: k.pods.sources, cgroups: k.node.cgroups.Manager, volumes: k.pods.volumes,
	}
	return nil
}

// buildUpkeep builds the parts that free the node's disk and memory and remove leftovers of pods;
// then admission, the workers and the status of the node.
func (k *Kubelet) buildUpkeep() error {
	s, cfg := k.shared, k.shared.cfg
	u := &k.upkeep
	var err error
	if u.images, err = newImages(s, k.runtime, k.pods.objects); err != nil {
		return err
	}
	if u.logs, err = newLogs(cfg, k.runtime.client); err != nil {
		return err
	}
	if u.eviction, err = newEviction(s, k.pods.view, k.node.usage, u.images.collector); err != nil {
		return err
	}
	u.shutdown = newShutdown(s, k.pods.view, k.runtime.client)
	k.node.status = node.New(s.node, k.nodeConfig())

	p := newPreemption(s)
	a, err := newAdmission(s, k.node.resources, k.node.hardware, u.eviction, u.shutdown, p)
	if err != nil {
		return err
	}
	m := allocation.NewManager(allocation.Config{
		Log: cfg.Log, Dir: cfg.RootDir, Pods: k.pods.view.Pods, Listed: k.pods.sources.listed, Check: a.check,
		Fixed: a.fixed, Freed: s.workers.Wake, Infeasible: s.metrics.resizes.infeasible, Accepted: s.metrics.resizes.accepted,
	})
	u.cleanup = &cleanup{
		cfg: cfg, client: k.runtime.client, workers: s.workers, listed: k.pods.sources.listed,
		volumes: k.pods.volumes, logs: u.logs, allocation: m, preemption: p,
		cgroups: k.node.cgroups, hardware: k.node.hardware, sandboxes: newSandboxes(cfg, k.runtime),
	}
	k.pods.workers = k.workerConfig()
	return nil
}

// nodeConfig returns the configuration of the part that keeps the Node object. It names the parts
// whose state the Node's status reports.
func (k *Kubelet) nodeConfig() node.Config {
	cfg, c, r := k.shared.cfg, k.shared.cfg.Kubelet, k.node.resources
	info := r.machine.Info
	info.KubeletVersion = cfg.Version
	return node.Config{
		Clock: cfg.Clock, Log: cfg.Log, IPs: cfg.NodeIPs, Port: c.Port, Taints: c.RegisterWithTaints,
		ProviderID: c.ProviderID, Registered: !*c.RegisterNode,
		Capacity: r.capacity, Allocatable: r.allocatable, Info: info, Declared: declared(c.FeatureGates),
		Devices: k.node.hardware.devices.Resources, VolumesInUse: k.pods.drivers.InUse,
		RuntimeVersion: k.runtime.version, Handlers: k.runtime.handlers, Features: k.runtime.features,
		Images:    k.runtime.images,
		Ready:     func() error { return cmp.Or(k.runtime.ready(), k.upkeep.shutdown.Down()) },
		Pressures: func() map[v1.NodeConditionType]string { return pressures(k.upkeep.eviction) },
		Event:     k.shared.events.nodeState,
		Period:    c.NodeStatusUpdateFrequency.Duration, ReportPeriod: c.NodeStatusReportFrequency.Duration,
		LeaseDuration: time.Duration(c.NodeLeaseDurationSeconds) * time.Second, StartGrace: startGrace,
	}
}

// workerConfig returns the configuration of the pod workers. It names all the parts that workers
// use.
func (k *Kubelet) workerConfig() worker.Config {
	s, cfg, c := k.shared, k.shared.cfg, k.shared.cfg.Kubelet
	clean := k.upkeep.cleanup
	return worker.Config{
		Clock: cfg.Clock, Log: cfg.Log, Event: s.events.pod,
		Parts: worker.Parts{
			Runtime: k.runtime.client, Volumes: k.pods.volumes, Objects: k.pods.objects, Images: k.upkeep.images.puller,
			Cgroups: k.node.cgroups, Devices: k.node.hardware,
			Handler: &prober.Handler{Exec: k.runtime.exec, Clock: cfg.Clock, FellBack: s.fellBack},
		},
		Rules: worker.Rules{
			Status: k.pods.status, Allocation: clean.allocation, Preemption: clean.preemption, Placement: k.node.hardware,
			Environment: k.pods.sources.api, RuntimeState: k.runtime,
			Release: release{clean, k.pods.sources, k.pods.changes},
		},
		Telemetry: worker.Telemetry{
			Metrics: s.metrics.pods, ProbeMetrics: s.metrics.probes, Tracer: cfg.tracer(),
			Traces: cfg.Tracing.Pods(), Observer: podObserver{s.metrics.starts, s.metrics.resizes},
		},
		Settings: worker.Settings{
			DNS: dns.Settings{
				ClusterDNS: c.ClusterDNS, ClusterDomain: c.ClusterDomain, ResolvConf: deref(c.ResolverConfig), NodeIPs: cfg.NodeIPs,
			},
			ClusterDomain: c.ClusterDomain, HostIPs: cfg.NodeIPs, RuntimeName: "containerd",
			Allocatable: k.node.resources.allocatable, Node: k.node.resources.qos,
			RootDir: cfg.RootDir, LogRoot: c.PodLogsDir, LinkRoot: linkRoot, SeccompRoot: filepath.Join(cfg.RootDir, "seccomp"),
			SeccompDefault: c.SeccompDefault != nil && *c.SeccompDefault, MaxBackoff: maxBackoff(c),
		},
	}
}

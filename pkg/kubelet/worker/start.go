// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/dns"
	"keelson.dev/keelson/pkg/kubelet/env"
	"keelson.dev/keelson/pkg/kubelet/images"
	"keelson.dev/keelson/pkg/kubelet/logs"
	"keelson.dev/keelson/pkg/kubelet/prober"
	"keelson.dev/keelson/pkg/kubelet/qos"
	"keelson.dev/keelson/pkg/kubelet/volume"
)

// Reasons of a waiting container, named as in Kubernetes.
const (
	reasonConfig = "CreateContainerConfigError"
	reasonCreate = "CreateContainerError"
	reasonRun    = "RunContainerError"
	reasonHook   = "PostStartHookError"
)

// replaceSandbox stops the containers that still run in the old sandbox, stops that sandbox and
// starts a new one.
func (w *worker) replaceSandbox(ctx context.Context, l observation, attempt uint32, handler string) (*cri.Pod, error) {
	if l.seen.Sandbox() != nil {
		w.cfg.Event(l.pod, "", v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	if err := w.stopContainers(ctx, l, graceOne(l.pod, nil)); err != nil {
		return nil, err
	}
	for _, b := range l.seen.Sandboxes {
		if err := w.cfg.Runtime.StopSandbox(ctx, b.ID); err != nil {
			return nil, fmt.Errorf("stop old sandbox: %w", err)
		}
	}
	if err := w.cfg.RuntimeState.NetworkReady(); err != nil && !l.pod.Spec.HostNetwork {
		w.event(l.pod, "NetworkNotReady", fmt.Sprintf("network is not ready: %v", err))
		return nil, err
	}
	config, err := w.sandboxConfig(l.pod, attempt, handler)
	if err != nil {
		w.event(l.pod, "FailedCreatePodSandBox", fmt.Sprintf("Failed to create pod sandbox: %v", err))
		return nil, err
	}
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		return nil, fmt.Errorf("log directory: %w", err)
	}
	inPhase, spent := w.enter(ctx, PhaseSandbox)
	over, begun := w.cfg.Metrics.Sandbox(l.pod, handler), w.cfg.Clock.Now()
	_, err = w.cfg.Runtime.RunSandbox(inPhase, config, handler)
	spent()
	if ctx.Err() == nil { // if ctx has ended, the start was cancelled, which must not count as an error
		over(w.cfg.Clock.Since(begun), err)
	}
	if err != nil {
		if ctx.Err() == nil {
			w.event(l.pod, "FailedCreatePodSandBox", "Failed to create pod sandbox: "+cri.Message(err))
		}
		return nil, err
	}
	seen, err := w.cfg.Runtime.Pod(ctx, w.uid)
	if err != nil {
		return nil, err
	}
	l.seen = seen
	w.report(l, false, false) // show the pod's address in its status
	return seen, nil
}

func (w *worker) sandboxConfig(pod *v1.Pod, attempt uint32, handler string) (*runtimeapi.PodSandboxConfig, error) {
	resolver, warnings, err := dns.Config(pod, w.cfg.DNS)
	if err != nil {
		return nil, fmt.Errorf("DNS of the pod: %w", err)
	}
	for _, warn := range warnings {
		if key := warn.Reason + warn.Message; !warn.Node && !w.events[key] {
			w.events[key] = true
			w.event(pod, warn.Reason, warn.Message)
		}
	}
	users, err := w.cfg.Placement.UserNamespace(pod, handler)
	if err != nil {
		return nil, err
	}
	hostname, err := w.kernelName(pod)
	if err != nil {
		return nil, err
	}
	return cri.SandboxConfig(pod, cri.SandboxInput{
		Attempt: attempt, Hostname: hostname, DNS: resolver, LogRoot: w.cfg.LogRoot, CgroupParent: w.cfg.Cgroups.Parent(pod),
		UserNamespace: users, Resources: qos.Sandbox(pod, w.node("")), Overhead: qos.Overhead(pod, w.cfg.Node),
	})
}

// node returns the properties of the node from which the limits of a container, or of the whole pod
// if container is empty, are computed. Containers that have CPUs of their own get no CPU quota.
func (w *worker) node(container string) qos.Node {
	n := w.cfg.Node
	n.CFSQuota = n.CFSQuota && !w.cfg.Placement.Exclusive(w.uid, container)
	return n
}

const maxHostname = 63

// hostNames returns the pod's host name and its domain, which is empty if the pod has none.
func (w *worker) hostNames(pod *v1.Pod) (hostname, domain string) {
	switch {
	case pod.Spec.HostnameOverride != nil:
		return truncate(*pod.Spec.HostnameOverride), ""
	case pod.Spec.Hostname != "":
		hostname = pod.Spec.Hostname
	default:
		hostname = truncate(pod.Name)
	}
	if pod.Spec.Subdomain != "" {
		domain = fmt.Sprintf("%s.%s.svc.%s", pod.Spec.Subdomain, pod.Namespace, w.cfg.ClusterDomain)
	}
	return hostname, domain
}

// maxKernelName is the maximum length of a host name in the Linux kernel.
const maxKernelName = 64

// kernelName returns the host name to set in the sandbox. It is empty for pods that use the host's
// network.
func (w *worker) kernelName(pod *v1.Pod) (string, error) {
	if pod.Spec.HostNetwork {
		return "", nil
	}
	hostname, domain := w.hostNames(pod)
	if domain == "" || !isTrue(pod.Spec.SetHostnameAsFQDN) {
		return hostname, nil
	}
	fqdn := hostname + "." + domain
	if len(fqdn) > maxKernelName {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is "+
			"too long (%d characters is the max, %d characters requested)",
			fqdn, maxKernelName, len(fqdn))
	}
	return fqdn, nil
}

func isTrue(b *bool) bool { return b != nil && *b }

// truncate shortens a host name to maxHostname characters and removes trailing dashes and dots.
func truncate(name string) string {
	if len(name) <= maxHostname {
		return name
	}
	name = name[:maxHostname]
	for len(name) > 0 && (name[len(name)-1] == '-' || name[len(name)-1] == '.') {
		name = name[:len(name)-1]
	}
	return name
}

// wait sets the reason why the container is waiting in the pod's status, and returns err.
func (s *starter) wait(c *v1.Container, reason string, err error) error {
	s.cfg.Metrics.StartFailed(s.kind(c), reason)
	s.setWaiting(c.Name, v1.ContainerStateWaiting{Reason: reason, Message: cri.Message(err)})
	return err
}

// start creates and starts one container and runs its postStart handler.
func (s *starter) start(ctx context.Context, c *v1.Container) error {
	s.cfg.Metrics.Start(s.kind(c))
	image, volumes, err := s.images(ctx, c)
	if err != nil {
		return err
	}
	last := s.seen.Latest(c.Name)
	if last != nil && last.State == cri.Created {
		// An earlier attempt created the container but did not start it.
		if err := s.cfg.Runtime.RemoveContainer(ctx, last.ID); err != nil {
			return s.wait(c, reasonCreate, err)
		}
	}
	restarts := s.restarts(c, last)
	config, err := s.containerConfig(ctx, c, image, volumes, restarts)
	if err != nil {
		s.cfg.Event(s.pod, c.Name, v1.EventTypeWarning, "Failed", "Error: "+err.Error())
		return s.wait(c, reasonConfig, err)
	}
	inPhase, spent := s.enter(ctx, PhaseCreate)
	id, err := s.cfg.Runtime.CreateContainer(inPhase, s.box.ID, config, s.config)
	spent()
	s.countImages(c, volumes, err)
	if err != nil {
		s.cfg.Event(s.pod, c.Name, v1.EventTypeWarning, "Failed", "Error: "+cri.Message(err))
		return s.wait(c, reasonCreate, err)
	}
	s.cfg.Event(s.pod, c.Name, v1.EventTypeNormal, "Created", "Container created")
	if last != nil && last.State == cri.Exited {
		s.backoff(c).Next(last.FinishedAt, s.cfg.Clock.Now())
	}
	inPhase, spent = s.enter(ctx, PhaseStart)
	err = s.cfg.Runtime.StartContainer(inPhase, id)
	spent()
	if err != nil {
		s.cfg.Event(s.pod, c.Name, v1.EventTypeWarning, "Failed", "Error: "+cri.Message(err))
		return s.wait(c, reasonRun, err)
	}
	s.cfg.Event(s.pod, c.Name, v1.EventTypeNormal, "Started", "Container started")
	if err := logs.Link(s.cfg.LinkRoot, s.pod.Namespace, s.pod.Name, c.Name, id,
		filepath.Join(s.config.LogDirectory, config.LogPath)); err != nil {
		s.cfg.Log.Warn("Failed to create the link to a container log", "pod", s.uid, "err", err)
	}
	return s.postStart(ctx, c, id)
}

// images returns the container's image and the images that the container mounts as volumes. It
// pulls images that are missing.
func (s *starter) images(ctx context.Context, c *v1.Container) (*runtimeapi.Image,
	map[string]*runtimeapi.ImageSpec, error) {
	ctx, spent := s.enter(ctx, PhaseImages)
	defer spent()
	image, err := s.cfg.Images.Ensure(ctx, s.pod, c, s.config, s.handler)
	if err != nil {
		if missing := (*images.Error)(nil); errors.As(err, &missing) {
			s.cfg.Metrics.StartFailed(s.kind(c), missing.Reason)
		}
		return nil, nil, err
	}
	volumes, err := s.imageVolumes(ctx, c)
	return image, volumes, err
}

// imageVolumes returns the images that the container mounts as volumes, by volume name. It pulls
// images that are missing.
func (s *starter) imageVolumes(ctx context.Context, c *v1.Container) (map[string]*runtimeapi.ImageSpec, error) {
	out := map[string]*runtimeapi.ImageSpec{}
	for i := range s.pod.Spec.Volumes {
		v := &s.pod.Spec.Volumes[i]
		if v.Image == nil || !slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == v.Name }) {
			continue
		}
		// The container has no name, so events of the pull are recorded on the pod.
		image, err := s.cfg.Images.Ensure(ctx, s.pod,
			&v1.Container{Image: v.Image.Reference, ImagePullPolicy: v.Image.PullPolicy}, s.config, s.handler)
		if err != nil {
			return nil, err
		}
		out[v.Name] = &runtimeapi.ImageSpec{Image: image.GetId(), UserSpecifiedImage: v.Image.Reference,
			RuntimeHandler: s.handler}
	}
	return out, nil
}

// postStart runs the container's postStart handler. If the handler fails, the container is stopped.
func (s *starter) postStart(ctx context.Context, c *v1.Container, id string) error {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	target := prober.Target{Pod: s.pod, Container: c, ID: id, IP: s.address(s.pod, s.box)}
	inPhase, spent := s.enter(ctx, PhaseHooks)
	err := s.cfg.Handler.Lifecycle(inPhase, target, c.Lifecycle.PostStart)
	spent()
	if err == nil || ctx.Err() != nil {
		return nil
	}
	s.cfg.Event(s.pod, c.Name, v1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
	run := &cri.Container{ID: id, Name: c.Name, State: cri.Running}
	stopErr := s.kill(ctx, order{pod: s.pod, run: run, spec: c, grace: graceOne(s.pod, nil),
		message: "FailedPostStartHook"})
	return errors.Join(s.wait(c, reasonHook, err), stopErr)
}

// restarts returns the restart count of the container's next run.
func (s *starter) restarts(c *v1.Container, last *cri.Container) int {
	switch {
	case last != nil && last.State == cri.Created:
		return last.Restarts
	case last != nil:
		return last.Restarts + 1
	}
	return cri.NextRestart(filepath.Join(s.config.LogDirectory, c.Name))
}

func (s *starter) containerConfig(ctx context.Context, c *v1.Container, image *runtimeapi.Image,
	volumes map[string]*runtimeapi.ImageSpec, restarts int) (*runtimeapi.ContainerConfig, error) {
	ips := s.box.IPs
	if s.pod.Spec.HostNetwork {
		ips = s.cfg.HostIPs
	}
	services, err := s.cfg.Environment.Services(s.pod.Namespace)
	if err != nil {
		return nil, err
	}
	envs, err := env.Build(ctx, env.Input{
		Pod: s.pod, Container: c, Services: services, PodIPs: ips, HostIPs: s.cfg.HostIPs,
		Allocatable: s.cfg.Allocatable, Objects: s.cfg.Objects, VolumePath: s.mounts.Path,
	})
	if err != nil {
		return nil, err
	}
	options := volume.Options{Env: envs, Images: volumes,
		RecursiveReadOnly: s.cfg.RuntimeState.RecursiveReadOnly(s.handler)}
	mounts, err := s.mountsOf(c, options, restarts, ips)
	if err != nil {
		return nil, err
	}
	devices, err := s.mounts.Devices(c)
	if err != nil {
		return nil, err
	}
	in := cri.ContainerInput{
		Restarts: restarts, Epoch: s.epoch, Image: image.GetId(), RuntimeHandler: s.handler,
		ImageUser: image.GetUsername(),
		Command:   env.ExpandAll(c.Command, envs), Args: env.ExpandAll(c.Args, envs),
		Envs: envs, Mounts: mounts, Devices: devices, Resources: qos.Container(s.pod, c, s.node(c.Name)),
		UserNamespace: s.users(), Target: s.target(c), SeccompRoot: s.cfg.SeccompRoot, SeccompDefault: s.cfg.SeccompDefault,
	}
	in.Resources.CpusetCpus, in.Resources.CpusetMems = s.cfg.Placement.Pinned(s.uid, c.Name)
	if uid := image.GetUid(); uid != nil {
		in.ImageUID = &uid.Value
	}
	given, err := s.cfg.Devices.Container(ctx, s.pod, c)
	if err != nil {
		return nil, err
	}
	for _, g := range given {
		addDevices(&in, g)
	}
	for _, m := range in.Mounts {
		m.UidMappings, m.GidMappings = s.users().GetUids(), s.users().GetGids()
	}
	return cri.ContainerConfig(s.pod, c, in)
}

// addDevices adds the settings that a device plugin or DRA driver requires for a container. If an
// environment variable is already set, it keeps its value.
func addDevices(in *cri.ContainerInput, g *deviceapi.ContainerAllocateResponse) {
	for _, d := range g.GetDevices() {
		in.Devices = append(in.Devices,
			&runtimeapi.Device{HostPath: d.GetHostPath(), ContainerPath: d.GetContainerPath(), Permissions: d.GetPermissions()})
	}
	for _, m := range g.GetMounts() {
		in.Mounts = append(in.Mounts,
			&runtimeapi.Mount{HostPath: m.GetHostPath(), ContainerPath: m.GetContainerPath(), Readonly: m.GetReadOnly()})
	}
	for _, d := range g.GetCdiDevices() {
		in.CDIDevices = append(in.CDIDevices, &runtimeapi.CDIDevice{Name: d.GetName()})
	}
	for _, name := range slices.Sorted(maps.Keys(g.GetEnvs())) {
		if !slices.ContainsFunc(in.Envs, func(e *runtimeapi.KeyValue) bool { return e.Key == name }) {
			in.Envs = append(in.Envs, &runtimeapi.KeyValue{Key: name, Value: []byte(g.GetEnvs()[name])})
		}
	}
	if in.Annotations == nil {
		in.Annotations = map[string]string{}
	}
	maps.Copy(in.Annotations, g.GetAnnotations())
}

// users returns the user namespace of the pod's sandbox, or nil if the sandbox uses the host's.
func (s *starter) users() *runtimeapi.UserNamespace {
	return s.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
}

// target returns the ID of the running container whose processes the ephemeral container c shares,
// or "".
func (s *starter) target(c *v1.Container) string {
	for i := range s.pod.Spec.EphemeralContainers {
		e := &s.pod.Spec.EphemeralContainers[i]
		if e.Name != c.Name || e.TargetContainerName == "" {
			continue
		}
		if run := s.seen.Latest(e.TargetContainerName); run != nil && run.State == cri.Running {
			return run.ID
		}
	}
	return ""
}

const etcHosts = "/etc/hosts"

// mountsOf returns the mounts of the container: its volumes, its hosts file and its termination
// message file.
func (s *starter) mountsOf(c *v1.Container, o volume.Options, restarts int, ips []string) ([]*runtimeapi.Mount, error) {
	mounts, err := s.mounts.ForContainer(s.pod, c, o)
	if err != nil {
		return nil, err
	}
	own := false
	for _, m := range c.VolumeMounts {
		own = own || m.MountPath == etcHosts
	}
	dir := filepath.Join(s.cfg.RootDir, "pods", string(s.uid))
	if err := os.MkdirAll(dir, 0o750); err != nil { // creates the directory if the pod has no volumes
		return nil, fmt.Errorf("pod directory: %w", err)
	}
	if !own {
		hostname, domain := s.hostNames(s.pod)
		file := volume.EtcHosts{
			PodIPs: ips, HostName: hostname, Domain: domain, Aliases: s.pod.Spec.HostAliases,
			HostNetwork: s.pod.Spec.HostNetwork, NodeFile: etcHosts,
		}
		path := filepath.Join(dir, "etc-hosts")
		if err := file.Write(path); err != nil {
			return nil, fmt.Errorf("hosts file: %w", err)
		}
		mounts = append(mounts, &runtimeapi.Mount{ContainerPath: etcHosts, HostPath: path})
	}
	if c.TerminationMessagePath == "" {
		return mounts, nil
	}
	path := filepath.Join(dir, "containers", c.Name, strconv.Itoa(restarts))
	if err := emptyFile(path); err != nil {
		return nil, fmt.Errorf("termination message file: %w", err)
	}
	return append(mounts, &runtimeapi.Mount{ContainerPath: c.TerminationMessagePath, HostPath: path}), nil
}

// emptyFile creates an empty file to which every user in a container may write.
func emptyFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		return err
	}
	return os.Chmod(path, 0o666)
}

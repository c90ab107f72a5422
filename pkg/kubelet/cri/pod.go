// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pod is the state of a pod in the runtime.
type Pod struct {
	UID             types.UID
	Namespace, Name string
	// Sandboxes are the pod's sandboxes, the newest first.
	Sandboxes []Sandbox
	// Containers are the containers in all sandboxes of the pod, the newest first.
	Containers []Container
}

// Sandbox is the state of a pod's sandbox.
type Sandbox struct {
	ID          string
	Attempt     uint32
	Ready       bool
	HostNetwork bool
	CreatedAt   time.Time
	// IPs are the sandbox's addresses, the primary address first. It is empty if the pod uses the
	// host's network.
	IPs            []string
	RuntimeHandler string
}

// State is the state of a container.
type State int

// The states of a container.
const (
	Created State = iota
	Running
	Exited
	Unknown
)

// Container is one run of a container. Each restart of a container creates a new one in the
// runtime.
type Container struct {
	// Identity of the container:

	ID, Name, SandboxID string
	Restarts            int
	Hash                string
	// Epoch is how often all containers of the pod had been restarted together when this container
	// was created.
	Epoch       int64
	annotations map[string]string

	// State of the container:

	State           State
	CreatedAt       time.Time
	StartedAt       time.Time
	FinishedAt      time.Time
	ExitCode        int32
	Reason, Message string

	// Configuration of the container:

	// Image is the image's name. ImageID is the reference to which the runtime resolved the name.
	Image, ImageID string
	LogPath        string
	MessagePath    string
	MessagePolicy  v1.TerminationMessagePolicy
	StopSignal     runtimeapi.Signal
	Resources      *runtimeapi.LinuxContainerResources
	User           *runtimeapi.LinuxContainerUser
	Mounts         []*runtimeapi.Mount
}

// Sandbox returns the pod's newest sandbox, or nil if it has none.
func (p *Pod) Sandbox() *Sandbox {
	if p == nil || len(p.Sandboxes) == 0 {
		return nil
	}
	return &p.Sandboxes[0]
}

// Latest returns the newest run of the container with this name, or nil if it has never run.
func (p *Pod) Latest(name string) *Container { return p.Run(name, 0) }

// Run returns the n-th newest run of the container with this name, or nil. If n is 0, it returns
// the newest run.
func (p *Pod) Run(name string, n int) *Container {
	if p == nil {
		return nil
	}
	for i := range p.Containers {
		if p.Containers[i].Name != name {
			continue
		}
		if n == 0 {
			return &p.Containers[i]
		}
		n--
	}
	return nil
}

// Active reports whether any of the pod's sandboxes is ready or any of its containers runs.
func (p *Pod) Active() bool {
	return p != nil && (slices.ContainsFunc(p.Sandboxes, func(s Sandbox) bool { return s.Ready }) || p.Running())
}

// Running reports whether any of the pod's containers runs.
func (p *Pod) Running() bool {
	return p != nil && slices.ContainsFunc(p.Containers, func(c Container) bool { return c.State == Running })
}

// MinimalPod returns an API pod with the fields that the runtime's labels and annotations contain.
// They suffice to stop the pod gracefully.
func (p *Pod) MinimalPod() *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID}}
	seen := map[string]bool{}
	for _, c := range p.Containers {
		if seen[c.Name] {
			continue
		}
		seen[c.Name] = true
		spec := v1.Container{Name: c.Name, Image: c.Image, TerminationMessagePath: c.MessagePath,
			TerminationMessagePolicy: c.MessagePolicy}
		if raw, ok := c.annotations[annotationPreStop]; ok {
			h := &v1.LifecycleHandler{}
			if json.Unmarshal([]byte(raw), h) == nil {
				spec.Lifecycle = &v1.Lifecycle{PreStop: h}
			}
		}
		if raw, ok := c.annotations[annotationPorts]; ok {
			_ = json.Unmarshal([]byte(raw), &spec.Ports)
		}
		if g, err := strconv.ParseInt(c.annotations[annotationTerminationPeriod], 10, 64); err == nil {
			pod.Spec.TerminationGracePeriodSeconds = &g
		}
		pod.Spec.Containers = append(pod.Spec.Containers, spec)
	}
	return pod
}

// Pod reads the state of a pod from the runtime. The result is empty if the runtime does not have
// the pod.
func (c *Client) Pod(ctx context.Context, uid types.UID) (*Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	selector := map[string]string{LabelPodUID: string(uid)}
	boxes, err := c.Runtime.ListPodSandbox(ctx,
		&runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: selector}})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	pod := &Pod{UID: uid}
	for _, item := range boxes.Items {
		pod.Namespace, pod.Name = item.GetMetadata().GetNamespace(), item.GetMetadata().GetName()
		b, err := c.sandbox(ctx, item)
		if NotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("sandbox status: %w", err)
		}
		pod.Sandboxes = append(pod.Sandboxes, b)
	}
	list, err := c.Runtime.ListContainers(ctx,
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: selector}})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	for _, item := range list.Containers {
		st, err := c.container(ctx, item)
		if NotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("container status: %w", err)
		}
		pod.Containers = append(pod.Containers, st)
	}
	pod.sort()
	return pod, nil
}

// sandbox returns the status of a sandbox in a list, from the cache if possible.
func (c *Client) sandbox(ctx context.Context, item *runtimeapi.PodSandbox) (Sandbox, error) {
	b, known, asked := c.statuses.sandbox(item)
	if known {
		return b, nil
	}
	r, err := c.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: item.Id})
	if err != nil {
		return Sandbox{}, err
	}
	b = sandboxOf(r.Status)
	c.statuses.keepSandbox(b, asked)
	return b, nil
}

// container returns the status of a container in a list, from the cache if possible.
func (c *Client) container(ctx context.Context, item *runtimeapi.Container) (Container, error) {
	st, known, asked := c.statuses.container(item)
	if known {
		return st, nil
	}
	r, err := c.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: item.Id})
	if err != nil {
		return Container{}, err
	}
	st = containerOf(r.Status)
	st.SandboxID = item.PodSandboxId
	c.statuses.keepContainer(st, r.Status.GetState(), asked)
	return st, nil
}

// sort sorts sandboxes and containers so that the newest are first. It compares the numbers of
// attempts and restarts, which always increase, before the times, because the machine's clock may
// have been set back.
func (p *Pod) sort() {
	slices.SortFunc(p.Sandboxes, func(a, b Sandbox) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(p.Containers, func(a, b Container) int {
		return cmp.Or(cmp.Compare(b.Restarts, a.Restarts), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
}

func sandboxOf(s *runtimeapi.PodSandboxStatus) Sandbox {
	b := Sandbox{
		ID:             s.GetId(),
		Attempt:        s.GetMetadata().GetAttempt(),
		Ready:          s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		HostNetwork:    s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE,
		CreatedAt:      time.Unix(0, s.GetCreatedAt()),
		RuntimeHandler: s.GetRuntimeHandler(),
	}
	if ip := s.GetNetwork().GetIp(); ip != "" && !b.HostNetwork {
		b.IPs = append(b.IPs, ip)
		for _, more := range s.GetNetwork().GetAdditionalIps() {
			b.IPs = append(b.IPs, more.GetIp())
		}
	}
	return b
}

func containerOf(s *runtimeapi.ContainerStatus) Container {
	a := s.GetAnnotations()
	restarts, _ := strconv.Atoi(a[annotationRestartCount])
	c := Container{
		ID:            s.GetId(),
		Name:          s.GetLabels()[LabelContainerName],
		Restarts:      restarts,
		Hash:          a[annotationHash],
		Epoch:         Epoch(a),
		CreatedAt:     timeOf(s.GetCreatedAt()),
		StartedAt:     timeOf(s.GetStartedAt()),
		FinishedAt:    timeOf(s.GetFinishedAt()),
		ExitCode:      s.GetExitCode(),
		Reason:        s.GetReason(),
		Message:       s.GetMessage(),
		Image:         s.GetImage().GetImage(),
		ImageID:       cmp.Or(s.GetImageRef(), s.GetImageId()),
		LogPath:       s.GetLogPath(),
		MessagePath:   a[annotationMessagePath],
		MessagePolicy: v1.TerminationMessagePolicy(a[annotationMessagePolicy]),
		StopSignal:    s.GetStopSignal(),
		Resources:     s.GetResources().GetLinux(),
		User:          s.GetUser().GetLinux(),
		Mounts:        s.GetMounts(),
		annotations:   a,
	}
	switch s.GetState() {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		c.State = Created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		c.State = Running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		c.State = Exited
	default:
		c.State = Unknown
	}
	if c.State == Exited && startCut(s) {
		c.State = Created
	}
	return c
}

// startCut reports whether a container failed to start because the call was cancelled, for example
// because the kubelet was killed during the call. Such a container counts as never started.
func startCut(s *runtimeapi.ContainerStatus) bool {
	return s.GetStartedAt() == 0 && s.GetReason() == "StartError" &&
		strings.HasSuffix(s.GetMessage(), context.Canceled.Error())
}

func timeOf(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

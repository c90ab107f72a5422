// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/worker"
	"keelson.dev/keelson/pkg/network"
)

const (
	// startPoll is how often the kubelet polls a runtime that is not ready. statePoll is how often
	// it polls a runtime that is ready.
	startPoll = 50 * time.Millisecond
	statePoll = 5 * time.Second
	// callTimeout is the timeout of a call to the runtime for the node's status.
	callTimeout = 5 * time.Second
	// startGrace is how long a starting kubelet waits for the runtime and the network before it
	// reports that the node is not ready.
	startGrace = 10 * time.Second
	// maxImages is the default maximum number of images in the Node's status.
	maxImages = 50
	podIface  = "eth0"
)

// runtime is the connection to the container runtime and what the runtime last reported.
type runtime struct {
	client    *cri.Client
	network   *network.Network // nil if CNI plugins of the operator provide the pod network
	driver    *driver
	clock     clock.Clock
	maxImages int
	timeout   time.Duration // timeout of each call to the runtime for the node's status
	// changed is called when the runtime or its network becomes ready or unready, or when the
	// reason changes.
	changed func()

	mu    sync.Mutex
	known answer              // what the runtime last reported about itself
	last  []v1.ContainerImage // the result of the last successful call of images
}

var _ worker.RuntimeState = (*runtime)(nil)

func newRuntime(client *cri.Client, n *network.Network, cfg Config, changed func()) *runtime {
	notYet := errors.New("container runtime status check may not have completed yet")
	r := &runtime{
		client: client, network: n, clock: cfg.Clock, changed: changed, known: answer{state: notYet, netState: notYet},
		maxImages: maxImages, timeout: callTimeout, driver: newDriver(cfg),
	}
	if m := cfg.Kubelet.NodeStatusMaxImages; m != nil {
		r.maxImages = int(*m)
	}
	return r
}

// watchState polls the state of the runtime until ctx ends.
func (r *runtime) watchState(ctx context.Context) error {
	for {
		wait := statePoll
		if r.refresh(ctx) != nil {
			wait = startPoll
		}
		if !pause(ctx, r.clock, wait) {
			return nil
		}
	}
}

// pause waits for the duration d. It returns false if ctx ends first.
func pause(ctx context.Context, c clock.Clock, d time.Duration) bool {
	t := c.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C():
		return true
	}
}

func (r *runtime) refresh(ctx context.Context) error {
	now := r.ask(ctx)
	r.mu.Lock()
	changed := errorText(r.known.state) != errorText(now.state) || errorText(r.known.netState) != errorText(now.netState)
	if now.name == "" { // the runtime did not answer, so keep what it reported before
		now.name, now.handlers, now.features = r.known.name, r.known.handlers, r.known.features
	}
	r.known = now
	r.mu.Unlock()
	if changed && ctx.Err() == nil {
		r.changed()
	}
	return errors.Join(now.state, now.netState)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// answer is what the runtime reports about itself. The fields state and netState are nil if all is
// well.
type answer struct {
	state    error // why the runtime cannot run pods
	netState error // why the runtime cannot connect pods to the network
	name     string
	handlers []*runtimeapi.RuntimeHandler
	features *runtimeapi.RuntimeFeatures
}

// ask requests the runtime's version and status.
func (r *runtime) ask(ctx context.Context) answer {
	down := func(err error) answer {
		return answer{
			state:    fmt.Errorf("container runtime is down: %s", cri.Message(err)),
			netState: errors.New("container runtime is down"),
		}
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	v, err := r.client.Version(ctx)
	if err != nil {
		return down(err)
	}
	s, err := r.client.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return down(err)
	}
	a := answer{
		name: v.GetRuntimeName() + "://" + v.GetRuntimeVersion(), state: r.driver.resolve(ctx, r.client.Runtime),
		handlers: s.GetRuntimeHandlers(), features: s.GetFeatures(),
	}
	for _, c := range s.GetStatus().GetConditions() {
		if c.Status || c.Type != runtimeapi.RuntimeReady && c.Type != runtimeapi.NetworkReady {
			continue // the condition is true, or it does not prevent pods from running
		}
		err := fmt.Errorf("%s=%t reason:%s message:%s", c.Type, c.Status, c.Reason, c.Message)
		if c.Type == runtimeapi.NetworkReady {
			a.netState = fmt.Errorf("container runtime network not ready: %w", err)
		} else {
			a.state = fmt.Errorf("container runtime not ready: %w", err)
		}
	}
	if r.network != nil && a.netState == nil {
		if err := r.network.Ready(); err != nil {
			a.netState = fmt.Errorf("pod network not ready: %w", err)
		}
	}
	return a
}

// lastAnswer returns what the runtime last reported about itself.
func (r *runtime) lastAnswer() answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known
}

// ready returns nil if pods can run on the node, and otherwise the reason why they cannot.
func (r *runtime) ready() error {
	a := r.lastAnswer()
	return cmp.Or(a.state, a.netState)
}

// NetworkReady implements worker.RuntimeState. It returns nil if pods can be connected to the
// network.
func (r *runtime) NetworkReady() error { return r.lastAnswer().netState }

// version returns the name and version of the runtime in the form NAME://VERSION.
func (r *runtime) version() string { return r.lastAnswer().name }

// handlers returns the runtime's handlers in the form of the Node's status.
func (r *runtime) handlers() []v1.NodeRuntimeHandler {
	var out []v1.NodeRuntimeHandler
	for _, h := range r.lastAnswer().handlers {
		readOnly, userns := h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces()
		out = append(out, v1.NodeRuntimeHandler{
			Name: h.GetName(), Features: &v1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &readOnly,
				UserNamespaces: &userns},
		})
	}
	return out
}

// features returns the runtime's features in the form of the Node's status, or nil if the runtime
// has not reported its features.
func (r *runtime) features() *v1.NodeFeatures {
	f := r.lastAnswer().features
	if f == nil {
		return nil
	}
	groups := f.GetSupplementalGroupsPolicy()
	return &v1.NodeFeatures{SupplementalGroupsPolicy: &groups}
}

// RecursiveReadOnly implements worker.RuntimeState. It reports whether a runtime handler supports
// recursive read-only mounts.
func (r *runtime) RecursiveReadOnly(handler string) bool {
	return r.handler(handler).GetFeatures().GetRecursiveReadOnlyMounts()
}

// handler returns the runtime's handler with this name, or nil if there is none.
func (r *runtime) handler(name string) *runtimeapi.RuntimeHandler {
	for _, h := range r.lastAnswer().handlers {
		if h.GetName() == name {
			return h
		}
	}
	return nil
}

// images returns the images for the Node's status, largest first. If the runtime is down or does
// not answer, images returns the previous list, so that the Node's status, which must report that
// the runtime is down, is not delayed.
func (r *runtime) images(ctx context.Context) []v1.ContainerImage {
	r.mu.Lock()
	last, down := r.last, r.known.state != nil
	r.mu.Unlock()
	if down {
		return last
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	list, err := r.client.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return last
	}
	slices.SortFunc(list.Images, func(a, b *runtimeapi.Image) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Id, b.Id))
	})
	var out []v1.ContainerImage
	for _, image := range list.Images {
		if r.maxImages >= 0 && len(out) >= r.maxImages {
			break
		}
		names := append(slices.Clone(image.RepoDigests), image.RepoTags...)
		if len(names) > 0 {
			out = append(out, v1.ContainerImage{Names: names, SizeBytes: int64(image.Size)})
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = out
	return out
}

// exec runs a command in a container, for a probe or a lifecycle handler. It returns an error if
// the command has not ended when ctx ends.
func (r *runtime) exec(ctx context.Context, id string, command []string) (output string, exit int32, err error) {
	var timeout time.Duration
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(deadline.Sub(r.clock.Now()), time.Second)
	}
	resp, err := r.client.Run(ctx, id, command, timeout)
	if cri.TimedOut(err) { // the runtime ended the call at its timeout, perhaps before ctx ended
		return "", 0, fmt.Errorf("%s: %w", cri.Message(err), context.DeadlineExceeded)
	}
	if err != nil {
		return "", 0, errors.New(cri.Message(err))
	}
	return string(resp.Stdout) + string(resp.Stderr), resp.ExitCode, nil
}

// attachments returns the network interfaces of all sandboxes that are ready.
func (r *runtime) attachments(ctx context.Context) ([]network.Attachment, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	boxes, err := r.client.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	var out []network.Attachment
	for _, b := range boxes.Items {
		if b.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			out = append(out, network.Attachment{ContainerID: b.Id, IfName: podIface})
		}
	}
	return out, nil
}

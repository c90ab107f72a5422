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
	"keelson.dev/keelson/pkg/network"
)

const (
	// startPoll is how often a runtime that is not ready is asked again, statePoll one that is.
	startPoll = 50 * time.Millisecond
	statePoll = 5 * time.Second
	// startGrace is how long a kubelet that starts waits for the runtime and the network before it says that the node
	// is not ready.
	startGrace = 10 * time.Second
	// maxImages bounds the images in the node's status.
	maxImages = 50
	podIface  = "eth0"
)

// runtime is the container runtime with what was last known of its state.
type runtime struct {
	client  *cri.Client
	network *network.Network
	clock   clock.Clock
	changed func()
	maximum int

	mu       sync.Mutex
	state    error // why pods cannot run
	netState error // why pods cannot have a network
	named    string
	knows    []*runtimeapi.RuntimeHandler
	has      *runtimeapi.RuntimeFeatures
	last     []v1.ContainerImage // as it last listed them

	driver *driver
}

func newRuntime(client *cri.Client, n *network.Network, cfg Config) *runtime {
	notYet := errors.New("container runtime status check may not have completed yet")
	r := &runtime{client: client, network: n, clock: cfg.Clock, state: notYet, netState: notYet, maximum: maxImages, driver: newDriver(cfg)}
	if m := cfg.Kubelet.NodeStatusMaxImages; m != nil {
		r.maximum = int(*m)
	}
	return r
}

// watchState keeps the state until ctx ends.
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

// pause waits for d and tells whether ctx still holds.
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
	changed := text(r.state) != text(now.state) || text(r.netState) != text(now.netState)
	r.state, r.netState = now.state, now.netState
	if now.named != "" {
		r.named = now.named
	}
	r.mu.Unlock()
	if changed && ctx.Err() == nil {
		r.changed()
	}
	return errors.Join(now.state, now.netState)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// answer is what the runtime says of itself.
type answer struct {
	state    error // why pods cannot run
	netState error // why pods cannot have a network
	named    string
}

// ask asks the runtime how it is, and for its name.
func (r *runtime) ask(ctx context.Context) answer {
	down := func(err error) answer {
		return answer{fmt.Errorf("container runtime is down: %s", cri.Message(err)), errors.New("container runtime is down"), ""}
	}
	ctx, cancel := context.WithTimeout(ctx, statePoll)
	defer cancel()
	v, err := r.client.Version(ctx)
	if err != nil {
		return down(err)
	}
	s, err := r.client.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return down(err)
	}
	r.mu.Lock()
	r.knows, r.has = s.GetRuntimeHandlers(), s.GetFeatures()
	r.mu.Unlock()
	a := answer{named: v.GetRuntimeName() + "://" + v.GetRuntimeVersion(), state: r.driver.settle(ctx, r.client.Runtime)}
	for _, c := range s.GetStatus().GetConditions() {
		if c.Status || c.Type != runtimeapi.RuntimeReady && c.Type != runtimeapi.NetworkReady {
			continue // others are advice
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

// ready returns why pods cannot run on the node, or nil.
func (r *runtime) ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return cmp.Or(r.state, r.netState)
}

func (r *runtime) networkReady() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.netState
}

func (r *runtime) version() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.named
}

func (r *runtime) handlers() []v1.NodeRuntimeHandler {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []v1.NodeRuntimeHandler
	for _, h := range r.knows {
		readOnly, userns := h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces()
		out = append(out, v1.NodeRuntimeHandler{
			Name: h.GetName(), Features: &v1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &readOnly, UserNamespaces: &userns},
		})
	}
	return out
}

func (r *runtime) features() *v1.NodeFeatures {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.has == nil {
		return nil
	}
	groups := r.has.GetSupplementalGroupsPolicy()
	return &v1.NodeFeatures{SupplementalGroupsPolicy: &groups}
}

func (r *runtime) recursiveReadOnly(handler string) bool {
	return r.handler(handler).GetFeatures().GetRecursiveReadOnlyMounts()
}

// handler is what the runtime says of a handler; nil if it does not know it.
func (r *runtime) handler(name string) *runtimeapi.RuntimeHandler {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.knows, func(h *runtimeapi.RuntimeHandler) bool { return h.GetName() == name }); i >= 0 {
		return r.knows[i]
	}
	return nil
}

// images are the node's images as its status tells them, the largest first. A runtime that is down, or that does not answer,
// is told of by the Ready condition, which must not wait for it: then they are what they were.
func (r *runtime) images(ctx context.Context) []v1.ContainerImage {
	r.mu.Lock()
	last, down := r.last, r.state != nil
	r.mu.Unlock()
	if down {
		return last
	}
	ctx, cancel := context.WithTimeout(ctx, statePoll)
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
		if r.maximum >= 0 && len(out) >= r.maximum {
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

// exec runs a command in a container for a probe or a handler, until ctx ends.
func (r *runtime) exec(ctx context.Context, id string, command []string) (output string, exit int32, err error) {
	var timeout time.Duration
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(deadline.Sub(r.clock.Now()), time.Second)
	}
	resp, err := r.client.Run(ctx, id, command, timeout)
	if cri.TimedOut(err) { // by the runtime's clock, which may be ahead
		return "", 0, fmt.Errorf("%s: %w", cri.Message(err), context.DeadlineExceeded)
	}
	if err != nil {
		return "", 0, errors.New(cri.Message(err))
	}
	return string(resp.Stdout) + string(resp.Stderr), resp.ExitCode, nil
}

// attachments are the interfaces of the sandboxes that the runtime has.
func (r *runtime) attachments(ctx context.Context) ([]network.Attachment, error) {
	ctx, cancel := context.WithTimeout(ctx, statePoll)
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

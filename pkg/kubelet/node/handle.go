// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
)

// Identity contains the node's name and labels, and the client for its API objects.
type Identity struct {
	Client kubernetes.Interface
	Name   string
	// Hostname is the value of the node's hostname label, and its address of the type Hostname.
	Hostname string
	// Labels are added to the labels that every node has.
	Labels map[string]string
}

// Handle gives other parts of the kubelet access to the node: the object as last read, and a
// request to update its status soon. These parts are created before the Node, which depends on
// them.
type Handle struct {
	id   Identity
	wake chan struct{} // capacity 1; a token requests that the status is computed now
	seen chan struct{} // capacity 1; has a token if the node was read since the last receive

	mu      sync.Mutex
	current *v1.Node // the node as the API last returned it
}

// NewHandle returns the Handle of a node that has not been read from the API yet.
func NewHandle(id Identity) *Handle {
	return &Handle{id: id, wake: make(chan struct{}, 1), seen: make(chan struct{}, 1)}
}

// Poke requests that the Node computes its status now. It does not block.
func (h *Handle) Poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Labels returns the node's labels from the last version that was read. Before the first version
// was read, it returns the labels that the registration sets.
func (h *Handle) Labels() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == nil {
		return h.labels()
	}
	return h.current.Labels
}

// Current returns the last version of the node that was read. It returns nil before the
// registration.
func (h *Handle) Current() *v1.Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

// Seen returns a channel that one goroutine can receive from to learn that the node was read.
func (h *Handle) Seen() <-chan struct{} { return h.seen }

// RemoveLabel removes a label from the node in the API, if the label still has the given value.
func (h *Handle) RemoveLabel(ctx context.Context, label, value string) error {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value string `json:"value,omitempty"`
	}
	path := "/metadata/labels/" + strings.ReplaceAll(label, "/", "~1")
	body, err := json.Marshal([]operation{{"test", path, value}, {"remove", path, ""}})
	if err != nil {
		return fmt.Errorf("patch of the node: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	got, err := h.id.Client.CoreV1().Nodes().Patch(ctx, h.id.Name, types.JSONPatchType, body, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("patch the node: %w", err)
	}
	h.saw(got)
	return nil
}

// Refresh reads the node from the API. It does not change the result of Current.
func (h *Handle) Refresh(ctx context.Context) (*v1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	got, err := h.id.Client.CoreV1().Nodes().Get(ctx, h.id.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	return got, nil
}

func (h *Handle) labels() map[string]string {
	l := map[string]string{
		v1.LabelHostname: h.id.Hostname, v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": runtime.GOOS, "beta.kubernetes.io/arch": runtime.GOARCH,
	}
	maps.Copy(l, h.id.Labels)
	return l
}

// saw records a version of the node that was read, unless a newer one is known: a read from a server's
// cache may be older than the last write.
func (h *Handle) saw(node *v1.Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !older(node, h.current) {
		h.current = node
	}
	select {
	case h.seen <- struct{}{}:
	default:
	}
}

// older reports whether a node is older than another, which may be nil.
func older(node, than *v1.Node) bool {
	if than == nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, than.ResourceVersion)
	return err == nil && order < 0
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"keelson.dev/keelson/pkg/kubelet/devices"
	"keelson.dev/keelson/pkg/kubelet/dra"
	"keelson.dev/keelson/pkg/kubelet/plugins"
	"keelson.dev/keelson/pkg/kubelet/userns"
	"keelson.dev/keelson/pkg/kubelet/worker"
)

// hardware is what of the node belongs to one pod at a time: devices of plugins,
// claims of drivers, ranges of user IDs.
type hardware struct {
	devices *devices.Manager
	claims  *dra.Manager
	users   *userns.Manager
	plugins *plugins.Watcher
}

var _ worker.Devices = (*hardware)(nil)

func newHardware(cfg Config, storage plugins.Handler, changed func()) (*hardware, error) {
	length := int64(userns.DefaultLength)
	if u := cfg.Kubelet.UserNamespaces; u != nil && u.IDsPerPod != nil && *u.IDsPerPod != 0 {
		length = *u.IDsPerPod
	}
	users, err := userns.New(filepath.Join(cfg.RootDir, "pods"), uint32(length), int(cfg.Kubelet.MaxPods))
	if err != nil {
		return nil, err
	}
	h := &hardware{
		users: users,
		devices: devices.NewManager(devices.Config{
			Dir: filepath.Join(cfg.RootDir, "device-plugins"), Clock: cfg.Clock, Log: cfg.Log, Changed: changed,
		}),
		claims: dra.NewManager(dra.Config{
			File: filepath.Join(cfg.RootDir, "dra_manager_state"), Log: cfg.Log,
			Claim: func(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
				return cfg.Client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
			},
		}),
	}
	h.plugins = plugins.New(plugins.Config{
		Dir: filepath.Join(cfg.RootDir, "plugins_registry"), Clock: cfg.Clock, Log: cfg.Log,
		Handlers: map[string]plugins.Handler{registration.DRAPlugin: h.claims, registration.DevicePlugin: h.devices, registration.CSIPlugin: storage},
	})
	return h, nil
}

// Prepare implements worker.Devices.
func (h *hardware) Prepare(ctx context.Context, pod *v1.Pod) error { return h.claims.Prepare(ctx, pod) }

// Container implements worker.Devices.
func (h *hardware) Container(ctx context.Context, pod *v1.Pod, c *v1.Container) ([]*deviceapi.ContainerAllocateResponse, error) {
	out, err := h.devices.Container(ctx, pod, c)
	if err != nil {
		return nil, err
	}
	names, err := h.claims.Container(pod, c)
	if err != nil {
		return nil, err
	}
	claimed := &deviceapi.ContainerAllocateResponse{}
	for _, n := range names {
		claimed.CdiDevices = append(claimed.CdiDevices, &deviceapi.CDIDevice{Name: n})
	}
	return append(out, claimed), nil
}

// release gives back what a pod holds until nothing of it runs any more.
func (h *hardware) release(ctx context.Context, uid types.UID) error {
	if err := h.claims.Unprepare(ctx, uid); err != nil {
		return err
	}
	h.devices.Free(uid)
	return h.users.Free(uid)
}

// pods are those that hold something.
func (h *hardware) pods() []types.UID {
	return slices.Concat(h.users.Pods(), h.claims.Pods(), h.devices.Pods())
}

// userNamespace is the pod's own user namespace, or nil for that of the machine.
func (k *Kubelet) userNamespace(pod *v1.Pod, handler string) (*runtimeapi.UserNamespace, error) {
	if pod.Spec.HostUsers == nil || *pod.Spec.HostUsers {
		return nil, nil
	}
	if !k.runtime.handler(handler).GetFeatures().GetUserNamespaces() {
		if handler != "" {
			return nil, fmt.Errorf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", handler)
		}
		return nil, errors.New("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
	}
	return k.hardware.users.Get(pod.UID)
}

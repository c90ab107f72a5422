// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"log/slog"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/objects"
)

// Objects gives the API objects that volumes are made from. *objects.Manager is one.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	ServiceAccountToken(ctx context.Context, pod *v1.Pod, sa string, audiences []string, expiry time.Duration) (*authenticationv1.TokenRequestStatus, error)
	Subscribe(changed func(ref objects.Ref, pods []*v1.Pod)) (unsubscribe func())
}

// Config is what a Manager needs.
type Config struct {
	// RootDir is the kubelet's directory, /var/lib/kubelet.
	RootDir string
	// NodeName is the node's name.
	NodeName string
	// Client reads claims, volumes and trust bundles; these are not watched.
	Client  kubernetes.Interface
	Objects Objects
	// Allocatable gives the node's allocatable resources, for downward API volumes.
	Allocatable func() v1.ResourceList
	Clock       clock.Clock
	Log         *slog.Logger
	// Event records an event on a pod; it may be nil.
	Event func(pod *v1.Pod, eventType, reason, message string)
}

// Manager makes the volumes of the node's pods and keeps their content fresh.
type Manager struct {
	cfg Config
}

// New makes a Manager. It starts nothing and touches nothing.
func New(cfg Config) *Manager { return &Manager{cfg: cfg} }

// Run keeps the content of prepared volumes fresh until ctx ends.
func (m *Manager) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Prepare makes every volume of pod and returns when all are ready. It is idempotent: volumes
// that are there stay as they are, but for their content. An *Error tells the event to record.
func (m *Manager) Prepare(ctx context.Context, pod *v1.Pod) (Mounts, error) { return Mounts{}, nil }

// Update tells the manager of a new version of a pod (labels, annotations, resources), so that downward API volumes follow.
func (m *Manager) Update(pod *v1.Pod) {}

// Teardown unmounts and removes all of the pod's volumes, whether or not this process made them.
// It is idempotent; nothing of a host path or a persistent volume is removed.
func (m *Manager) Teardown(ctx context.Context, pod types.UID) error { return nil }

// Pods names the pods that have volumes under RootDir, including those left by an earlier process.
func (m *Manager) Pods() ([]types.UID, error) { return nil, nil }

// Mounts are the prepared volumes of one pod.
type Mounts struct{}

// Options are what one container's mounts depend on besides its spec.
type Options struct {
	// Env is the container's environment, for subPathExpr.
	Env []*runtimeapi.KeyValue
	// Images gives, by volume name, the pulled image of each image volume.
	Images map[string]*runtimeapi.ImageSpec
	// UIDMappings and GIDMappings are the pod's user namespace, if it has one.
	UIDMappings, GIDMappings []*runtimeapi.IDMapping
	// RecursiveReadOnly tells whether the runtime handler supports recursive read-only mounts.
	RecursiveReadOnly bool
}

// ForContainer returns what to mount into a container of the pod, in the order of its volumeMounts.
func (ms Mounts) ForContainer(pod *v1.Pod, c *v1.Container, o Options) ([]*runtimeapi.Mount, error) {
	return nil, nil
}

// Path returns the node's path of a prepared volume.
func (ms Mounts) Path(volume string) (string, bool) { return "", false }

// Devices returns the node's device paths of the container's volumeDevices.
func (ms Mounts) Devices(c *v1.Container) ([]*runtimeapi.Device, error) { return nil, nil }

// Error is why a volume could not be made ready.
type Error struct {
	// Reason is the event reason, FailedMount or another of Kubernetes'.
	Reason string
	// Volume names the volume, if it is one that is to blame.
	Volume string
	Err    error
}

// Error returns the text of the event.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

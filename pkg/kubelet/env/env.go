// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package env computes the environment variables of a container: those with the addresses of
// Services (service variables), those in envFrom, and those in env. It also expands references of
// the form $(NAME). As in Kubernetes, variables are set in this order:
//
//   - the entries of envFrom; later entries replace variables of earlier ones;
//   - the entries of env; each entry can refer to earlier variables and to service variables;
//   - service variables, unless a variable with the same name is already set.
package env

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/keelson/pkg/beneath"
	"keelson.dev/keelson/pkg/kubelet/downward"
)

// Objects reads the objects to which environment variables refer.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
}

// Input holds everything from which the environment of a container is computed.
type Input struct {
	Pod       *v1.Pod
	Container *v1.Container
	// Services are all Services in the pod's namespace and in the namespace default.
	Services []*v1.Service
	// PodIPs and HostIPs are the addresses that are known now, the primary address first.
	PodIPs, HostIPs []string
	// Allocatable holds the node's allocatable resources, which are used in place of limits that
	// the container does not set.
	Allocatable v1.ResourceList
	Objects     Objects
	// VolumePath returns the path of a pod's volume on the node. It is used for fileKeyRef.
	VolumePath func(volume string) (string, bool)
}

// Build returns the environment variables of the container, sorted by name.
func Build(ctx context.Context, in Input) ([]*runtimeapi.KeyValue, error) {
	links := in.Pod.Spec.EnableServiceLinks == nil || *in.Pod.Spec.EnableServiceLinks
	m := maker{
		Input:    in,
		services: serviceVariables(in.Services, in.Pod.Namespace, links),
		vars:     map[string]string{},
	}
	for i := range in.Container.EnvFrom {
		if err := m.from(ctx, &in.Container.EnvFrom[i]); err != nil {
			return nil, err
		}
	}
	for i := range in.Container.Env {
		e := &in.Container.Env[i]
		value, err := m.value(ctx, e)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return nil, err
		}
		m.vars[e.Name] = value
	}
	for name, value := range m.services {
		if _, ok := m.vars[name]; !ok {
			m.vars[name] = value
		}
	}
	out := make([]*runtimeapi.KeyValue, 0, len(m.vars))
	for _, name := range slices.Sorted(maps.Keys(m.vars)) {
		out = append(out, &runtimeapi.KeyValue{Key: name, Value: []byte(m.vars[name])})
	}
	return out, nil
}

// maker holds the state of one call of Build.
type maker struct {
	Input
	services map[string]string
	vars     map[string]string
}

// errAbsent means that a reference is optional and its object or key does not exist.
var errAbsent = errors.New("absent")

func isTrue(b *bool) bool { return b != nil && *b }

// absent returns errAbsent if err means that the object does not exist and the reference is
// optional. Otherwise it returns err.
func absent(err error, optional *bool) error {
	if apierrors.IsNotFound(err) && isTrue(optional) {
		return errAbsent
	}
	return err
}

func (m *maker) from(ctx context.Context, f *v1.EnvFromSource) error {
	switch {
	case f.ConfigMapRef != nil:
		cm, err := m.Objects.ConfigMap(ctx, m.Pod.Namespace, f.ConfigMapRef.Name)
		if err != nil {
			return ignoreAbsent(absent(err, f.ConfigMapRef.Optional))
		}
		for k, v := range cm.Data {
			m.vars[f.Prefix+k] = v
		}
	case f.SecretRef != nil:
		s, err := m.Objects.Secret(ctx, m.Pod.Namespace, f.SecretRef.Name)
		if err != nil {
			return ignoreAbsent(absent(err, f.SecretRef.Optional))
		}
		for k, v := range s.Data {
			m.vars[f.Prefix+k] = string(v)
		}
	}
	return nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, errAbsent) {
		return nil
	}
	return err
}

func (m *maker) value(ctx context.Context, e *v1.EnvVar) (string, error) {
	switch src := e.ValueFrom; {
	case e.Value != "" || src == nil:
		return expand(e.Value, m.lookup), nil
	case src.FieldRef != nil:
		return m.field(src.FieldRef)
	case src.ResourceFieldRef != nil:
		return m.resource(src.ResourceFieldRef)
	case src.ConfigMapKeyRef != nil:
		return m.configMapKey(ctx, src.ConfigMapKeyRef)
	case src.SecretKeyRef != nil:
		return m.secretKey(ctx, src.SecretKeyRef)
	case src.FileKeyRef != nil:
		return m.fileKey(src.FileKeyRef)
	}
	return "", nil
}

func (m *maker) lookup(name string) (string, bool) {
	if v, ok := m.vars[name]; ok {
		return v, true
	}
	v, ok := m.services[name]
	return v, ok
}

func (m *maker) configMapKey(ctx context.Context, r *v1.ConfigMapKeySelector) (string, error) {
	cm, err := m.Objects.ConfigMap(ctx, m.Pod.Namespace, r.Name)
	if err != nil {
		return "", absent(err, r.Optional)
	}
	v, ok := cm.Data[r.Key]
	if !ok {
		if isTrue(r.Optional) {
			return "", errAbsent
		}
		return "", fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", r.Key, m.Pod.Namespace, r.Name)
	}
	return v, nil
}

func (m *maker) secretKey(ctx context.Context, r *v1.SecretKeySelector) (string, error) {
	s, err := m.Objects.Secret(ctx, m.Pod.Namespace, r.Name)
	if err != nil {
		return "", absent(err, r.Optional)
	}
	v, ok := s.Data[r.Key]
	if !ok {
		if isTrue(r.Optional) {
			return "", errAbsent
		}
		return "", fmt.Errorf("couldn't find key %v in Secret %v/%v", r.Key, m.Pod.Namespace, r.Name)
	}
	return string(v), nil
}

func (m *maker) field(r *v1.ObjectFieldSelector) (string, error) {
	if r.APIVersion != "" && r.APIVersion != "v1" {
		return "", fmt.Errorf("unsupported pod version: %s", r.APIVersion)
	}
	switch r.FieldPath {
	case "spec.nodeName", "spec.host": // spec.host is the name of this field in very old manifests
		return m.Pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return m.Pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return first(m.HostIPs), nil
	case "status.hostIPs":
		return strings.Join(m.HostIPs, ","), nil
	case "status.podIP":
		return first(m.PodIPs), nil
	case "status.podIPs":
		return strings.Join(m.PodIPs, ","), nil
	}
	return downward.Metadata(m.Pod, r.FieldPath)
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}

func (m *maker) resource(r *v1.ResourceFieldSelector) (string, error) {
	c := m.Container
	if r.ContainerName != "" {
		var err error
		if c, err = downward.Container(m.Pod, r.ContainerName); err != nil {
			return "", err
		}
	}
	return downward.Resource(r, downward.WithLimits(c, m.allocatable()))
}

// allocatable returns the amounts that replace limits which the container does not set: the pod's
// own limits or, if the pod has none, the node's allocatable resources.
func (m *maker) allocatable() v1.ResourceList {
	if m.Pod.Spec.Resources == nil {
		return m.Allocatable
	}
	out := maps.Clone(m.Allocatable)
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if _, ok := out[name]; !ok {
			continue
		}
		if q, ok := m.Pod.Spec.Resources.Limits[name]; ok && !q.IsZero() {
			out[name] = q
		}
	}
	return out
}

func (m *maker) fileKey(r *v1.FileKeySelector) (string, error) {
	dir, ok := "", false
	if m.VolumePath != nil {
		dir, ok = m.VolumePath(r.VolumeName)
	}
	if !ok {
		return "", fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", r.VolumeName)
	}
	value, err := readFileVariable(dir, r.Path, r.Key)
	if err != nil {
		// Do not return the original error: it may contain names of files on the node, and users
		// see this error.
		return "", errors.New("couldn't parse env file")
	}
	if value == "" {
		if isTrue(r.Optional) {
			return "", errAbsent
		}
		return "", fmt.Errorf("environment variable key %q not found in file %q", r.Key, dir+"/"+r.Path)
	}
	return value, nil
}

// readFileVariable reads a variable from the file at path, relative to dir. Because a container can
// write to dir, it does not follow links out of dir and does not open pipes and devices.
func readFileVariable(dir, path, key string) (string, error) {
	f, err := beneath.Open(dir, path)
	if err != nil {
		return "", fmt.Errorf("open environment variable file: %w", err)
	}
	defer f.Close()
	return fileVariable(f, key)
}

// Expand replaces $(NAME) by the variable's value in env, and $$ by $. A reference to an unknown
// variable stays unchanged.
func Expand(s string, env []*runtimeapi.KeyValue) string {
	return expand(s, func(name string) (string, bool) {
		for _, kv := range env {
			if kv.Key == name {
				return string(kv.Value), true
			}
		}
		return "", false
	})
}

// ExpandAll calls Expand for each word of a container's command or arguments.
func ExpandAll(words []string, env []*runtimeapi.KeyValue) []string {
	if words == nil {
		return nil
	}
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = Expand(w, env)
	}
	return out
}

// ExpandStrict expands a subPathExpr. It works like Expand, but returns an error if a variable is
// unknown or empty.
func ExpandStrict(s string, env []*runtimeapi.KeyValue) (string, error) {
	missing := map[string]struct{}{}
	out := expand(s, func(name string) (string, bool) {
		for _, kv := range env {
			if kv.Key == name && len(kv.Value) > 0 {
				return string(kv.Value), true
			}
		}
		missing[name] = struct{}{}
		return "", true
	})
	if len(missing) > 0 {
		return "", fmt.Errorf("missing value for %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	return out, nil
}

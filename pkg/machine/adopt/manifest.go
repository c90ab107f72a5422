// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// The components of a control plane. The static pods and their manifests have these names.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// components returns the names of the static pods, in the order in which Keelson's programs start.
func components() []string { return []string{Etcd, APIServer, ControllerManager, Scheduler} }

func manifest(component string) string { return component + ".yaml" }

// Flag is a flag of a program. Its name has no dashes.
type Flag struct{ Name, Value string }

// String returns the flag in the form in which kubeadm writes it.
func (f Flag) String() string { return "--" + f.Name + "=" + f.Value }

// Paths returns the absolute paths in the value of a flag. Some flags have several values, or a path together with
// something else: CERT,KEY:DOMAIN or unix:PATH.
func (f Flag) Paths() []string {
	parts := strings.FieldsFunc(f.Value, func(r rune) bool { return strings.ContainsRune(",:=", r) })
	out := slices.DeleteFunc(append(parts, f.Value), func(s string) bool { return !strings.HasPrefix(s, "/") })
	for i, path := range out {
		out[i] = filepath.Clean(path)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Pods are the flags and environment variables of the containers of kubeadm's static pods, by component.
type Pods struct {
	flags       map[string][]Flag
	environment map[string][]v1.EnvVar
}

// Value returns the last value of a flag of a component, or "" if the component does not have the flag.
func (p *Pods) Value(component, flag string) string { return value(p.flags[component], flag) }

// value returns the last value of a flag, or "".
func value(flags []Flag, name string) string {
	for _, f := range slices.Backward(flags) {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

var (
	errNoManifest = errors.New("not found: the machine has no control plane that kubeadm has made; with an etcd " +
		"outside of the cluster, or with another installer, it cannot be adopted")
	errForm      = errors.New("not a static pod of kubeadm")
	errContainer = errors.New("want one container, whose command is the program and its flags")
	errFlagForm  = errors.New("want a flag of the form --NAME=VALUE")
	errUser      = errors.New("the container does not run as root, as Keelson's programs do, which could not read its " +
		"files: adoption does not support kubeadm's rootless control planes")
	errMount = errors.New("the container sees a file of the machine at another path: change the manifest, so that " +
		"both paths are the same")
	errVolume      = errors.New("the container has a volume that is not a file of the machine (hostPath)")
	errEnvironment = errors.New("the value of the environment variable comes from another object")
)

// Read reads the manifests of all components. Each is in the first of the directories that has it.
func Read(dirs ...string) (*Pods, error) {
	out := &Pods{flags: map[string][]Flag{}, environment: map[string][]v1.EnvVar{}}
	for _, component := range components() {
		file, data, err := find(dirs, manifest(component))
		if err != nil {
			return nil, err
		}
		if err := out.add(component, data); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return out, nil
}

// find returns the path and the content of a file in the first directory that has it.
func find(dirs []string, name string) (string, []byte, error) {
	for _, dir := range dirs {
		file := filepath.Join(dir, name)
		data, err := os.ReadFile(file)
		if err == nil {
			return file, data, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", nil, fmt.Errorf("manifest: %w", err)
		}
	}
	return "", nil, fmt.Errorf("%s: %w", filepath.Join(dirs[0], name), errNoManifest)
}

// add reads the manifest of a component.
func (p *Pods) add(component string, data []byte) error {
	pod := &v1.Pod{}
	if err := yaml.UnmarshalStrict(data, pod); err != nil {
		return err
	}
	if pod.Kind != "Pod" || pod.Labels["component"] != component || !pod.Spec.HostNetwork {
		return errForm
	}
	if len(pod.Spec.Containers) != 1 || len(pod.Spec.InitContainers) != 0 {
		return errContainer
	}
	c := &pod.Spec.Containers[0]
	command := slices.Concat(c.Command, c.Args)
	if len(command) == 0 || filepath.Base(command[0]) != component {
		return errContainer
	}
	for _, text := range command[1:] {
		name, value, ok := strings.Cut(text, "=")
		if !ok || !strings.HasPrefix(name, "--") {
			return fmt.Errorf("%q: %w", text, errFlagForm)
		}
		p.flags[component] = append(p.flags[component], Flag{strings.TrimPrefix(name, "--"), value})
	}
	for _, e := range c.Env {
		if e.ValueFrom != nil {
			return fmt.Errorf("%s: %w", e.Name, errEnvironment)
		}
	}
	p.environment[component] = c.Env
	return errors.Join(checkUser(pod, c), checkMounts(pod, c))
}

// checkUser returns an error if the container does not run as root.
func checkUser(pod *v1.Pod, c *v1.Container) error {
	var user *int64
	if s := pod.Spec.SecurityContext; s != nil {
		user = s.RunAsUser
	}
	if s := c.SecurityContext; s != nil && s.RunAsUser != nil {
		user = s.RunAsUser
	}
	if user != nil && *user != 0 {
		return errUser
	}
	return nil
}

// checkMounts returns an error if the container sees other files than the machine at the same paths.
func checkMounts(pod *v1.Pod, c *v1.Container) error {
	paths := map[string]string{}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath == nil {
			return fmt.Errorf("volume %s: %w", v.Name, errVolume)
		}
		paths[v.Name] = filepath.Clean(v.HostPath.Path)
	}
	for _, m := range c.VolumeMounts {
		if at := filepath.Clean(m.MountPath); paths[m.Name] != at || m.SubPath != "" {
			return fmt.Errorf("%s at %s: %w", paths[m.Name], at, errMount)
		}
	}
	return nil
}

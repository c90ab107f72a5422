// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/machine/adopt"
)

var (
	errServerVersion = errors.New("only a control plane of Kubernetes " + daemon.Major + "." + daemon.Minor + " can be " +
		"adopted, so that it can come back with the same store: upgrade it with kubeadm first")
	errEtcdVersion = errors.New("its minor version is not the one of this release, so that it might not be able to use " +
		"the store again: upgrade it with kubeadm first")
	errSeveralMembers = errors.New("etcd has several members: a cluster with several control planes cannot be adopted, " +
		"because Kubernetes' and Keelson's control planes would use its etcd at the same time")
)

// check returns an error if the machine cannot be adopted. It changes nothing.
func (m *adopter) check(ctx context.Context) error {
	if err := checkRelease(m.release); err != nil {
		return fmt.Errorf("release %s: %w", m.release, err)
	}
	views, err := m.views()
	if err != nil {
		return err
	}
	if err := adopt.Check(m.programs, views); err != nil {
		return err
	}
	if err := adopt.CheckFlags(ctx, m.programs, m.accepts); err != nil {
		return err
	}
	if _, err := m.files(); err != nil {
		return err
	}
	if err := m.processes().Check(); err != nil {
		return err
	}
	return errors.Join(m.checkAPI(ctx), m.checkEtcd(ctx))
}

// views returns what the units of the programs see, with the administrator's changes to them.
func (m *adopter) views() (map[string]adopt.View, error) {
	out := map[string]adopt.View{}
	for i := range m.programs {
		name := unit(m.programs[i].Name)
		files, err := filepath.Glob(filepath.Join(unitsDir, name+".d", "*.conf"))
		if err != nil {
			return nil, fmt.Errorf("units: %w", err)
		}
		var text []byte
		for _, file := range append([]string{filepath.Join(m.release, "systemd", name)}, files...) {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("units: %w", err)
			}
			text = append(append(text, data...), '\n')
		}
		out[m.programs[i].Name] = adopt.ParseUnit(string(text))
	}
	return out, nil
}

// checkAPI checks the API server and the node.
func (m *adopter) checkAPI(ctx context.Context) error {
	v, err := m.api.client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("the API server of this machine must run: %w", err)
	}
	if v.Major != daemon.Major || v.Minor != daemon.Minor {
		return fmt.Errorf("this API server is %s: %w", v.GitVersion, errServerVersion)
	}
	return nodeReady(ctx, m.api.client, m.api.node)
}

// checkEtcd checks that this machine's etcd is the only member, and that it can return.
func (m *adopter) checkEtcd(ctx context.Context) error {
	url := m.pods.Value(adopt.APIServer, "etcd-servers")
	client, err := connectEtcd(url)
	if err != nil {
		return err
	}
	defer client.Close() // without a connection, nothing is lost
	list, err := client.List(ctx)
	if err != nil {
		return err
	}
	if len(list) != 1 {
		return errSeveralMembers
	}
	runs, err := client.Version(ctx, url)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, m.program(etcd), "--version").Output()
	if err != nil {
		return fmt.Errorf("version of etcd: %w", err)
	}
	first, _, _ := strings.Cut(string(out), "\n") // etcd Version: 3.7.0
	own, err := version.ParseGeneric(strings.TrimPrefix(first, "etcd Version: "))
	if err != nil {
		return fmt.Errorf("version of etcd: %w", err)
	}
	if has, err := version.ParseGeneric(runs); err != nil || has.Major() != own.Major() || has.Minor() != own.Minor() {
		return fmt.Errorf("this etcd is %s: %w (%s)", runs, errEtcdVersion, own)
	}
	return nil
}

// program returns the path of a program of the release.
func (m *adopter) program(name string) string {
	dir := "bin"
	if name == etcd {
		dir = "tools"
	}
	return filepath.Join(m.release, dir, name)
}

// accepts returns an error if a program of the release does not accept arguments. With --help, it only parses
// them.
func (m *adopter) accepts(ctx context.Context, program string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, m.program(program), append(args, "--help")...).CombinedOutput()
	if err == nil {
		return nil
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return fmt.Errorf("%w: %s", err, first)
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/provision"
)

// certInterval is how often a supervisor checks which certificates need renewal.
const certInterval = 12 * time.Hour

// Certificates returns all certificates of the cluster that c describes, with the problems that
// they have. Their file names are relative to the data directory. The cluster need not be running.
func Certificates(c *Config, clk clock.Clock) ([]provision.Certificate, error) {
	d := c.dirs()
	control, kubeconfigs, err := d.control().CertificateFiles()
	if err != nil {
		return nil, err
	}
	trust := c.firstPlane().Trust()
	var out []provision.Certificate
	check := func(root, file string) {
		found := trust.Check(root, file, clk.Now())
		if name, err := filepath.Rel(d.data, found.File); err == nil {
			found.File = name
		}
		out = append(out, found)
	}
	for _, file := range control {
		check("", file)
	}
	for _, inside := range c.shared().NodeCertificateFiles() {
		files, err := filepath.Glob(filepath.Join(d.nodes(), "*", inside))
		if err != nil {
			return nil, fmt.Errorf("certificates: %w", err)
		}
		for _, file := range files {
			check(strings.TrimSuffix(file, inside), inside)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: %w", d.control().PKI(""), errNoCertificates)
	}
	for _, file := range kubeconfigs {
		check("", file)
	}
	return out, nil
}

var errNoCertificates = errors.New("no certificates found")

// RenewCertificates reissues all certificates of a cluster except the authorities. Running
// processes reload the files by themselves, so no process is restarted.
func RenewCertificates(c *Config, deps Deps) error {
	d, first := c.dirs(), c.firstPlane()
	if err := errors.Join(first.IssueCertificates(true, deps.Clock), first.WriteKubeconfigs(deps.Clock)); err != nil {
		return err
	}
	if c.Kubeconfig != "" && exists(c.Kubeconfig) {
		if err := provision.MergeKubeconfig(d.control().Kubeconfig("admin"), c.Kubeconfig); err != nil {
			return err
		}
	}
	nodes, err := d.allNodes()
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if err := c.node(n).IssueCertificates(d.control(), true, deps.Clock); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return nil
}

// allNodes returns the nodes whose files are in the data directory.
func (d dirs) allNodes() ([]Node, error) {
	specs, err := filepath.Glob(filepath.Join(d.nodes(), "*", "node.json"))
	if err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	var out []Node
	for _, spec := range specs {
		n := Node{}
		if err := readJSON(spec, &n); err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b Node) int { return a.Index - b.Index })
	return out, nil
}

// keepCertificates checks certificates periodically and renews those that are due, until ctx ends.
func (s *supervisor) keepCertificates(ctx context.Context) {
	d := s.cfg.dirs()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.deps.Clock.After(certInterval):
		}
		err := s.cfg.firstPlane().IssueCertificates(false, s.deps.Clock)
		nodes, nodesErr := d.allNodes()
		err = errors.Join(err, nodesErr)
		for _, n := range nodes {
			err = errors.Join(err, s.cfg.node(n).IssueCertificates(d.control(), false, s.deps.Clock))
		}
		if err != nil {
			s.deps.Log.Error("Failed to renew certificates", "err", err)
		}
	}
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/proxy/kernel"
	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// family is the proxy's nftables table of one IP family.
type family struct {
	ruleset.Family
	table  *ruleset.Table
	kernel *kernel.Table
	// found is the content of the kernel's table when the process started. It becomes nil after it
	// was compared with the wanted table.
	found *ruleset.Contents
	// full means that the whole table must be compared with the kernel's table.
	full bool
	// ranges means that the sets of address ranges must be written.
	ranges bool
	// lacking are the ports with traffic policy Local without an endpoint on this node, by policy.
	// A metric counts them.
	lacking [2]map[ruleset.Name]bool
}

// The indices of the field lacking: the internal and the external traffic policy.
const (
	internal = iota
	external
)

// set updates a port of a service in the nftables table. It deletes the port if p is nil.
func (f *family) set(name ruleset.Name, p *ruleset.Port) {
	f.table.Set(name, p)
	for i := range f.lacking {
		if f.lacking[i] == nil {
			f.lacking[i] = map[ruleset.Name]bool{}
		}
		delete(f.lacking[i], name)
	}
	if p == nil || !p.Anywhere || p.Local.Len() > 0 {
		return
	}
	if p.InternalLocal {
		f.lacking[internal][name] = true
	}
	if p.ExternalLocal {
		f.lacking[external][name] = true
	}
}

// openFamilies connects to the kernel and reads the existing nftables tables.
func (p *Proxy) openFamilies() error {
	for _, f := range p.families {
		if err := p.open(f); err != nil {
			return err
		}
		found, ok, err := f.kernel.Read()
		if err != nil {
			return fmt.Errorf("read %s table: %w", f.Family, err)
		}
		if ok {
			f.found = found
		}
		f.table.Adopt(found)
	}
	return nil
}

func (p *Proxy) open(f *family) error {
	_, limited := p.nodePorts(f.Family)
	settings := kernel.Settings{
		MasqueradeAll: p.cfg.MasqueradeAll, MasqueradeBit: p.cfg.MasqueradeBit, Pods: p.cfg.Pods, NodePortsOn: limited,
	}
	if settings.Pods == kernel.ByRange && !slices.ContainsFunc(p.ranges.Pods, f.has) {
		settings.Pods = kernel.Unknown
	}
	var err error
	f.kernel, err = kernel.Open(kernel.Config{Family: f.Family, Settings: settings, Interface: p.cfg.Interface,
		NetNS: p.cfg.NetNS})
	if err != nil {
		return fmt.Errorf("open %s table: %w", f.Family, err)
	}
	return nil
}

func (p *Proxy) closeFamilies() {
	for _, f := range p.families {
		if f.kernel != nil {
			_ = f.kernel.Close() // an error of Close can be ignored, because no data is buffered
		}
	}
}

// apply writes the table's changes to the kernel. It returns false if they must be retried.
func (p *Proxy) apply(f *family) bool {
	if !f.full && !f.ranges && !f.table.Dirty() {
		return true
	}
	name := f.String()
	p.health.Queued(corev1.IPFamily(name))
	start := p.deps.Clock.Now()
	p.metrics.lastQueued.WithLabelValues(name).Set(float64(start.UnixNano()) / 1e9)
	kind, step := p.metrics.partial, p.applyChanges
	if f.full {
		kind, step = p.metrics.full, p.applyFull
	}
	n, err := step(f)
	if err != nil {
		f.full = true
		p.metrics.failures.WithLabelValues(name).Inc()
		p.log.Error("Kernel rejected the changes to the nftables table", "family", name, "err", err)
		return false
	}
	f.full, f.ranges = false, false
	now := p.deps.Clock.Now()
	took := now.Sub(start).Seconds()
	p.metrics.sync.WithLabelValues(name).Observe(took)
	kind.WithLabelValues(name).Observe(took)
	p.metrics.elements.WithLabelValues(name).Add(float64(n))
	p.metrics.lastSync.WithLabelValues(name).Set(float64(now.UnixNano()) / 1e9)
	for i, policy := range []string{"internal", "external"} {
		p.metrics.noLocal.WithLabelValues(policy, name).Set(float64(len(f.lacking[i])))
	}
	p.health.Updated(corev1.IPFamily(name))
	return true
}

// applyChanges writes only the changes since the last transaction to the kernel's nftables table.
func (p *Proxy) applyChanges(f *family) (int, error) {
	changes := f.table.Take()
	var r *kernel.Ranges
	if f.ranges {
		r = p.rangesOf(f)
	}
	return changes.Len(), f.kernel.Apply(changes, r)
}

// applyFull compares the whole table with the kernel's table and writes the differences. If the
// kernel's table cannot be compared, or the kernel rejects the differences, applyFull replaces the
// whole table.
func (p *Proxy) applyFull(f *family) (int, error) {
	found, ok := f.found, f.found != nil
	f.found = nil
	if !ok {
		var err error
		if found, ok, err = f.kernel.Read(); err != nil {
			p.log.Error("Failed to read the nftables table, replacing it", "family", f.String(), "err", err)
			ok = false
		}
	}
	if ok {
		changes := f.table.Diff(found)
		err := f.kernel.Apply(changes, p.rangesOf(f))
		if err == nil {
			p.log.Info("Existing nftables table updated", "family", f.String(), "changes", changes.Len())
			return changes.Len(), nil
		}
		p.log.Error("Kernel rejected the changes to the nftables table, replacing the whole table",
			"family", f.String(), "err", err)
	}
	changes := f.table.Diff(ruleset.NewContents())
	if err := f.kernel.Replace(changes.Add, p.rangesOf(f)); err != nil {
		return 0, err
	}
	p.log.Info("Nftables table created", "family", f.String(), "elements", changes.Len())
	return changes.Len(), nil
}

func (p *Proxy) rangesOf(f *family) *kernel.Ranges {
	nodePorts, _ := p.nodePorts(f.Family)
	return &kernel.Ranges{Pods: p.ranges.Pods, Services: p.ranges.Services, NodePorts: nodePorts,
		Announced: p.ranges.Announced}
}

// audit checks that the nftables tables exist in the kernel, and deletes the chains that no service
// uses any more.
func (p *Proxy) audit() {
	for _, f := range p.families {
		if f.full {
			continue
		}
		there, err := f.kernel.Present()
		if err != nil || !there {
			p.log.Error("Nftables table is missing in the kernel, writing it again", "family", f.String(), "err", err)
			f.full = true
			continue
		}
		if _, err := f.kernel.Prune(f.table.Uses); err != nil {
			p.metrics.pruneFailures.WithLabelValues(f.String()).Inc()
			p.log.Debug("Failed to delete unused chains", "family", f.String(), "err", err)
		}
	}
}

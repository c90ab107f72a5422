// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"errors"
	"fmt"
	"strconv"

	"keelson.dev/keelson/pkg/kubelet/numa"
)

// Names of the policy options in the configuration.
const (
	optionFullCores      = "full-pcpus-only"
	optionAcrossNodes    = "distribute-cpus-across-numa"
	optionBySocket       = "align-by-socket"
	optionAcrossCores    = "distribute-cpus-across-cores"
	optionStrictReserved = "strict-cpu-reservation"
	optionByCache        = "prefer-align-cpus-by-uncorecache"

	gateAlpha = "CPUManagerPolicyAlphaOptions"
	gateBeta  = "CPUManagerPolicyBetaOptions"
)

// Options holds the options of the static policy.
type Options struct {
	// FullCores assigns CPUs only as whole cores.
	FullCores bool
	// AcrossNodes spreads a container's CPUs evenly over NUMA nodes if one node does not have
	// enough.
	AcrossNodes bool
	// BySocket aligns CPUs to sockets instead of NUMA nodes.
	BySocket bool
	// AcrossCores assigns threads of different cores to a container.
	AcrossCores bool
	// StrictReserved also keeps containers without exclusive CPUs off the reserved CPUs.
	StrictReserved bool
	// ByCache assigns CPUs that share one last-level cache to a container, if possible.
	ByCache bool
}

// ParseOptions parses the options in the configuration. An option is an error if its feature gate
// is off.
func ParseOptions(options map[string]string, gates map[string]bool) (Options, error) {
	o := Options{}
	beta, set := gates[gateBeta]
	fields := map[string]struct {
		into *bool
		off  string // the error if the option is not available; empty if it is available
	}{
		optionFullCores: {into: &o.FullCores}, optionStrictReserved: {into: &o.StrictReserved},
		optionByCache: {into: &o.ByCache},
		optionAcrossNodes: {&o.AcrossNodes,
			unless(beta || !set, "CPU Manager Policy Beta-level Options not enabled, but option %q provided")},
		optionBySocket: {&o.BySocket,
			unless(gates[gateAlpha], "CPU Manager Policy Alpha-level Options not enabled, but option %q provided")},
		optionAcrossCores: {&o.AcrossCores,
			unless(gates[gateAlpha], "CPU Manager Policy Alpha-level Options not enabled, but option %q provided")},
	}
	for name, value := range options {
		f, ok := fields[name]
		if !ok {
			return o, fmt.Errorf("unknown CPU Manager Policy option: %q", name)
		}
		if f.off != "" {
			return o, fmt.Errorf(f.off, name)
		}
		var err error
		if *f.into, err = strconv.ParseBool(value); err != nil {
			return o, fmt.Errorf("bad value for option %q: %w", name, err)
		}
	}
	return o, o.conflicts()
}

func unless(ok bool, text string) string {
	if ok {
		return ""
	}
	return text
}

func (o Options) conflicts() error {
	both := func(a, b string) error {
		return fmt.Errorf("static policy options %s and %s can not be used at the same time", a, b)
	}
	switch {
	case o.FullCores && o.AcrossCores:
		return both(optionFullCores, optionAcrossCores)
	case o.AcrossNodes && o.AcrossCores:
		return both(optionAcrossNodes, optionAcrossCores)
	case o.ByCache && o.AcrossCores:
		return both(optionByCache, optionAcrossCores)
	case o.ByCache && o.AcrossNodes:
		return both(optionByCache, optionAcrossNodes)
	}
	return nil
}

// fit returns an error if the options cannot be used with the machine's layout or with the policy
// of the topology manager.
func (o Options) fit(l *numa.Layout, topologyPolicy string) error {
	if !o.BySocket {
		return nil
	}
	if topologyPolicy == numa.PolicySingleNode {
		return fmt.Errorf("topology manager policy %s is incompatible with CPU manager policy option %s",
			numa.PolicySingleNode, optionBySocket)
	}
	if l.Count(socketOf) > l.Count(nodeOf) {
		return errors.New("align by socket is not compatible with hardware where number of sockets are more " +
			"than number of NUMA")
	}
	return nil
}

func socketOf(c numa.CPU) int { return c.Socket }
func nodeOf(c numa.CPU) int   { return c.Node }
func coreOf(c numa.CPU) int   { return c.Core }
func cacheOf(c numa.CPU) int  { return c.Cache }

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
)

// delegate is the configuration of another plugin that this plugin runs.
type delegate struct {
	CNIVersion    string        `json:"cniVersion"`
	Name          string        `json:"name"`
	Type          string        `json:"type"`
	SNAT          bool          `json:"snat,omitempty"`
	Backend       string        `json:"backend,omitempty"`
	RuntimeConfig RuntimeConfig `json:"runtimeConfig"`
	PrevResult    types.Result  `json:"prevResult,omitempty"`
}

// portmap returns the configuration of the plugin portmap, which implements host ports with
// nftables. Without Backend, portmap would run nft twice to find out which backend the machine
// supports.
func (c *Config) portmap() delegate {
	return delegate{CNIVersion: c.CNIVersion, Name: c.Name, Type: "portmap", SNAT: true, Backend: "nftables"}
}

func (c *Config) bandwidth() delegate {
	return delegate{CNIVersion: c.CNIVersion, Name: c.Name, Type: "bandwidth"}
}

// delegates returns the other plugins that a sandbox needs, in the order in which they run for ADD.
func (c *Config) delegates() []delegate {
	var out []delegate
	if c.RuntimeConfig == nil {
		return nil
	}
	if ports := c.RuntimeConfig.PortMappings; len(ports) > 0 {
		d := c.portmap()
		d.RuntimeConfig.PortMappings = ports
		out = append(out, d)
	}
	if limits := c.RuntimeConfig.Bandwidth; len(limits) > 0 {
		d := c.bandwidth()
		d.RuntimeConfig.Bandwidth = limits
		out = append(out, d)
	}
	return out
}

func (d delegate) conf() ([]byte, error) {
	out, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("configuration of %s: %w", d.Type, err)
	}
	return out, nil
}

// addDelegates calls ADD of each plugin. Each plugin gets the result of the one before it.
func addDelegates(ctx context.Context, plugins []delegate, result types.Result) (types.Result, error) {
	for _, d := range plugins {
		d.PrevResult = result
		conf, err := d.conf()
		if err != nil {
			return nil, err
		}
		if result, err = invoke.DelegateAdd(ctx, d.Type, conf, nil); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Type, err)
		}
	}
	return result, nil
}

// delDelegates calls DEL of each plugin. After a failure it continues with the other plugins.
func delDelegates(ctx context.Context, plugins []delegate, result types.Result) error {
	var errs []error
	for _, d := range slices.Backward(plugins) {
		d.PrevResult = result
		errs = append(errs, d.ask(ctx, invoke.DelegateDel))
	}
	return errors.Join(errs...)
}

// ask runs a command of a plugin that returns no result.
func (d delegate) ask(ctx context.Context, how func(context.Context, string, []byte, invoke.Exec) error) error {
	conf, err := d.conf()
	if err == nil {
		err = how(ctx, d.Type, conf, nil)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", d.Type, err)
	}
	return nil
}

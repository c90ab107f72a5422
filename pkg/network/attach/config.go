// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// Config is the plugin's configuration.
type Config struct {
	// CNIVersion and Name are the version and name of the network's configuration. Runtimes add
	// them.
	CNIVersion string `json:"cniVersion,omitempty"`
	Name       string `json:"name,omitempty"`
	Type       string `json:"type"`
	// Bridge is created if it does not exist.
	Bridge string `json:"bridge"`
	// MTU is the MTU of sandboxes' interfaces. 0 means the kernel's default.
	MTU int `json:"mtu,omitempty"`
	// Subnets are the ranges. A sandbox gets an address of each. The first address of each range
	// belongs to the bridge.
	Subnets []netip.Prefix `json:"subnets"`
	// DataDir holds the allocated addresses, in a directory with the network's name.
	DataDir string `json:"dataDir"`
	// Capabilities make runtimes set RuntimeConfig.
	Capabilities  map[string]bool `json:"capabilities,omitempty"`
	RuntimeConfig *RuntimeConfig  `json:"runtimeConfig,omitempty"`

	PrevResult       map[string]any       `json:"prevResult,omitempty"`
	ValidAttachments []types.GCAttachment `json:"cni.dev/valid-attachments,omitempty"`
}

// RuntimeConfig holds the host ports and bandwidth limits of a sandbox.
type RuntimeConfig struct {
	PortMappings []any          `json:"portMappings,omitempty"`
	Bandwidth    map[string]any `json:"bandwidth,omitempty"`
}

func parse(data []byte) (*Config, error) {
	c := &Config{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "decode configuration", err.Error())
	}
	if c.Bridge == "" || c.DataDir == "" || len(c.Subnets) == 0 {
		return nil, invalid("bridge, dataDir and subnets are required")
	}
	for i, s := range c.Subnets {
		if s.Addr().BitLen()-s.Bits() < 2 {
			return nil, invalid(fmt.Sprintf("subnet %s has no room for a gateway and a sandbox", s))
		}
		c.Subnets[i] = s.Masked()
	}
	return c, nil
}

func invalid(what string) error {
	return types.NewError(types.ErrInvalidNetworkConfig, what, "")
}

func (c *Config) addresses() addresses {
	return addresses{dir: filepath.Join(c.DataDir, c.Name)}
}

// previous returns the result of the earlier ADD, which runtimes add to the configuration.
func (c *Config) previous() (types.Result, error) {
	conf := &types.PluginConf{CNIVersion: c.CNIVersion, RawPrevResult: c.PrevResult}
	if err := version.ParsePrevResult(conf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "decode previous result", err.Error())
	}
	return conf.PrevResult, nil
}

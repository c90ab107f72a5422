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
	// CNIVersion and Name are the network's; runtimes add them.
	CNIVersion string `json:"cniVersion,omitempty"`
	Name       string `json:"name,omitempty"`
	Type       string `json:"type"`
	// Bridge is made when it is not there.
	Bridge string `json:"bridge"`
	// MTU of sandboxes' interfaces; 0 leaves the kernel's.
	MTU int `json:"mtu,omitempty"`
	// Subnets are the ranges; a sandbox gets an address of each. The first address of each is the bridge's.
	Subnets []netip.Prefix `json:"subnets"`
	// DataDir is where a directory of each network's name holds the addresses that are given.
	DataDir string `json:"dataDir"`
	// Capabilities have runtimes fill in RuntimeConfig.
	Capabilities  map[string]bool `json:"capabilities,omitempty"`
	RuntimeConfig *RuntimeConfig  `json:"runtimeConfig,omitempty"`

	PrevResult       map[string]any       `json:"prevResult,omitempty"`
	ValidAttachments []types.GCAttachment `json:"cni.dev/valid-attachments,omitempty"`
}

// RuntimeConfig is what a sandbox asks for besides.
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

// previous is what ADD returned.
func (c *Config) previous() (types.Result, error) {
	conf := &types.PluginConf{CNIVersion: c.CNIVersion, RawPrevResult: c.PrevResult}
	if err := version.ParsePrevResult(conf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "decode previous result", err.Error())
	}
	return conf.PrevResult, nil
}

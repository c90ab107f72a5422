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

// Config is the configuration of the plugin in the CNI configuration.
type Config struct {
	// CNIVersion and Name are the CNI version and the name of the network. Runtimes add them to the
	// plugin's configuration.
	CNIVersion string `json:"cniVersion,omitempty"`
	Name       string `json:"name,omitempty"`
	Type       string `json:"type"`
	// Bridge is the name of the bridge. The plugin creates it if it does not exist.
	Bridge string `json:"bridge"`
	// MTU is the MTU of the sandboxes' interfaces in bytes. 0 means the kernel's default.
	MTU int `json:"mtu,omitempty"`
	// Subnets are the node's address ranges. A sandbox gets an address from each range. The first
	// address of each range belongs to the bridge.
	Subnets []netip.Prefix `json:"subnets"`
	// DataDir is the directory for allocated addresses. It has a subdirectory with the network's
	// name.
	DataDir string `json:"dataDir"`
	// Capabilities tell runtimes which parts of RuntimeConfig the plugin supports.
	Capabilities  map[string]bool `json:"capabilities,omitempty"`
	RuntimeConfig *RuntimeConfig  `json:"runtimeConfig,omitempty"`

	PrevResult       map[string]any       `json:"prevResult,omitempty"`
	ValidAttachments []types.GCAttachment `json:"cni.dev/valid-attachments,omitempty"`
}

// RuntimeConfig contains the host ports and bandwidth limits of a sandbox.
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

// previous returns the result of ADD, which runtimes add to the configuration of later commands.
func (c *Config) previous() (types.Result, error) {
	conf := &types.PluginConf{CNIVersion: c.CNIVersion, RawPrevResult: c.PrevResult}
	if err := version.ParsePrevResult(conf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "decode previous result", err.Error())
	}
	return conf.PrevResult, nil
}

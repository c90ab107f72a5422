// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
)

// The network's name, its bridge and its file. The file's number comes early: the runtime takes the first.
const (
	networkName = "keelson"
	bridgeName  = "cni0"
	confName    = "10-keelson.conflist"
	cniVersion  = "1.1.0" // the first with STATUS and GC
)

type confList struct {
	CNIVersion string   `json:"cniVersion"`
	Name       string   `json:"name"`
	Plugins    []plugin `json:"plugins"`
}

// plugin is the union of the plugins' configurations.
type plugin struct {
	Type             string          `json:"type"`
	Bridge           string          `json:"bridge,omitempty"`
	IsGateway        bool            `json:"isGateway,omitempty"`
	IsDefaultGateway bool            `json:"isDefaultGateway,omitempty"`
	HairpinMode      bool            `json:"hairpinMode,omitempty"`
	MTU              int             `json:"mtu,omitempty"`
	IPAM             *ipam           `json:"ipam,omitempty"`
	Capabilities     map[string]bool `json:"capabilities,omitempty"`
	SNAT             bool            `json:"snat,omitempty"`
	Backend          string          `json:"backend,omitempty"`
}

type ipam struct {
	DataDir string        `json:"dataDir"`
	Type    string        `json:"type"`
	Ranges  [][]ipamRange `json:"ranges"`
}

type ipamRange struct {
	Subnet string `json:"subnet"`
}

// renderConf returns the CNI configuration: pods hang on a bridge that is their gateway, get an address of each of the
// node's ranges, can reach themselves through a service (hairpin), and have host ports and bandwidth limits.
// The plugins masquerade nothing, for they would do so between pods too. Host ports are nftables' as Services are: left to
// find out what there is, the plugin runs nft twice for each pod, also for those without host ports.
func renderConf(podCIDRs []netip.Prefix, mtu int, dataDir string) ([]byte, error) {
	addresses := &ipam{Type: "host-local", DataDir: dataDir}
	for _, p := range podCIDRs {
		addresses.Ranges = append(addresses.Ranges, []ipamRange{{Subnet: p.String()}})
	}
	out, err := json.MarshalIndent(confList{
		CNIVersion: cniVersion,
		Name:       networkName,
		Plugins: []plugin{
			{Type: "bridge", Bridge: bridgeName, IsGateway: true, IsDefaultGateway: true, HairpinMode: true, MTU: mtu, IPAM: addresses},
			{Type: "portmap", Capabilities: map[string]bool{"portMappings": true}, SNAT: true, Backend: "nftables"},
			{Type: "bandwidth", Capabilities: map[string]bool{"bandwidth": true}},
		},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("render CNI configuration: %w", err)
	}
	return append(out, '\n'), nil
}

// writeConf writes the configuration if it is not what is there: the runtime sees the old one or the new one.
func writeConf(dir string, content []byte) (changed bool, err error) {
	path := filepath.Join(dir, confName)
	old, err := os.ReadFile(path)
	if err == nil && bytes.Equal(old, content) {
		return false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read CNI configuration: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, fmt.Errorf("make CNI directory: %w", err)
	}
	// The runtime reads *.conf, *.conflist and *.json only.
	tmp := path + ".new"
	if err := os.WriteFile(tmp, content, 0o644); err != nil {
		return false, fmt.Errorf("write CNI configuration: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return false, fmt.Errorf("write CNI configuration: %w", err)
	}
	return true, nil
}

func removeConf(dir string) error {
	if err := os.Remove(filepath.Join(dir, confName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove CNI configuration: %w", err)
	}
	return nil
}

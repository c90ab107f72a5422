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

	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/network/attach"
)

// Names of the network's configuration file, the network, its plugin and its bridge. The file's name
// begins with a low number, because the runtime uses the first file in the directory.
const (
	// ConfigFile is the name of the package's file in the directory of network configurations.
	ConfigFile = "10-keelson.conflist"

	networkName = "keelson"
	pluginName  = "keelson"
	bridgeName  = "cni0"
	cniVersion  = "1.1.0" // the first version of CNI that has the commands STATUS and GC
)

type confList struct {
	CNIVersion string          `json:"cniVersion"`
	Name       string          `json:"name"`
	Plugins    []attach.Config `json:"plugins"`
}

// renderConf returns the CNI configuration. It attaches pods to a bridge, which is their gateway,
// and gives them an address from each of the node's ranges. Pods can reach themselves through a
// Service (hairpin), and may have host ports and bandwidth limits.
func renderConf(podCIDRs []netip.Prefix, mtu int, dataDir string) ([]byte, error) {
	out, err := json.MarshalIndent(confList{
		CNIVersion: cniVersion,
		Name:       networkName,
		Plugins: []attach.Config{{
			Type: pluginName, Bridge: bridgeName, MTU: mtu, Subnets: podCIDRs, DataDir: dataDir,
			Capabilities: map[string]bool{"portMappings": true, "bandwidth": true},
		}},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("render CNI configuration: %w", err)
	}
	return append(out, '\n'), nil
}

// restorePorts makes the kernel drop packets with other source addresses than their pod's own, for
// all pods that were attached with the given CNI configuration.
func restorePorts(content []byte) (changed bool, err error) {
	var list confList
	if err := json.Unmarshal(content, &list); err != nil {
		return false, fmt.Errorf("parse CNI configuration: %w", err)
	}
	if len(list.Plugins) == 0 {
		return false, errors.New("CNI configuration names no plugin")
	}
	c := list.Plugins[0]
	c.Name = list.Name
	return attach.Restore(c)
}

// linkPlugin links the plugin into the directory in which runtimes look for plugins. It does
// nothing if that directory already has a plugin of this name. It replaces a broken link.
func linkPlugin(program, dir string) error {
	link := filepath.Join(dir, pluginName)
	if _, err := os.Stat(link); err == nil {
		return nil
	}
	if _, err := os.Stat(program); err != nil {
		return nil // a missing plugin is reported by the check of the configuration
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make directory of CNI plugins: %w", err)
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove CNI plugin: %w", err)
	}
	if err := os.Symlink(program, link); err != nil {
		return fmt.Errorf("link CNI plugin: %w", err)
	}
	return nil
}

// writeConf writes the configuration if it differs from the file. The runtime never sees a partly
// written file.
func writeConf(dir string, content []byte) (changed bool, err error) {
	path := filepath.Join(dir, ConfigFile)
	old, err := os.ReadFile(path)
	if err == nil && bytes.Equal(old, content) {
		return false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read CNI configuration: %w", err)
	}
	// The runtime ignores the temporary file, because it reads only *.conf, *.conflist and *.json. If
	// the file is lost, the next start writes it again.
	if err := atomicfile.Write(path, content, 0o644); err != nil {
		return false, fmt.Errorf("write CNI configuration: %w", err)
	}
	return true, nil
}

func removeConf(dir string) error {
	if err := os.Remove(filepath.Join(dir, ConfigFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove CNI configuration: %w", err)
	}
	return nil
}

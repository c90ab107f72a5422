// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"keelson.dev/api/clock"
)

const (
	controlPort   = 6443
	firstNode     = 10 // node n1 has the address 10.50.0.11
	maxNodes      = 200
	clusterDomain = "cluster.local"
)

// Defaults of [Config].
const (
	DefaultName  = "keelson"
	DefaultPort  = 6443
	DefaultNodes = 2
	// DefaultRoot holds the data directories of clusters that name none.
	DefaultRoot = "/var/lib/keelson"
)

// runRoot holds what names running clusters: one directory for each, with its
// control socket and a copy of its configuration.
const runRoot = "/run/keelson"

// Config says what a cluster is. It is kept as cluster.json in the data
// directory.
type Config struct {
	// Name tells clusters on one machine apart.
	Name string `json:"name"`
	// Nodes is how many node hosts the cluster starts with; 0 is a control
	// plane alone.
	Nodes int `json:"nodes"`
	// ControlPlanes is how many there are of each of the control plane's processes; 0: as many as
	// the cluster has, or one. Several share an etcd of three members.
	ControlPlanes int `json:"controlPlanes,omitempty"`
	// Port is where the API server listens on the machine's loopback; 0: any free one.
	Port int `json:"port"`
	// DataDir holds everything the cluster keeps.
	DataDir string `json:"dataDir"`
	// BinDir holds Keelson's own programs.
	BinDir string `json:"binDir"`
	// ToolsDir holds containerd, its shim, ctr, the OCI runtimes, and the CNI plugins in cni/.
	ToolsDir string `json:"toolsDir"`
	// ImagesDir holds the archives of the images that each node starts with.
	ImagesDir string `json:"imagesDir"`
	// IPFamily is that of all addresses in the cluster.
	IPFamily IPFamily `json:"ipFamily,omitempty"`
	// NetworkPlugin is keelson, also when it is empty, or external: the nodes have no pod
	// network until somebody installs one.
	NetworkPlugin string `json:"networkPlugin,omitempty"`
	// Runtime is the OCI runtime of containers whose pod has no RuntimeClass: crun, also if empty, or runc.
	Runtime string `json:"runtime,omitempty"`
	// LoadBalancers are the addresses of services of type LoadBalancer: ranges on the nodes' link, as
	// FIRST-LAST or as a prefix, separated by commas. Empty: the family's own.
	LoadBalancers string `json:"loadBalancers"`
	// Ingress has Ingresses of the class keelson served.
	Ingress bool `json:"ingress,omitempty"`
	// Kubeconfig is the file that administrators' credentials are merged into.
	Kubeconfig string `json:"kubeconfig"`
}

// Deps are what the package does not make itself.
type Deps struct {
	Clock clock.Clock
	Log   *slog.Logger
	// Out is where progress is told.
	Out io.Writer
}

// externalNetwork is the network plugin of a cluster that gets its pod network from somebody else.
const externalNetwork = "external"

var errNetworkPlugin = errors.New("the network plugin is keelson or external")

// The OCI runtimes.
const (
	crun = "crun"
	runc = "runc"
)

var errRuntime = errors.New("the runtime is crun or runc")

// ownNetwork tells whether the cluster has a pod network of its own.
func (c *Config) ownNetwork() bool { return c.NetworkPlugin != externalNetwork }

var errName = errors.New("a cluster's name is 1 to 20 lowercase letters, digits and dashes, and starts with a letter")

// Complete fills in what was left out and checks the rest.
func (c *Config) Complete() error {
	if c.Name == "" {
		c.Name = DefaultName
	}
	// The name is part of cgroup, socket and host names.
	if ok, _ := regexp.MatchString("^[a-z]([a-z0-9-]{0,18}[a-z0-9])?$", c.Name); !ok {
		return errName
	}
	if !slices.Contains([]IPFamily{"", IPv4, IPv6, Dual}, c.IPFamily) {
		return errFamily
	}
	if !slices.Contains([]string{"", "keelson", externalNetwork}, c.NetworkPlugin) {
		return errNetworkPlugin
	}
	if !slices.Contains([]string{"", crun, runc}, c.Runtime) {
		return errRuntime
	}
	if c.Nodes < 0 || c.Nodes > maxNodes {
		return fmt.Errorf("nodes: want 0 to %d, have %d", maxNodes, c.Nodes)
	}
	if c.ControlPlanes < 0 || c.ControlPlanes > maxControlPlanes {
		return fmt.Errorf("control planes: want 1 to %d, have %d", maxControlPlanes, c.ControlPlanes)
	}
	if c.Port < 0 || c.Port > 65535 {
		return fmt.Errorf("port: want 0 to 65535, have %d", c.Port)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("own program: %w", err)
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return fmt.Errorf("own program: %w", err)
	}
	for _, d := range []struct {
		path     *string
		fallback string
	}{
		{&c.BinDir, filepath.Dir(self)},
		{&c.ToolsDir, filepath.Join(filepath.Dir(self), "tools")},
		{&c.ImagesDir, filepath.Join(filepath.Dir(self), "..", ".build", "images")},
		{&c.DataDir, filepath.Join(DefaultRoot, c.Name)},
		{&c.Kubeconfig, ""},
	} {
		if *d.path == "" {
			*d.path = d.fallback
		}
		if *d.path == "" {
			continue
		}
		if *d.path, err = filepath.Abs(*d.path); err != nil {
			return fmt.Errorf("path: %w", err)
		}
	}
	return nil
}

// dirs names the files of a cluster.
type dirs struct {
	data string
	run  string
}

func (c *Config) dirs() dirs { return dirs{data: c.DataDir, run: filepath.Join(runRoot, c.Name)} }

func (d dirs) config() string             { return filepath.Join(d.data, "cluster.json") }
func (d dirs) pki(name string) string     { return filepath.Join(d.data, "pki", name) }
func (d dirs) kubeconfig(n string) string { return filepath.Join(d.data, n+".conf") }
func (d dirs) file(name string) string    { return filepath.Join(d.data, name) }
func (d dirs) encryption() string         { return filepath.Join(d.data, "encryption.yaml") }
func (d dirs) store() string              { return filepath.Join(d.data, "etcd") }
func (d dirs) auditLog(of string) string  { return filepath.Join(d.data, "audit", "audit"+of+".log") }
func (d dirs) logs() string               { return filepath.Join(d.data, "logs") }
func (d dirs) log(name string) string     { return filepath.Join(d.logs(), name+".log") }
func (d dirs) nodes() string              { return filepath.Join(d.data, "nodes") }
func (d dirs) node(name string) nodeDirs  { return nodeDirs{root: filepath.Join(d.nodes(), name)} }
func (d dirs) socket() string             { return filepath.Join(d.run, "control.sock") }
func (d dirs) record() string             { return filepath.Join(d.run, "cluster.json") }

// nodeDirs names the files of a node on the machine. The tree is shaped like
// the node's own, so that a path inside a node is found below root.
type nodeDirs struct{ root string }

func (d nodeDirs) path(inside ...string) string {
	return filepath.Join(append([]string{d.root}, inside...)...)
}
func (d nodeDirs) spec() string           { return d.path("node.json") }
func (d nodeDirs) log(name string) string { return d.path("var", "log", name+".log") }

// Load reads the configuration of the cluster called name: of the running one,
// or of the one in dataDir (empty: the default place).
func Load(name, dataDir string) (*Config, error) {
	c := &Config{Name: name, DataDir: dataDir}
	if err := c.Complete(); err != nil {
		return nil, err
	}
	files := []string{c.dirs().record(), c.dirs().config()}
	if dataDir != "" {
		files = files[1:]
	}
	for _, file := range files {
		found := &Config{}
		err := readJSON(file, found)
		if err == nil {
			return found, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("cluster %q: %w", c.Name, ErrNoCluster)
}

// ErrNoCluster says that nothing is known of a cluster.
var ErrNoCluster = errors.New("there is no such cluster on this machine")

// Node is one node host's place in its cluster.
type Node struct {
	Name  string `json:"name"`
	Index int    `json:"index"`
	// IPFamily is the cluster's.
	IPFamily IPFamily `json:"ipFamily,omitempty"`
	// Stopped nodes are left alone until they are started again.
	Stopped bool `json:"stopped,omitempty"`
	// Joins: its kubelet starts with a join token, and asks for its certificates
	// itself.
	Joins bool `json:"joins,omitempty"`
}

// Addresses are the node's addresses on the link that joins the nodes, one of each family.
func (n Node) Addresses() []string {
	var out []string
	for _, r := range n.IPFamily.ranges() {
		out = append(out, r.node(n.Index).Addr().String())
	}
	return out
}

func readJSON(file string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func writeJSON(file string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", file, err)
	}
	return writeFile(file, append(data, '\n'), 0o600)
}

// writeFile writes a file so that readers see all of it or none.
func writeFile(file string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("directory of %s: %w", file, err)
	}
	if err := os.WriteFile(file+".new", data, mode); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

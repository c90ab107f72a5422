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
	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/provision"
)

const (
	controlPort   = 6443
	firstNode     = 10 // the node with index 1, n1, has the address 10.50.0.(10+1)
	maxNodes      = 200
	clusterDomain = "cluster.local"
)

// Defaults of [Config].
const (
	DefaultName  = "keelson"
	DefaultPort  = 6443
	DefaultNodes = 2
	// DefaultRoot is the directory that contains the data directories of clusters, unless a cluster
	// sets another data directory.
	DefaultRoot = "/var/lib/keelson"
)

// runRoot has a directory for each running cluster. The directory has the control socket and a copy
// of the cluster's configuration.
const runRoot = "/run/keelson"

// Config is the configuration of a cluster. The data directory stores it as cluster.json.
type Config struct {
	// Name identifies the cluster on the machine.
	Name string `json:"name"`
	// Nodes is the number of nodes that the cluster starts with. 0 starts only the control plane.
	Nodes int `json:"nodes"`
	// ControlPlanes is the number of control planes. 0 means 1 for a new cluster, and keeps the
	// number of an existing cluster. Several control planes share an etcd cluster of three members.
	ControlPlanes int `json:"controlPlanes,omitempty"`
	// Port is the API server's port on the machine's loopback address. 0 means DefaultPort or, if
	// it is taken, the next free port.
	Port int `json:"port"`
	// DataDir is the directory that stores all data of the cluster.
	DataDir string `json:"dataDir"`
	// BinDir is the directory with Keelson's own programs.
	BinDir string `json:"binDir"`
	// ToolsDir is the directory with containerd, its shim, ctr, the OCI runtimes, and the CNI
	// plugins in its subdirectory cni.
	ToolsDir string `json:"toolsDir"`
	// ImagesDir is the directory with the archives of container images that each node starts with.
	ImagesDir string `json:"imagesDir"`
	// IPFamily selects the IP families of all addresses in the cluster.
	IPFamily IPFamily `json:"ipFamily,omitempty"`
	// NetworkPlugin is "keelson" (also if empty) or "external". With "external", nodes have no pod
	// network until the operator installs one.
	NetworkPlugin string `json:"networkPlugin,omitempty"`
	// Runtime is the OCI runtime of containers whose pod has no RuntimeClass: "crun" (also if
	// empty) or "runc".
	Runtime string `json:"runtime,omitempty"`
	// EmulatedVersion is the release of Kubernetes that the control plane emulates, for example
	// "1.36". If it is empty, a new control plane emulates none, and an existing one keeps its value.
	EmulatedVersion string `json:"emulatedVersion,omitempty"`
	// LoadBalancers has the address ranges for Services of type LoadBalancer, separated by commas.
	// Each is FIRST-LAST or a prefix, on the link that connects the nodes. If empty, the default
	// ranges of the IP family are used.
	LoadBalancers string `json:"loadBalancers"`
	// Ingress enables the ingress controller for the IngressClass keelson.
	Ingress bool `json:"ingress,omitempty"`
	// Kubeconfig is the file into which the administrator's credentials are merged.
	Kubeconfig string `json:"kubeconfig"`
}

// Deps has what the package needs from its environment.
type Deps struct {
	Clock clock.Clock
	Log   *slog.Logger
	// Out receives progress messages.
	Out io.Writer
}

var errNetworkPlugin = errors.New("the network plugin must be keelson or external")

var errRuntime = errors.New("the runtime must be crun or runc")

// ownNetwork reports whether the cluster uses Keelson's own pod network.
func (c *Config) ownNetwork() bool { return c.NetworkPlugin != provision.ExternalNetwork }

var errName = errors.New("a cluster name must be 1 to 20 lowercase letters, digits and dashes, and start with a letter")

// Complete sets the defaults of unset fields and validates the configuration.
func (c *Config) Complete() error {
	if c.Name == "" {
		c.Name = DefaultName
	}
	// The name becomes a part of cgroup names, socket paths and host names.
	if ok, _ := regexp.MatchString("^[a-z]([a-z0-9-]{0,18}[a-z0-9])?$", c.Name); !ok {
		return errName
	}
	if !slices.Contains([]IPFamily{"", IPv4, IPv6, Dual}, c.IPFamily) {
		return errFamily
	}
	if !slices.Contains([]string{"", provision.OwnNetwork, provision.ExternalNetwork}, c.NetworkPlugin) {
		return errNetworkPlugin
	}
	if !slices.Contains([]string{"", provision.Crun, provision.Runc}, c.Runtime) {
		return errRuntime
	}
	if err := checkEmulated(c.EmulatedVersion); err != nil {
		return err
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

// dirs returns the paths of the files of a cluster. data is its data directory.
type dirs struct {
	data string
	run  string
}

func (c *Config) dirs() dirs { return dirs{data: c.DataDir, run: filepath.Join(runRoot, c.Name)} }

func (d dirs) config() string            { return filepath.Join(d.data, "cluster.json") }
func (d dirs) control() provision.Dir    { return provision.Dir(d.data) }
func (d dirs) file(name string) string   { return filepath.Join(d.data, name) }
func (d dirs) store() string             { return filepath.Join(d.data, "etcd") }
func (d dirs) auditLog(of string) string { return filepath.Join(d.data, "audit", "audit"+of+".log") }
func (d dirs) logs() string              { return filepath.Join(d.data, "logs") }
func (d dirs) log(name string) string    { return filepath.Join(d.logs(), name+".log") }
func (d dirs) nodes() string             { return filepath.Join(d.data, "nodes") }
func (d dirs) node(name string) nodeDirs { return nodeDirs{root: filepath.Join(d.nodes(), name)} }
func (d dirs) socket() string            { return filepath.Join(d.run, "control.sock") }
func (d dirs) record() string            { return filepath.Join(d.run, "cluster.json") }

// nodeDirs returns the paths of a node's files on the machine. The directory tree below root
// mirrors the node's file system, so the path of a file on the machine is root followed by the path
// inside the node.
type nodeDirs struct{ root string }

func (d nodeDirs) path(inside ...string) string {
	return filepath.Join(append([]string{d.root}, inside...)...)
}
func (d nodeDirs) spec() string           { return d.path("node.json") }
func (d nodeDirs) log(name string) string { return d.path("var", "log", name+".log") }

// Load reads the configuration of the cluster with the given name. If dataDir is empty, it reads
// the configuration of the running cluster or, if the cluster is not running, the one in the
// default data directory. Otherwise it reads the configuration in dataDir.
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

// ErrNoCluster is returned if the cluster does not exist on this machine.
var ErrNoCluster = errors.New("no such cluster on this machine")

// Node describes a node host of a cluster.
type Node struct {
	Name  string `json:"name"`
	Index int    `json:"index"`
	// IPFamily is the IP family of the node's cluster.
	IPFamily IPFamily `json:"ipFamily,omitempty"`
	// Stopped is true for a node that is not started until the operator starts it again.
	Stopped bool `json:"stopped,omitempty"`
	// Joins is true for a node whose kubelet starts with a join token and requests its own
	// certificates.
	Joins bool `json:"joins,omitempty"`
}

// Addresses returns the node's addresses on the link that connects the nodes, one for each IP
// family.
func (n Node) Addresses() []string {
	var out []string
	for _, r := range n.IPFamily.ranges() {
		out = append(out, r.node(n.Index).Addr().String())
	}
	return out
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
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
	return atomicfile.WriteDurably(file, append(data, '\n'), 0o600)
}

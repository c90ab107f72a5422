// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sort"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/cluster"
	"keelson.dev/keelson/pkg/features"
)

// clusters has the flags and dependencies that all "ctl cluster" commands share.
type clusters struct {
	name    string
	dataDir string
	stdin   io.Reader
	deps    cluster.Deps
	stderr  io.Writer
}

// clusterCommand returns the command "ctl cluster".
func clusterCommand(stdin io.Reader, stdout, stderr io.Writer) *cobra.Command {
	s := &clusters{
		stdin: stdin, stderr: stderr,
		deps: cluster.Deps{Clock: clock.Real(), Log: slog.New(slog.NewJSONHandler(stderr, nil)), Out: stdout},
	}
	root := &cobra.Command{
		Use:   "cluster",
		Short: "Create and manage clusters on this machine",
		Long: `Create and manage clusters on this machine. A cluster consists of control planes and
nodes; each node is a set of Linux namespaces with its own containerd, kubelet and
proxy. The machine's own network settings do not change. No process in a cluster can
connect to an address outside of the cluster.`,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	flags := root.PersistentFlags()
	flags.StringVar(&s.name, "name", cluster.DefaultName, "name of the cluster")
	flags.StringVar(&s.dataDir, "data-dir", "",
		"directory with the data of the cluster (default "+cluster.DefaultRoot+"/NAME)")
	root.AddCommand(
		s.upCommand(), s.downCommand(), s.statusCommand(), s.pidsCommand(), s.nodeCommand(), s.execCommand(), s.logsCommand(),
		s.loadCommand(), s.kubeconfigCommand(), s.snapshotCommand(), s.restoreCommand(), s.upgradeCommand(),
		s.certsCommand(), s.encryptionCommand(), s.tokenCommand(),
		s.superviseCommand(), s.nodeHostCommand(), s.seedHostCommand(),
	)
	return root
}

func (s *clusters) load() (*cluster.Config, error) { return cluster.Load(s.name, s.dataDir) }

// on returns a cobra RunE function that loads the configuration of an existing cluster and calls do
// with it.
func (s *clusters) on(do func(c *cobra.Command, cfg *cluster.Config, args []string) error) func(*cobra.Command,
	[]string) error {
	return func(c *cobra.Command, args []string) error {
		cfg, err := s.load()
		if err != nil {
			return err
		}
		return do(c, cfg, args)
	}
}

var errEgress = errors.New(
	"--egress is not supported: it would need a link and address translation in this machine's own network, " +
		"and ctl never changes that; connect the cluster's network namespace with a router of your own instead")

func (s *clusters) upCommand() *cobra.Command {
	cfg := &cluster.Config{}
	var egress bool
	c := &cobra.Command{
		Use:   "up",
		Short: "Create a cluster, or start the missing parts of an existing cluster, and wait until it is ready",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if egress {
				return errEgress
			}
			cfg.Name, cfg.DataDir = s.name, s.dataDir
			if err := cfg.Complete(); err != nil {
				return err
			}
			return cluster.Up(c.Context(), cfg, s.deps)
		},
	}
	f := c.Flags()
	f.IntVar(&cfg.Nodes, "nodes", cluster.DefaultNodes, "number of nodes; 0 starts only the control plane")
	f.IntVar(&cfg.ControlPlanes, "control-planes", 0,
		"number of control planes, from 1 to 3; several control planes use an etcd cluster of three members; it cannot be "+
			"changed later (default 1)")
	f.StringVar(&cfg.LoadBalancers, "load-balancer-addresses", "",
		fmt.Sprintf("address range for Services of type LoadBalancer, in the nodes' network (default %s)",
			cluster.Dual.LoadBalancers()))
	f.StringVar((*string)(&cfg.IPFamily), "ip-family", "",
		"IP family of nodes, pods and Services: ipv4, ipv6 or dual (default ipv4)")
	f.StringVar(&cfg.NetworkPlugin, "network-plugin", "", "provider of the pod network: keelson, or external for a "+
		"CNI plugin that you install, which must then also enforce network policies (default keelson)")
	f.StringVar(&cfg.Runtime, "runtime", "", "OCI runtime for pods without a RuntimeClass: crun or runc (default crun)")
	f.StringVar(&cfg.EmulatedVersion, "emulated-version", "", "release of Kubernetes that the control plane emulates: "+
		strings.Join(features.Emulatable(), " or ")+"; no effect while the cluster runs (default: as before, or none for a "+
		"new cluster)")
	f.BoolVar(&cfg.Ingress, "ingress", false, "install the ingress proxy, which serves Ingresses of "+
		"the class \"keelson\" at the address of the Service kube-system/ingress")
	f.IntVar(&cfg.Port, "port", 0,
		fmt.Sprintf("port of the API server on 127.0.0.1 (default %d, or the next free port)", cluster.DefaultPort))
	f.StringVar(&cfg.Kubeconfig, "kubeconfig", "", "kubeconfig file to which the administrator's credentials are "+
		"added; if empty, they are not written to a file")
	f.StringVar(&cfg.BinDir, "bin-dir", "", "directory with Keelson's programs (default: the directory of ctl)")
	f.StringVar(&cfg.ToolsDir, "tools-dir", "",
		"directory with containerd, the OCI runtimes and the CNI plugins (default: the directory tools next to ctl)")
	f.StringVar(&cfg.ImagesDir, "images-dir", "",
		"directory with the image archives that are loaded into each new node (default: ../.build/images, relative to ctl)")
	f.BoolVar(&egress, "egress", false,
		"not supported: it would give pods access to networks outside of the cluster, which needs changes of this "+
			"machine's own network")
	return c
}

func (s *clusters) downCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop a cluster and delete all of its data",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := s.load()
			if errors.Is(err, cluster.ErrNoCluster) {
				fmt.Fprintln(s.deps.Out, err)
				return nil
			}
			if err != nil {
				return err
			}
			return cluster.Down(c.Context(), cfg, s.deps)
		},
	}
}

func (s *clusters) statusCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "status",
		Short: "Show a cluster's nodes and processes",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			st, err := s.inspect(c)
			if err != nil {
				return err
			}
			if output == "json" {
				return s.json(st)
			}
			w := tabwriter.NewWriter(s.deps.Out, 0, 8, 3, ' ', 0)
			fmt.Fprintf(w, "cluster\t%s\t%s\thttps://127.0.0.1:%d\n", st.Config.Name, st.Config.DataDir, st.Config.Port)
			for _, n := range st.Nodes {
				state := "running"
				if n.Pid == 0 {
					state = "stopped"
				}
				fmt.Fprintf(w, "node\t%s\t%s\t%s\n", n.Name, n.Address, state)
			}
			for _, name := range sorted(st.Pids) {
				fmt.Fprintf(w, "process\t%s\t%d\n", name, st.Pids[name])
			}
			return w.Flush()
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "output format: \"json\" prints JSON instead of a table")
	return c
}

func (s *clusters) pidsCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "pids",
		Short: "List the process IDs: NAME=PID for the control plane, NAME-NODE=PID for processes on nodes",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			st, err := s.inspect(c)
			if err != nil {
				return err
			}
			if output == "json" {
				return s.json(st.Pids)
			}
			for _, name := range sorted(st.Pids) {
				fmt.Fprintf(s.deps.Out, "%s=%d\n", name, st.Pids[name])
			}
			return nil
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "output format: \"json\" prints JSON instead of lines NAME=PID")
	return c
}

func (s *clusters) inspect(c *cobra.Command) (*cluster.Status, error) {
	cfg, err := s.load()
	if err != nil {
		return nil, err
	}
	return cluster.Inspect(c.Context(), cfg)
}

func (s *clusters) json(v any) error {
	e := json.NewEncoder(s.deps.Out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func sorted(m map[string]int) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

func (s *clusters) nodeCommand() *cobra.Command {
	c := &cobra.Command{Use: "node", Short: "Add, remove, kill and start nodes"}
	sub := func(use, short string, args cobra.PositionalArgs,
		do func(c *cobra.Command, cfg *cluster.Config, name string) error) *cobra.Command {
		out := &cobra.Command{Use: use, Short: short, Args: args,
			RunE: s.on(func(c *cobra.Command, cfg *cluster.Config, args []string) error {
				name := ""
				if len(args) > 0 {
					name = args[0]
				}
				return do(c, cfg, name)
			})}
		c.AddCommand(out)
		return out
	}
	sub("add [NODE]", "Add a node", cobra.MaximumNArgs(1), func(c *cobra.Command, cfg *cluster.Config, name string) error {
		return cluster.AddNode(c.Context(), cfg, name, s.deps)
	})
	var token string
	join := sub("join [NODE]", "Add a node whose kubelet requests its certificates with a join token",
		cobra.MaximumNArgs(1), func(c *cobra.Command, cfg *cluster.Config, name string) error {
			return cluster.JoinNode(c.Context(), cfg, name, token, s.deps)
		})
	join.Flags().StringVar(&token, "token", "", "join token from \"ctl cluster token create\" (default: a new token)")
	sub("start NODE", "Start a killed node", cobra.ExactArgs(1),
		func(c *cobra.Command, cfg *cluster.Config, name string) error {
			return cluster.StartNode(c.Context(), cfg, name, s.deps)
		})
	sub("kill NODE", "Kill all processes of a node at once, as a power failure would", cobra.ExactArgs(1),
		func(c *cobra.Command, cfg *cluster.Config, name string) error {
			return cluster.KillNode(c.Context(), cfg, name)
		})
	sub("remove NODE", "Remove a node from the cluster and delete its data", cobra.ExactArgs(1),
		func(c *cobra.Command, cfg *cluster.Config, name string) error {
			return cluster.RemoveNode(c.Context(), cfg, name)
		})
	return c
}

func (s *clusters) execCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "exec [NODE] -- COMMAND [ARG...]",
		Short: "Run a command on a node; without NODE, run it in the network namespace that connects the nodes",
		Args: func(c *cobra.Command, args []string) error {
			if at := c.ArgsLenAtDash(); at < 0 || at > 1 || at == len(args) {
				return errors.New("expected at most one node, then -- and a command")
			}
			return nil
		},
		RunE: s.on(func(c *cobra.Command, cfg *cluster.Config, args []string) error {
			node, at := "", c.ArgsLenAtDash()
			if at == 1 {
				node = args[0]
			}
			cmd, err := cluster.Command(c.Context(), cfg, node, args[at:])
			if err != nil {
				return err
			}
			cmd.Stdin, cmd.Stdout, cmd.Stderr = s.stdin, s.deps.Out, s.stderr
			return cmd.Run()
		}),
	}
}

func (s *clusters) logsCommand() *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use:   "logs PROCESS",
		Short: "Print the log of a process; PROCESS is a name from \"ctl cluster status\", or supervisor",
		Args:  cobra.ExactArgs(1),
		RunE: s.on(func(c *cobra.Command, cfg *cluster.Config, args []string) error {
			return cluster.Logs(c.Context(), cfg, args[0], follow, s.deps)
		}),
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false,
		"do not exit at the end of the log, but print new lines as they are written")
	return c
}

func (s *clusters) loadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "load ARCHIVE...",
		Short: "Load OCI image archives into every running node",
		Args:  cobra.MinimumNArgs(1),
		RunE: s.on(func(c *cobra.Command, cfg *cluster.Config, args []string) error {
			for i := range args {
				var err error
				if args[i], err = filepath.Abs(args[i]); err != nil {
					return err
				}
			}
			return cluster.LoadImages(c.Context(), cfg, args)
		}),
	}
}

func (s *clusters) kubeconfigCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the administrator's kubeconfig",
		Args:  cobra.NoArgs,
		RunE: s.on(func(_ *cobra.Command, cfg *cluster.Config, _ []string) error {
			data, err := cluster.Kubeconfig(cfg)
			if err != nil {
				return err
			}
			_, err = s.deps.Out.Write(data)
			return err
		}),
	}
}

func (s *clusters) snapshotCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "snapshot FILE",
		Short: "Save all API objects of a cluster to a file",
		Args:  cobra.ExactArgs(1),
		RunE: s.on(func(c *cobra.Command, cfg *cluster.Config, args []string) error {
			return cluster.Snapshot(c.Context(), cfg, args[0], s.deps)
		}),
	}
}

func (s *clusters) restoreCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "restore FILE",
		Short: "Replace all API objects of a cluster by those in a snapshot",
		Args:  cobra.ExactArgs(1),
		RunE: s.on(func(c *cobra.Command, cfg *cluster.Config, args []string) error {
			return cluster.Restore(c.Context(), cfg, args[0], s.deps)
		}),
	}
}

func (s *clusters) upgradeCommand() *cobra.Command {
	var from, emulated string
	var ignore []string
	c := &cobra.Command{
		Use:   "upgrade",
		Short: "Restart every process whose program has been replaced by a newer one since the process started",
		Args:  cobra.NoArgs,
		RunE: s.on(func(c *cobra.Command, cfg *cluster.Config, _ []string) error {
			if from != "" {
				if err := s.checkUpgrade(c.Context(), cfg, from, ignore); err != nil {
					return err
				}
			}
			return cluster.Upgrade(c.Context(), cfg, from, emulated, s.deps)
		}),
	}
	c.Flags().StringVar(&from, "from", "",
		"directory with new programs, which are first copied to the cluster's program directory (default: copy none)")
	c.Flags().StringVar(&emulated, "emulated-version", "", "release of Kubernetes that the control plane emulates from "+
		"now on: "+strings.Join(features.Emulatable(), " or ")+" (default: none, also if it has emulated one until now)")
	c.Flags().StringSliceVar(&ignore, "ignore-preflight-errors", nil,
		"with --from, checks whose errors do not prevent the upgrade, separated by commas, or all")
	return c
}

// The following commands are hidden. They are the processes that keep a cluster running; "ctl
// cluster up" starts them.

func (s *clusters) superviseCommand() *cobra.Command {
	return &cobra.Command{Use: "supervise DIR", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return cluster.Supervise(c.Context(), args[0], s.deps)
		}}
}

func (s *clusters) nodeHostCommand() *cobra.Command {
	return &cobra.Command{Use: "node-host DIR", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return cluster.HostNode(c.Context(), args[0], s.deps)
		}}
}

func (s *clusters) seedHostCommand() *cobra.Command {
	return &cobra.Command{Use: "seed-host TOOLS IMAGES ROOT", Hidden: true, Args: cobra.ExactArgs(3),
		RunE: func(c *cobra.Command, args []string) error {
			return cluster.SeedHost(c.Context(), args[0], args[1], args[2], s.deps)
		}}
}

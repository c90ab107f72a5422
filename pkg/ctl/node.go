// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/kubectl/pkg/cmd/drain"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/machine"
	"keelson.dev/keelson/pkg/machine/nodes"
)

// nodeCommand returns the command "ctl node".
func nodeCommand(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	c := &cobra.Command{Use: "node", Short: "Drain, fence and remove nodes"}
	c.AddCommand(drainCommand(flags, streams), fenceCommand(flags, streams), unfenceCommand(flags, streams),
		removeCommand(flags, streams))
	return c
}

// drainCommand returns the command "ctl node drain", which is kubectl's with other defaults.
func drainCommand(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	c := drain.NewCmdDrain(cmdutil.NewFactory(flags), streams)
	c.Use, c.Short = "drain NAME", "Evict the pods of a node, for maintenance or before its removal"
	c.Long = `Evict the pods of a node, for maintenance or before its removal. No new pods are
scheduled to the node until "ctl uncordon". The command is "ctl drain" with other
defaults: pods of DaemonSets stay, and the command gives up after some minutes. It fails
without evicting a pod if a pod would be lost, unless a flag allows that.`
	c.Example = "  ctl node drain m2 --delete-emptydir-data"
	for name, value := range map[string]string{"ignore-daemonsets": "true", "timeout": nodes.DrainTimeout.String()} {
		f := c.Flags().Lookup(name)
		_ = f.Value.Set(value) // a test checks the values
		f.DefValue = value
	}
	return c
}

// removeCommand returns the command "ctl node remove".
func removeCommand(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	c := &cobra.Command{
		Use:   "remove NAME",
		Short: "Evict the pods of a node, and remove it from the cluster",
		Long: `Evict the pods of a node, and remove it from the cluster: the command deletes the node's
certificate requests, the Node and the Machine. Run "ctl reset" on the machine afterwards. The pods
are not evicted with --force, or if the node has not been ready for 5 minutes; the
cluster then deletes them after the Node, while their containers may still run.
A control plane of a cluster with several of them is also a member of etcd. The command
removes the member, too, if it runs as root on the machine of a control plane. With --force, it
also removes the member of a machine that has no Node, because it was lost during "ctl join". If etcd
has never run there, give the machine's address instead of the name.`,
		Example: "  ctl node remove m2",
	}
	o := nodes.Options{Clock: clock.Real(), Out: streams.Out, ErrOut: streams.ErrOut}
	c.Flags().BoolVar(&o.Force, "force", false, "do not evict the node's pods, and remove the node even if the cluster "+
		"stands still without its machine")
	c.Flags().BoolVar(&o.DeleteEmptyDirData, "delete-emptydir-data", false,
		"also evict pods that lose data in volumes of the type emptyDir")
	c.Flags().DurationVar(&o.Timeout, "timeout", nodes.DrainTimeout,
		"how long to wait for the end of the pods; 0 means no limit")
	return runOnNode(c, flags, &o, func(ctx context.Context, name string, o nodes.Options) error {
		return removeNode(ctx, flags, name, o)
	})
}

// removeNode removes a node, and its member of etcd if this machine may do that.
func removeNode(ctx context.Context, flags genericclioptions.RESTClientGetter, name string, o nodes.Options) error {
	cfg, err := flags.ToRESTConfig()
	if err != nil {
		return err
	}
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	membership, err := machine.Membership(cfg.CAData)
	if err != nil {
		return err
	}
	if membership != nil {
		defer membership.Close() // without a connection, nothing is lost
		o.Members = membership
	}
	return nodes.Remove(ctx, name, o)
}

// fenceCommand returns the command "ctl node fence".
func fenceCommand(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	c := &cobra.Command{
		Use:   "fence NAME",
		Short: "Declare that the machine of a node is off",
		Long: `Declare that the machine of a node is off and stays off until "ctl node unfence". The
cluster does not wait for the node after a restore, and replaces its pods, also those of
StatefulSets. If the machine is on, a pod can run twice and destroy its data. The API
server rejects everything that the kubelet of the node writes.`,
		Example: "  ctl node fence m2",
	}
	o := nodes.Options{Clock: clock.Real(), Out: streams.Out}
	c.Flags().BoolVar(&o.Force, "force", false, "fence the node even if it was ready in the last minute")
	return runOnNode(c, flags, &o, nodes.Fence)
}

// unfenceCommand returns the command "ctl node unfence".
func unfenceCommand(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	c := &cobra.Command{
		Use:   "unfence NAME",
		Short: "End the fence of a node",
		Long: `End the fence of a node, before or after its machine is turned on again. The kubelet ends
the pods that were replaced. Until then, new pods of StatefulSets wait.`,
		Example: "  ctl node unfence m2",
	}
	return runOnNode(c, flags, &nodes.Options{Clock: clock.Real(), Out: streams.Out}, nodes.Unfence)
}

// runOnNode makes the command c call run with its argument, the name of a node, and the options o with a
// client. It returns c.
func runOnNode(c *cobra.Command, flags genericclioptions.RESTClientGetter, o *nodes.Options,
	run func(ctx context.Context, name string, o nodes.Options) error) *cobra.Command {
	c.Args = cobra.ExactArgs(1)
	c.SilenceErrors, c.SilenceUsage = true, true // Run prints the error
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if o.Client, _, err = connect(flags); err != nil {
			return err
		}
		return run(c.Context(), args[0], *o)
	}
	return c
}

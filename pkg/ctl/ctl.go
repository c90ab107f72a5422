// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ctl implements the command-line program ctl. It has kubectl's verbs, from kubectl's
// library, and Keelson's own verbs: "adopt" and "unadopt" replace a control plane of kubeadm and
// bring it back, "certs" lists and renews a machine's certificates and replaces the
// authorities of its cluster, "check-downgrade" lists objects that the previous release of
// Kubernetes does not support, "cluster" creates clusters on this machine, "init" and "join" make
// this machine a part of a cluster of machines, "preflight" checks whether that is possible, "reset"
// removes all of it, "store" shows how full the databases are, "token" manages the tokens to join with,
// "node" drains and removes nodes, "upgrade" changes the release of all machines, "webhooks" shows the
// health of admission webhooks,
// and "why" explains decisions of the scheduler and of network policies.
//
// If the program file is named kubectl, the program has only kubectl's verbs. Plug-ins with names
// kubectl-NAME are found in the same way as by kubectl.
package ctl

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/plugin"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/kuberc"

	"keelson.dev/keelson/pkg/release"
)

// Run runs the program with the process's arguments. args[0] is the name of the program.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	// "ctl cluster" does not need kubectl's commands, and building them takes longer than most "ctl
	// cluster" commands run.
	if len(args) > 1 && args[1] == "cluster" {
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		root := clusterCommand(stdin, stdout, stderr)
		root.SetArgs(args[2:])
		root.SilenceErrors, root.SilenceUsage = true, true
		return root.ExecuteContext(ctx)
	}
	// Set the verbosity before the commands are built, because that reads the file kuberc and may
	// already log. An invalid verbosity is reported later, when the flags are parsed.
	_, _ = logs.GlogSetter(cmd.GetLogVerbosity(args))
	root := Command(args, stdin, stdout, stderr)
	// If kuberc defines aliases, kubectl's library has already set the arguments to the expanded
	// alias.
	if !slices.ContainsFunc(root.Commands(), isAlias) {
		root.SetArgs(args[1:])
	}
	if err := root.ExecuteContext(ctx); err != nil {
		cmdutil.CheckErr(err) // prints the error as kubectl does, and exits with kubectl's exit code
	}
	return nil
}

// isAlias reports whether a command was added for an alias in the user's preferences (the file
// kuberc).
func isAlias(c *cobra.Command) bool {
	_, ok := c.Annotations[kuberc.KubeRCOriginalCommandAnnotation]
	return ok
}

// Command returns kubectl's command tree. Unless args[0] is kubectl, it also contains Keelson's own
// verbs.
func Command(args []string, stdin io.Reader, stdout, stderr io.Writer) *cobra.Command {
	streams := genericiooptions.IOStreams{In: stdin, Out: stdout, ErrOut: stderr}
	flags := genericclioptions.NewConfigFlags(true).
		WithDeprecatedPasswordFlag().WithDiscoveryBurst(300).WithDiscoveryQPS(50.0)
	root := cmd.NewDefaultKubectlCommandWithArgs(cmd.KubectlOptions{
		PluginHandler: cmd.NewDefaultPluginHandler(plugin.ValidPluginFilenamePrefixes),
		Arguments:     args,
		ConfigFlags:   flags,
		IOStreams:     streams,
	})
	logs.AddFlags(root.PersistentFlags()) // -v and the other flags for logging
	if filepath.Base(args[0]) != "kubectl" {
		root.Use = "ctl"
		root.AddCommand(adoptCommand(stdout, stderr), agentCommand(stderr), backupCommand(stdout, stderr),
			certsCommand(stdout, stderr), checkDowngradeCommand(flags, stdout), clusterCommand(stdin, stdout, stderr),
			initCommand(stdout, stderr), joinCommand(streams), nodeCommand(flags, streams), preflightCommand(stdout),
			resetCommand(stdin, stdout, stderr), restoreCommand(stdin, stdout, stderr), storeCommand(flags, stdout),
			switchCommand(stderr), rejoinCommand(stderr), tokenCommand(flags, streams), unadoptCommand(stdout, stderr),
			upgradeCommand(flags, streams),
			webhooksCommand(flags, stdout), whyCommand(flags, stdout))
		addRelease(root, stdout)
	}
	return root
}

// addRelease makes the command "version" also print Keelson's version, on a line of its own. It
// does not change the JSON and YAML output.
func addRelease(root *cobra.Command, stdout io.Writer) {
	c, _, err := root.Find([]string{"version"})
	if err != nil {
		return // an alias in the user's preferences has replaced all commands
	}
	c.PostRun = func(c *cobra.Command, _ []string) {
		if c.Flag("output").Value.String() == "" {
			fmt.Fprintln(stdout, "Keelson Version:", release.Version)
		}
	}
}

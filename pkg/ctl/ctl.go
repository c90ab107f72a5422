// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ctl is the command line: kubectl's verbs from its library, and Keelson's
// own verbs: "cluster", which makes clusters on this machine, "webhooks" and "why".
//
// Called under the name kubectl it is kubectl. Plug-ins called kubectl-NAME are
// found as kubectl finds them.
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

// Run is the program: args are the process's, with its name first.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	// A command about clusters does without kubectl's tree, which takes longer
	// to put together than most of them run.
	if len(args) > 1 && args[1] == "cluster" {
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		root := clusterCommand(stdin, stdout, stderr)
		root.SetArgs(args[2:])
		root.SilenceErrors, root.SilenceUsage = true, true
		return root.ExecuteContext(ctx)
	}
	// What is said while the commands are put together (kuberc) is said as loudly as the rest. That
	// the level is none is found when the flags are read.
	_, _ = logs.GlogSetter(cmd.GetLogVerbosity(args))
	root := Command(args, stdin, stdout, stderr)
	if !slices.ContainsFunc(root.Commands(), isAlias) { // else the arguments are set: those that the alias stands for
		root.SetArgs(args[1:])
	}
	if err := root.ExecuteContext(ctx); err != nil {
		cmdutil.CheckErr(err) // kubectl's own words and exit code
	}
	return nil
}

// isAlias tells whether a command was made of the user's preferences (kuberc), for the arguments
// that are given.
func isAlias(c *cobra.Command) bool {
	_, ok := c.Annotations[kuberc.KubeRCOriginalCommandAnnotation]
	return ok
}

// Command returns kubectl's tree of commands, with Keelson's own added unless args[0] is
// kubectl.
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
	logs.AddFlags(root.PersistentFlags()) // -v and its kin
	if filepath.Base(args[0]) != "kubectl" {
		root.Use = "ctl"
		root.AddCommand(clusterCommand(stdin, stdout, stderr), webhooksCommand(flags, stdout), whyCommand(flags, stdout))
		addRelease(root, stdout)
	}
	return root
}

// addRelease makes "version" print Keelson's version in a line of its own. JSON and YAML
// have kubectl's form.
func addRelease(root *cobra.Command, stdout io.Writer) {
	c, _, err := root.Find([]string{"version"})
	if err != nil {
		return // an alias of the user's preferences has taken the place of all commands
	}
	c.PostRun = func(c *cobra.Command, _ []string) {
		if c.Flag("output").Value.String() == "" {
			fmt.Fprintln(stdout, "Keelson Version:", release.Version)
		}
	}
}

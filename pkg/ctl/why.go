// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// whyCommand returns the command "ctl why". It has a subcommand for each kind of question.
func whyCommand(flags genericclioptions.RESTClientGetter, stdout io.Writer) *cobra.Command {
	c := &cobra.Command{Use: "why", Short: "Explain scheduling decisions and network policies"}
	pod := podCommand(flags, stdout)
	c.AddCommand(connectionCommand(flags, stdout), pod)
	// "ctl why pod/x" means the same as "ctl why pod x".
	c.Args, c.RunE = cobra.ArbitraryArgs, func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || !strings.HasPrefix(args[0], "pod/") {
			return cmd.Help()
		}
		pod.SetContext(cmd.Context())
		return pod.RunE(pod, args)
	}
	return c
}

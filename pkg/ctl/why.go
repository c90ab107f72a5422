// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"io"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// whyCommand is "ctl why", which has a command for each kind of question.
func whyCommand(flags genericclioptions.RESTClientGetter, stdout io.Writer) *cobra.Command {
	c := &cobra.Command{Use: "why", Short: "Tell why something is as it is"}
	c.AddCommand(connectionCommand(flags, stdout))
	return c
}

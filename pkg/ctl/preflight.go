// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/machine/config"
	"keelson.dev/keelson/pkg/machine/preflight"
)

// preflightCommand returns the command "ctl preflight".
func preflightCommand(stdout io.Writer) *cobra.Command {
	var worker, printDefaults bool
	var ignore []string
	c := &cobra.Command{
		Use:   "preflight",
		Short: "Check whether this machine can become part of a cluster",
		Long: `Check whether this machine can become part of a cluster. The command prints each
problem and its remedy, and changes nothing. It exits with an error if there are
problems that prevent the installation. The configuration comes from a file, from
flags, or from both; flags win over the file.`,
		Args: cobra.NoArgs,
	}
	c.SilenceErrors, c.SilenceUsage = true, true // Run prints the error
	fs := c.Flags()
	flags := config.AddFlags(fs)
	fs.BoolVar(&worker, "worker", false, "check for a machine without a control plane")
	fs.StringSliceVar(&ignore, "ignore-preflight-errors", nil,
		"checks whose errors do not prevent the installation, separated by commas, or all")
	fs.BoolVar(&printDefaults, "print-defaults", false,
		"print the configuration with all defaults and a comment for each field, and exit")
	c.RunE = func(c *cobra.Command, _ []string) error {
		system, err := preflight.Local(clock.Real())
		if err != nil {
			return err
		}
		cfg, err := flags.Load(system.Facts())
		if err != nil {
			return err
		}
		if printDefaults {
			return config.Print(stdout, cfg)
		}
		o := preflight.Options{Config: cfg, ControlPlane: !worker}
		// The files of a release have the time at which it was built.
		if self, err := os.Executable(); err == nil {
			if info, err := os.Stat(self); err == nil {
				o.Built = info.ModTime()
			}
		}
		if err := preflight.Report(stdout, preflight.Run(c.Context(), system, o), ignore); err != nil {
			return err
		}
		_, err = fmt.Fprintln(stdout, "This machine can become part of a cluster.")
		return err
	}
	return c
}

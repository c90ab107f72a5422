// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"io"

	"github.com/spf13/cobra"

	"keelson.dev/keelson/pkg/machine"
)

// adoptCommand returns the command "ctl adopt".
func adoptCommand(stdout, stderr io.Writer) *cobra.Command {
	o := &machine.AdoptOptions{}
	c := &cobra.Command{
		Use:   "adopt",
		Short: "Replace the control plane that kubeadm has made on this machine by Keelson's",
		Long: `Replace the control plane that kubeadm has made on this machine by Keelson's, with the
same store, certificates, addresses and flags. The command checks the machine, moves the
manifests of the static pods aside, and starts Keelson's programs as units of systemd.
The API does not answer for some seconds. If Keelson's control plane does not become
healthy, Kubernetes' is started again. The kubelet, kube-proxy and all pods stay as they
are, and "ctl unadopt" returns. The command can be interrupted and repeated.`,
		Example: "  ctl adopt --dry-run",
		Args:    cobra.NoArgs,
	}
	c.SilenceErrors, c.SilenceUsage = true, true // Run prints the error
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "only check the machine, and print the flags of Keelson's programs")
	c.Flags().StringSliceVar(&o.Drop, "drop-flag", nil,
		"names of flags in the manifests that Keelson's programs do not get, without dashes and separated by commas")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := requireRoot("only root can replace programs"); err != nil {
			return err
		}
		return machine.Adopt(c.Context(), o, machineDeps(stdout, stderr))
	}
	return c
}

// unadoptCommand returns the command "ctl unadopt".
func unadoptCommand(stdout, stderr io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use:   "unadopt",
		Short: "Bring the control plane back that \"ctl adopt\" has replaced",
		Long: `Bring the control plane back that "ctl adopt" has replaced: stop Keelson's programs, move
the manifests of the static pods back, and wait until Kubernetes' control plane is
healthy. What was written meanwhile is in the store. Keelson's flags, its link to the
release and its scheduled backups are removed from the machine. The command can be
interrupted and repeated.`,
		Args: cobra.NoArgs,
	}
	c.SilenceErrors, c.SilenceUsage = true, true // Run prints the error
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := requireRoot("only root can replace programs"); err != nil {
			return err
		}
		return machine.Unadopt(c.Context(), machineDeps(stdout, stderr))
	}
	return c
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"keelson.dev/keelson/pkg/cluster"
	"keelson.dev/keelson/pkg/provision"
)

var errCertificates = errors.New("some certificates are invalid or expire soon")

// certsCommand returns the command "ctl cluster certs".
func (s *clusters) certsCommand() *cobra.Command {
	c := &cobra.Command{Use: "certs", Short: "Check and renew a cluster's certificates"}
	var output string
	check := &cobra.Command{
		Use: "check", Short: "List the certificates with their expiry dates; exit with an error if a " +
			"certificate is invalid or expires soon", Args: cobra.NoArgs,
		RunE: s.on(func(_ *cobra.Command, cfg *cluster.Config, _ []string) error {
			list, err := cluster.Certificates(cfg, s.deps.Clock)
			if err != nil {
				return err
			}
			if output == "json" {
				err = s.json(list)
			} else {
				err = s.tellCertificates(list)
			}
			for _, c := range list {
				if c.Problem != "" {
					return errors.Join(err, errCertificates)
				}
			}
			return err
		}),
	}
	check.Flags().StringVarP(&output, "output", "o", "", "output format: \"json\" prints JSON instead of a table")
	c.AddCommand(check, &cobra.Command{
		Use: "renew", Short: "Issue all certificates again from the existing certificate authorities, except those of " +
			"kubelets that joined with a join token; no process restarts", Args: cobra.NoArgs,
		RunE: s.on(func(_ *cobra.Command, cfg *cluster.Config, _ []string) error {
			return cluster.RenewCertificates(cfg, s.deps)
		}),
	})
	return c
}

func (s *clusters) tellCertificates(list []provision.Certificate) error {
	w := tabwriter.NewWriter(s.deps.Out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "FILE\tSUBJECT\tEXPIRES\tLEFT\tSTATE")
	for _, c := range list {
		state := "good"
		switch {
		case c.Problem != "":
			state = c.Problem
		case c.Authority:
			state = "good, authority"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%dd\t%s\n", c.File, c.Subject, c.Expires.Format(time.DateOnly),
			int(c.Left.Hours()/24), state)
	}
	return w.Flush()
}

// tokenCommand returns the command "ctl cluster token".
func (s *clusters) tokenCommand() *cobra.Command {
	c := &cobra.Command{Use: "token", Short: "Create tokens with which nodes join the cluster"}
	var kubeconfig bool
	var life *time.Duration
	create := &cobra.Command{
		Use: "create", Short: "Create a join token and print it", Args: cobra.NoArgs,
		RunE: s.on(func(c *cobra.Command, cfg *cluster.Config, _ []string) error {
			token, err := cluster.CreateToken(c.Context(), cfg, *life, s.deps)
			if err != nil {
				return err
			}
			if !kubeconfig {
				_, err = fmt.Fprintln(s.deps.Out, token)
				return err
			}
			data, err := cluster.BootstrapKubeconfig(cfg, token)
			if err != nil {
				return err
			}
			_, err = s.deps.Out.Write(data)
			return err
		}),
	}
	life = addLife(create.Flags())
	create.Flags().BoolVar(&kubeconfig, "kubeconfig", false, "print a kubeconfig that contains the token, "+
		"for kubelet --bootstrap-kubeconfig, instead of the token alone")
	c.AddCommand(create)
	return c
}

// encryptionCommand returns the command "ctl cluster encryption".
func (s *clusters) encryptionCommand() *cobra.Command {
	c := &cobra.Command{Use: "encryption", Short: "Manage the keys with which Secrets are encrypted in etcd"}
	c.AddCommand(&cobra.Command{
		Use: "rotate", Short: "Encrypt all secrets with a new key and delete the old key, while the cluster keeps running",
		Long: `Make a new key, wait until the API server encrypts with it (the server looks for
a changed configuration once a minute), write every Secret again, and delete the
old key. If the command was interrupted, run it again: it continues.`,
		Args: cobra.NoArgs,
		RunE: s.on(func(c *cobra.Command, cfg *cluster.Config, _ []string) error {
			return cluster.RotateEncryption(c.Context(), cfg, s.deps)
		}),
	})
	return c
}

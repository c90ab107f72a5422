// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"keelson.dev/keelson/pkg/cluster"
)

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
			return printCertificates(s.deps.Out, list, output)
		}),
	}
	addOutput(check.Flags(), &output)
	c.AddCommand(check, &cobra.Command{
		Use: "renew", Short: "Issue all certificates again from the existing certificate authorities, except those of " +
			"kubelets that joined with a join token; no process restarts", Args: cobra.NoArgs,
		RunE: s.on(func(_ *cobra.Command, cfg *cluster.Config, _ []string) error {
			return cluster.RenewCertificates(cfg, s.deps)
		}),
	})
	return c
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

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/machine"
	"keelson.dev/keelson/pkg/provision"
)

// tokens has what the commands "ctl token" share.
type tokens struct {
	flags  genericclioptions.RESTClientGetter
	clock  clock.Clock
	stdout io.Writer
	stderr io.Writer
}

// tokenCommand returns the command "ctl token".
func tokenCommand(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	t := &tokens{flags: flags, clock: clock.Real(), stdout: streams.Out, stderr: streams.ErrOut}
	c := &cobra.Command{Use: "token", Short: "Manage the tokens with which machines join a cluster"}
	for _, sub := range []*cobra.Command{t.createCommand(), t.listCommand(), t.deleteCommand()} {
		sub.SilenceErrors, sub.SilenceUsage = true, true // Run prints the error
		c.AddCommand(sub)
	}
	return c
}

// connect returns a client of the cluster that the kubeconfig names, and the client's configuration.
func connect(flags genericclioptions.RESTClientGetter) (kubernetes.Interface, *rest.Config, error) {
	cfg, err := flags.ToRESTConfig()
	if err != nil {
		return nil, nil, err
	}
	client, err := kubernetes.NewForConfig(cfg)
	return client, cfg, err
}

// addLife adds the flag for the lifetime of a token to a command.
func addLife(fs *pflag.FlagSet) *time.Duration {
	return fs.Duration("ttl", provision.DefaultTokenLife,
		"how long the token is valid after its creation; must be longer than zero")
}

func (t *tokens) createCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "create",
		Short: "Create a join token and print it",
		Long: `Create a join token and print it. With the token, any number of machines can join the
cluster as nodes until the token expires. The token gives no other rights. A token that
never expires would be a password, so --ttl must be longer than zero.
With --control-plane, machines can join as control planes. Such a token gives access to
the keys of the cluster's certificate authorities. The command must run as root on the
machine of a control plane. The first time, it turns the etcd in the API server into a
unit of its own, and the API server does not answer for some seconds.`,
		Example: "  ctl token create --ttl 10m --print-join-command",
		Args:    cobra.NoArgs,
	}
	life := addLife(c.Flags())
	description := c.Flags().String("description", "",
		"text that \"ctl token list\" shows, for example what the token is for")
	command := c.Flags().Bool("print-join-command", false,
		"print the complete command \"ctl join\" for the new machine instead of the token alone")
	controlPlane := c.Flags().Bool("control-plane", false,
		"create a token for control planes; the command must run as root on a control plane's machine")
	c.RunE = func(c *cobra.Command, _ []string) error {
		options := provision.TokenOptions{Life: *life, Description: *description}
		if *controlPlane {
			return t.inviteControlPlane(c.Context(), options, *command)
		}
		client, cfg, err := connect(t.flags)
		if err != nil {
			return err
		}
		invitation := &machine.Invitation{}
		if *command {
			if invitation, err = invite(c.Context(), client, cfg); err != nil {
				return err // without creating a token that is never printed
			}
		}
		invitation.Token, err = provision.CreateToken(c.Context(), client, options, t.clock)
		if err != nil {
			return err
		}
		text := invitation.Token
		if *command {
			text = invitation.Command()
		}
		_, err = fmt.Fprintln(t.stdout, text)
		return err
	}
	return c
}

// inviteControlPlane creates a token for control planes, and prints it or the command to join with it.
// Progress messages go to the standard error output.
func (t *tokens) inviteControlPlane(ctx context.Context, o provision.TokenOptions, command bool) error {
	if err := o.Validate(); err != nil {
		return err // before anything changes
	}
	if err := requireRoot("--control-plane works only on the machine of a control plane"); err != nil {
		return err
	}
	invitation, err := machine.InviteControlPlane(ctx, o, machineDeps(t.stderr, t.stderr))
	if err != nil {
		return err
	}
	text := invitation.Token
	if command {
		text = invitation.ControlPlaneCommand()
	}
	_, err = fmt.Fprintln(t.stdout, text)
	return err
}

var errInsecure = errors.New("the kubeconfig does not verify the API server's certificate, so the server could name " +
	"a false authority: use a kubeconfig without insecure-skip-tls-verify")

// invite returns what a machine needs to join, except the token.
func invite(ctx context.Context, client kubernetes.Interface, cfg *rest.Config) (*machine.Invitation, error) {
	if cfg.Insecure {
		return nil, errInsecure
	}
	cfg = rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return machine.Invite(ctx, client, cfg.CAData)
}

func (t *tokens) listCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List the join tokens of the cluster, without their secret parts",
		Args:  cobra.NoArgs,
	}
	output := c.Flags().StringP("output", "o", "", "output format: \"json\" prints JSON instead of a table")
	c.RunE = func(c *cobra.Command, _ []string) error {
		client, _, err := connect(t.flags)
		if err != nil {
			return err
		}
		list, err := provision.ListTokens(c.Context(), client)
		if err != nil {
			return err
		}
		if *output == "json" {
			enc := json.NewEncoder(t.stdout)
			enc.SetIndent("", "  ")
			return enc.Encode(append([]provision.Token{}, list...)) // an empty list is not null
		}
		return t.print(list)
	}
	return c
}

func (t *tokens) print(list []provision.Token) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(t.stdout, "There are no tokens.")
		return err
	}
	w := tabwriter.NewWriter(t.stdout, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "ID\tEXPIRES\tLEFT\tUSAGES\tGROUPS\tDESCRIPTION")
	for i := range list {
		o := &list[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", o.ID, orDash(o.Expires), t.left(o.Expires),
			orDash(strings.Join(o.Usages, ",")), orDash(strings.Join(o.Groups, ",")), orDash(o.Description))
	}
	return w.Flush()
}

// left returns for how long a token is still valid. expires is its expiration time. API servers do not
// accept a token whose time they cannot parse.
func (t *tokens) left(expires string) string {
	if expires == "" {
		return "never expires"
	}
	at, err := time.Parse(time.RFC3339, expires)
	if err != nil {
		return "invalid"
	}
	if left := at.Sub(t.clock.Now()); left > 0 {
		return left.Round(time.Second).String()
	}
	return "expired"
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func (t *tokens) deleteCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "delete ID|TOKEN...",
		Short: "Delete join tokens",
		Long: `Delete join tokens, so that no other machine can join with them. Nodes that have joined
with a token do not need it any more.`,
		Example: "  ctl token delete abc123",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ids := make([]string, len(args))
			for i, text := range args {
				var err error
				if ids[i], err = provision.TokenID(text); err != nil {
					return fmt.Errorf("argument %d: %w", i+1, err)
				}
			}
			client, _, err := connect(t.flags)
			if err != nil {
				return err
			}
			for _, id := range ids {
				if err := provision.DeleteToken(c.Context(), client, id); err != nil {
					return err
				}
				fmt.Fprintf(t.stdout, "bootstrap token %q deleted\n", id)
			}
			return nil
		},
	}
}

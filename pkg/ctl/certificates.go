// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/duration"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/machine"
	"keelson.dev/keelson/pkg/provision"
)

var (
	errCertificates = errors.New("some certificates are invalid or expire soon")
	errOutput       = errors.New("unknown output format; want json or none")
	errNotRoot      = errors.New("run the command as root")
)

// requireRoot returns an error that begins with the reason, unless the user is root.
func requireRoot(reason string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%s: %w", reason, errNotRoot)
	}
	return nil
}

func addOutput(fs *pflag.FlagSet, output *string) {
	fs.StringVarP(output, "output", "o", "", "output format: \"json\" prints JSON instead of a table")
}

// printCertificates prints certificates as a table or as JSON. It returns an error if one has a problem.
func printCertificates(w io.Writer, list []provision.Certificate, output string) error {
	var err error
	switch output {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		err = e.Encode(list)
	case "":
		err = certificateTable(w, list)
	default:
		return fmt.Errorf("%q: %w", output, errOutput)
	}
	for _, c := range list {
		if c.Problem != "" {
			return errors.Join(err, errCertificates)
		}
	}
	return err
}

func certificateTable(out io.Writer, list []provision.Certificate) error {
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "FILE\tSUBJECT\tSIGNER\tEXPIRES\tLEFT\tRENEWED BY\tSTATE")
	for _, c := range list {
		state := "good"
		switch {
		case c.Problem != "":
			state = c.Problem
		case c.Authority:
			state = "good, authority"
		}
		left := "0s"
		if c.Left > 0 {
			left = duration.HumanDuration(c.Left)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.File, c.Subject, c.Signer,
			c.Expires.UTC().Format(time.DateTime), left, c.Renewal, state)
	}
	return w.Flush()
}

// certsCommand returns the command "ctl certs".
func certsCommand(stdout, stderr io.Writer) *cobra.Command {
	c := &cobra.Command{Use: "certs",
		Short: "List and renew this machine's certificates, and replace the cluster's authorities"}
	for _, sub := range []*cobra.Command{listCertsCommand(stdout), renewCertsCommand(stdout),
		rotateCommand(stdout, stderr)} {
		sub.SilenceErrors, sub.SilenceUsage = true, true // Run prints the error
		sub.Args = cobra.NoArgs
		run := sub.RunE
		sub.RunE = func(c *cobra.Command, args []string) error {
			if err := requireRoot("only root can read this machine's keys"); err != nil {
				return err
			}
			return run(c, args)
		}
		c.AddCommand(sub)
	}
	return c
}

func listCertsCommand(stdout io.Writer) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "list",
		Short: "List the certificates of this machine",
		Long: `List the certificates and authorities of this machine. For each of them, the list has the
authority that has signed it, the time when it expires, and the program or command that
renews it. The command exits with an error if a certificate is invalid or must be
renewed. It works without an API server.`,
		RunE: func(*cobra.Command, []string) error {
			list, err := machine.Certificates(clock.Real())
			if err != nil {
				return err
			}
			return printCertificates(stdout, list, output)
		},
	}
	addOutput(c.Flags(), &output)
	return c
}

func renewCertsCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "renew",
		Short: "Issue all certificates of this machine again, except those of authorities",
		Long: `Issue all certificates of this machine again, except those of authorities. Programs read
the new files by themselves within 10 s, so nothing is restarted. Certificates are also
renewed without this command, when a third of their lifetime is left. The certificates
of the kubelet and the proxy are requested from the cluster, so an API server must run.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := machine.RenewCertificates(c.Context(), clock.Real()); err != nil {
				return err
			}
			_, err := fmt.Fprintln(stdout, "All certificates of this machine are renewed.")
			return err
		},
	}
}

// rotationTimeout is how long "ctl certs rotate-ca" waits for machines after each step by default.
const rotationTimeout = 10 * time.Minute

func rotateCommand(stdout, stderr io.Writer) *cobra.Command {
	var o machine.RotationOptions
	c := &cobra.Command{
		Use:   "rotate-ca",
		Short: "Replace the certificate authorities of the cluster",
		Long: `Replace the certificate authorities of the cluster in three steps: all machines trust the
old and the new authorities; the new ones issue all certificates again; the old ones are
removed. No container restarts, and no client is rejected. Each step waits until all
machines have reported that they have applied the previous one. If the command was
interrupted, run it again on any control plane: it continues.
Copies of kubeconfig files on other computers stop working with the last step. The key
that signs tokens of service accounts is not replaced.`,
		Example: "  ctl certs rotate-ca --keep-old\n  ctl certs rotate-ca",
		RunE: func(c *cobra.Command, _ []string) error {
			return machine.RotateAuthorities(c.Context(), o, machineDeps(stdout, stderr))
		},
	}
	c.Flags().BoolVar(&o.KeepOld, "keep-old", false, "stop before the old authorities are forgotten, so that you can "+
		"replace copies of kubeconfig files; without this flag, the command continues")
	c.Flags().BoolVar(&o.Force, "force", false, "do not wait for machines whose node is not ready; the command names "+
		"them, and they must join again if they return after the last step")
	c.Flags().DurationVar(&o.Timeout, "timeout", rotationTimeout, "how long to wait for machines after each step")
	return c
}

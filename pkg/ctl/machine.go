// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/machine"
	"keelson.dev/keelson/pkg/machine/config"
	"keelson.dev/keelson/pkg/machine/discovery"
	"keelson.dev/keelson/pkg/machine/preflight"
	"keelson.dev/keelson/pkg/provision"
)

// install has the flags of the commands that make a machine part of a cluster.
type install struct {
	flags  *config.Flags
	ignore []string
	stdout io.Writer
}

func newInstall(fs *pflag.FlagSet, stdout io.Writer) *install {
	i := &install{flags: config.AddFlags(fs), stdout: stdout}
	fs.StringSliceVar(&i.ignore, "ignore-preflight-errors", nil,
		"checks whose errors do not prevent the installation, separated by commas, or all")
	return i
}

// check makes the configuration and checks the machine. shared is the configuration of the cluster
// that the machine joins, or nil.
func (i *install) check(ctx context.Context, controlPlane bool, shared *config.KeelsonConfiguration) (
	*config.KeelsonConfiguration, error) {
	if err := machine.NotAdopted(); err != nil {
		return nil, err
	}
	system, err := preflight.Local(clock.Real())
	if err != nil {
		return nil, err
	}
	cfg, err := i.flags.Load(system.Facts(), shared)
	if err != nil {
		return nil, err
	}
	o := preflight.Options{Config: cfg, ControlPlane: controlPlane, Built: built()}
	return cfg, preflight.Report(i.stdout, preflight.Run(ctx, system, o), i.ignore)
}

// printDefaults prints the configuration of this machine.
func (i *install) printDefaults() error {
	system, err := preflight.Local(clock.Real())
	if err != nil {
		return err
	}
	cfg, err := i.flags.Load(system.Facts(), nil)
	if err != nil {
		return err
	}
	return config.Print(i.stdout, cfg)
}

// built returns when the release was built, or the zero time. The files of a release have this time.
func built() time.Time {
	self, err := os.Executable()
	if err != nil {
		return time.Time{}
	}
	info, err := os.Stat(self)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

func machineDeps(stdout, stderr io.Writer) machine.Deps {
	return machine.Deps{Clock: clock.Real(), Log: slog.New(slog.NewTextHandler(stderr, nil)), Out: stdout}
}

// preflightCommand returns the command "ctl preflight".
func preflightCommand(stdout io.Writer) *cobra.Command {
	var worker bool
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
	i := newInstall(c.Flags(), stdout)
	c.Flags().BoolVar(&worker, "worker", false, "check for a machine without a control plane")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if _, err := i.check(c.Context(), !worker, nil); err != nil {
			return err
		}
		_, err := fmt.Fprintln(stdout, "This machine can become part of a cluster.")
		return err
	}
	return c
}

// initCommand returns the command "ctl init".
func initCommand(stdout, stderr io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use:   "init",
		Short: "Create a cluster whose first control plane is this machine",
		Long: `Create a cluster whose first control plane is this machine. The command checks the
machine, writes certificates and configuration, and starts the programs of the
installed release as units of systemd. At its end, it prints how other machines join.
The configuration comes from a file, from flags, or from both; flags win over the file.`,
		Args: cobra.NoArgs,
	}
	c.SilenceErrors, c.SilenceUsage = true, true // Run prints the error
	i := newInstall(c.Flags(), stdout)
	printDefaults := c.Flags().Bool("print-defaults", false,
		"print the configuration with all defaults and a comment for each field, and exit")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *printDefaults {
			return i.printDefaults()
		}
		cfg, err := i.check(c.Context(), true, nil)
		if err != nil {
			return err
		}
		return machine.Init(c.Context(), cfg, machineDeps(stdout, stderr))
	}
	return c
}

// joinCommand returns the command "ctl join".
func joinCommand(streams genericiooptions.IOStreams) *cobra.Command {
	c := &cobra.Command{
		Use:   "join ADDRESS:PORT (--token TOKEN | --token-file FILE) --ca-cert-hash HASH",
		Short: "Make this machine a node or a control plane of a cluster",
		Long: `Make this machine a node of the cluster that the API server at ADDRESS:PORT belongs to.
"ctl init" and "ctl token create --print-join-command" print the complete command. The
configuration of the network comes from the cluster; that of this machine comes from a
file, from flags, or from both.
With --control-plane, the machine also becomes a control plane with a member of etcd. A
member that this machine was before it lost its data is replaced. The token must be from
"ctl token create --control-plane".`,
		Args: cobra.ExactArgs(1),
	}
	c.SilenceErrors, c.SilenceUsage = true, true // Run prints the error
	i := newInstall(c.Flags(), streams.Out)
	invitation := &machine.Invitation{}
	c.Flags().StringVar(&invitation.Token, "token", "",
		"join token, as \"ctl token create\" prints it; all users of this machine can see it in the list of processes")
	tokenFile := c.Flags().String("token-file", "", "file with the join token; - reads it from the standard input")
	c.MarkFlagsMutuallyExclusive("token", "token-file")
	controlPlane := c.Flags().Bool("control-plane", false, "make this machine a control plane, too")
	c.Flags().StringSliceVar(&invitation.Hashes, "ca-cert-hash", nil,
		"hash of the public key of the cluster's authority: sha256:HEX; several are separated by commas, and one must fit")
	c.RunE = func(c *cobra.Command, args []string) error {
		invitation.Server = args[0]
		if *tokenFile != "" {
			var err error
			if invitation.Token, err = readToken(*tokenFile, streams.In); err != nil {
				return err
			}
		}
		if err := checkInvitation(invitation); err != nil {
			return err
		}
		token, err := useToken(invitation, *controlPlane)
		if err != nil {
			return err
		}
		shared, authority, err := machine.Discover(c.Context(), invitation)
		if err != nil {
			return err
		}
		deps := machineDeps(streams.Out, streams.ErrOut)
		if *controlPlane {
			authorities, err := machine.FetchAuthorities(c.Context(), invitation, authority, token)
			if err != nil {
				return err
			}
			cfg, err := i.check(c.Context(), true, shared)
			if err != nil {
				return err
			}
			return machine.JoinControlPlane(c.Context(), cfg, invitation, authorities, deps)
		}
		cfg, err := i.check(c.Context(), false, shared)
		if err != nil {
			return err
		}
		return machine.Join(c.Context(), cfg, invitation, authority, deps)
	}
	return c
}

// useToken removes the third part of a control plane's token from the invitation, because the API server
// must not see it. It returns the token.
func useToken(i *machine.Invitation, controlPlane bool) (provision.ControlPlaneToken, error) {
	token, ok := provision.ParseControlPlaneToken(i.Token)
	switch {
	case !controlPlane && strings.Count(i.Token, ".") > 1: // the third part may have a typing error
		return token, errTokenOfControlPlane
	case !ok && controlPlane:
		return token, errTokenOfNode
	case ok:
		i.Token = token.Join
	}
	return token, nil
}

var (
	errTokenOfControlPlane = errors.New("the token is one for control planes: add --control-plane, or make another token")
	errTokenOfNode         = errors.New("the token is not one for control planes, which has three parts: make one with " +
		"\"ctl token create --control-plane\"")
)

var (
	errNoToken    = errors.New("--token or --token-file is missing")
	errEmptyToken = errors.New("the file of --token-file has no token")
	errNoHash     = errors.New("--ca-cert-hash is missing: without it, this machine would trust any server")
)

// maxTokenFile is the maximum number of bytes of a token that readToken reads.
const maxTokenFile = 4096

// readToken reads the join token in a file, or from stdin if the file is "-". The file may contain
// white space around the token.
func readToken(file string, stdin io.Reader) (string, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", fmt.Errorf("--token-file: %w", err)
		}
		defer f.Close() // Close cannot fail in a way that matters, because the file was only read
		stdin = f
	}
	data, err := io.ReadAll(io.LimitReader(stdin, maxTokenFile))
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", errEmptyToken
	}
	return token, nil
}

// checkInvitation returns an error if an argument of "ctl join" is missing or malformed.
func checkInvitation(i *machine.Invitation) error {
	if _, err := netip.ParseAddrPort(i.Server); err != nil {
		return fmt.Errorf("API server %q: want an IP address and a port: %w", i.Server, err)
	}
	if i.Token == "" {
		return errNoToken
	}
	if len(i.Hashes) == 0 {
		return errNoHash
	}
	for _, h := range i.Hashes {
		if err := discovery.CheckHash(h); err != nil {
			return fmt.Errorf("--ca-cert-hash: %w", err)
		}
	}
	return nil
}

// resetCommand returns the command "ctl reset".
func resetCommand(stdin io.Reader, stdout, stderr io.Writer) *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:   "reset",
		Short: "Remove everything that \"ctl init\" or \"ctl join\" has made on this machine",
		Long: `Remove everything that "ctl init" or "ctl join" and the machine's programs have made,
except the installed releases: pods, programs, their data, and settings of the network.
The command works without an API server. If it is interrupted or reports a fault, it
can be repeated. The Node object remains in the cluster.`,
		Args: cobra.NoArgs,
	}
	c.SilenceErrors, c.SilenceUsage = true, true // Run prints the error
	c.Flags().BoolVarP(&force, "force", "f", false, "do not ask for confirmation")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := requireRoot("only root can remove programs and their files"); err != nil {
			return err
		}
		if err := machine.NotAdopted(); err != nil {
			return err
		}
		if !machine.Installed() {
			_, err := fmt.Fprintln(stdout, "There is nothing to remove: this machine is not part of a cluster.")
			return err
		}
		if !force && !confirmed(stdin, stdout, machine.ResetWarning) {
			return errNotConfirmed
		}
		return machine.Reset(c.Context(), machine.Deps{
			Clock: clock.Real(), Log: slog.New(slog.NewJSONHandler(stderr, nil)), Out: stdout,
		})
	}
	return c
}

var (
	errNotConfirmed = errors.New("not confirmed: nothing was changed (--force does not ask)")
)

// confirmed prints a warning and reports whether the user wants to continue.
func confirmed(in io.Reader, out io.Writer, warning string) bool {
	fmt.Fprintf(out, "%sContinue? [y/N] ", warning)
	answer, _ := bufio.NewReader(in).ReadString('\n') // without an answer, it is empty
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
}

// agentCommand returns the command "ctl agent", which the unit keelson-agent runs.
func agentCommand(stderr io.Writer) *cobra.Command {
	var node string
	c := &cobra.Command{
		Use:    "agent --node NAME",
		Short:  "Run the agent of a machine; systemd runs this command",
		Hidden: true,
		Args:   cobra.NoArgs,
	}
	c.SilenceErrors, c.SilenceUsage = true, true // Run prints the error
	c.Flags().StringVar(&node, "node", "", "name of the machine's node")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		daemon.ReloadCertificates()
		return machine.RunAgent(ctx, node, machineDeps(io.Discard, stderr))
	}
	return c
}

// switchCommand returns the command "ctl switch-release", which the unit keelson-switch runs.
func switchCommand(stderr io.Writer) *cobra.Command {
	return unitCommand("switch-release", "Switch this machine to another release; systemd runs this command",
		machine.SwitchRelease, stderr)
}

// rejoinCommand returns the command "ctl rejoin", which the unit keelson-rejoin runs.
func rejoinCommand(stderr io.Writer) *cobra.Command {
	return unitCommand("rejoin", "Make this control plane join its restored cluster; systemd runs this command",
		machine.Rejoin, stderr)
}

// unitCommand returns a hidden command that a unit runs until run returns.
func unitCommand(use, short string, run func(context.Context, machine.Deps) error, stderr io.Writer) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Hidden: true, Args: cobra.NoArgs}
	c.SilenceErrors, c.SilenceUsage = true, true // Run prints the error
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		return run(ctx, machineDeps(io.Discard, stderr))
	}
	return c
}

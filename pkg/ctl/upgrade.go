// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/api/emulation"
	"keelson.dev/keelson/pkg/cluster"
	"keelson.dev/keelson/pkg/machine"
	"keelson.dev/keelson/pkg/machine/machines"
	"keelson.dev/keelson/pkg/machine/preflight"
	"keelson.dev/keelson/pkg/machine/rollout"
)

// upgrades has what the commands "ctl upgrade" share.
type upgrades struct {
	flags   genericclioptions.RESTClientGetter
	streams genericiooptions.IOStreams
	ignore  []string
	rollout.Cluster
	config *rest.Config
}

// upgradeCommand returns the command "ctl upgrade".
func upgradeCommand(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	u := &upgrades{flags: flags, streams: streams}
	c := &cobra.Command{Use: "upgrade", Short: "Upgrade the machines of a cluster to another release, or return"}
	plan := &cobra.Command{
		Use:   "plan VERSION",
		Short: "Show what an upgrade would change, and what prevents it",
		Long: `Show which machines an upgrade to an installed release would change, in their order,
and what prevents it: missing releases, versions of Kubernetes that do not work
together, removed APIs that clients use, failing webhooks, nodes that are not ready, and
agents that do not report. The command changes nothing. It exits with an error if
something prevents the upgrade.`,
		Example: "  ctl upgrade plan 0.3.0",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			_, err := u.plan(c.Context(), args[0])
			return err
		},
	}
	apply := &cobra.Command{
		Use:   "apply VERSION",
		Short: "Upgrade all machines to an installed release, one after the other",
		Long: `Upgrade all machines to an installed release, one after the other, control planes first.
The agent of each machine restarts its programs; containers keep running. A machine on
which a program does not become healthy returns to its old release by itself, and the
command stops. Afterwards, the command updates the add-ons, if it is the program of the
same release. If the command is interrupted, the present machine finishes its work; run
the command again to go on with the others.`,
		Example: "  ctl upgrade apply 0.3.0",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := u.plan(c.Context(), args[0])
			if err != nil {
				return err
			}
			if err := u.Apply(c.Context(), p); err != nil {
				return err
			}
			return u.updateAddons(c.Context(), args[0])
		},
	}
	rollback := &cobra.Command{
		Use:   "rollback",
		Short: "Return all machines to the release that they had before the last upgrade",
		Long: `Return all machines to the release that they had before the last upgrade, also if that
was interrupted or has failed, one after the other, control planes last. If the release
has an older version of Kubernetes, the command first checks that this version supports
all objects. If the command is interrupted, run it again.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return u.rollback(c.Context()) },
	}
	for _, sub := range []*cobra.Command{plan, apply, rollback} {
		sub.SilenceErrors, sub.SilenceUsage = true, true // Run prints the error
		sub.Flags().StringSliceVar(&u.ignore, "ignore-preflight-errors", nil,
			"checks whose errors do not prevent the change, separated by commas, or all")
		c.AddCommand(sub)
	}
	return c
}

// read connects to the cluster, and reads its state.
func (u *upgrades) read(ctx context.Context) (*rollout.State, error) {
	client, cfg, err := connect(u.flags)
	if err != nil {
		return nil, err
	}
	u.config = cfg
	u.Client, u.Clock, u.Out = client, clock.Real(), u.streams.Out
	if u.Machines, err = machines.NewClient(cfg); err != nil {
		return nil, err
	}
	return u.Read(ctx)
}

// plan prints the plan of an upgrade, and returns it unless something prevents it.
func (u *upgrades) plan(ctx context.Context, release string) (*rollout.Plan, error) {
	state, err := u.read(ctx)
	if err != nil {
		return nil, err
	}
	p, err := state.Upgrade(release)
	if err != nil {
		return nil, err
	}
	more, err := rollout.CheckAPI(ctx, u.Client.Discovery().RESTClient(), p.Target)
	if err != nil {
		return nil, err
	}
	p.Findings = append(p.Findings, more...)
	return p, u.report(p)
}

func (u *upgrades) report(p *rollout.Plan) error {
	if err := p.Print(u.Out); err != nil {
		return err
	}
	return preflight.Report(u.Out, p.Findings, u.ignore)
}

// rollback returns to the earlier release.
func (u *upgrades) rollback(ctx context.Context) error {
	state, err := u.read(ctx)
	if err != nil {
		return err
	}
	p, err := state.Rollback()
	if err != nil {
		return err
	}
	if p.Older {
		found, err := unsupported(ctx, u.config)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			p.Findings = append(p.Findings, preflight.Finding{
				Check: "Downgrade", Severity: preflight.Error,
				What:   fmt.Sprintf("Kubernetes %s does not support %d fields or objects", emulation.Previous, len(found)),
				Remedy: "delete or change the objects that \"ctl check-downgrade\" lists",
			})
		}
	}
	if err := u.report(p); err != nil {
		return err
	}
	if err := u.Apply(ctx, p); err != nil || len(p.Steps) == 0 {
		return err
	}
	return u.updateAddons(ctx, p.Steps[0].To)
}

// updateAddons brings the add-ons to a release, which all machines run. This program knows only those of its own
// release.
func (u *upgrades) updateAddons(ctx context.Context, release string) error {
	if own := machine.OwnRelease(); own != release {
		_, err := fmt.Fprintf(u.Out, "The add-ons are unchanged, because this program belongs to release %s. To update "+
			"them, run on a machine of the cluster:\n  %s upgrade apply %s\n", own, machine.Program(release), release)
		return err
	}
	kept, err := machine.UpdateAddons(ctx, u.config, u.Clock)
	if err != nil {
		return fmt.Errorf("all machines run release %s, but its add-ons are not complete; remove the cause, and run "+
			"\"ctl upgrade apply %s\" again: %w", release, release, err)
	}
	for _, k := range kept {
		fmt.Fprintf(u.Out, "Another client has changed an add-on, so it was not updated: %s\n", k)
	}
	_, err = fmt.Fprintln(u.Out, "The add-ons are those of release "+release+".")
	return err
}

// checkUpgrade checks whether something prevents an upgrade of a cluster of "ctl cluster" to the programs
// in a directory. A cluster without an API server is not checked, because new programs may repair it.
func (s *clusters) checkUpgrade(ctx context.Context, c *cluster.Config, from string, ignore []string) error {
	kubeconfig, err := cluster.Kubeconfig(c)
	if err != nil {
		return err
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	cfg.Timeout = checkTimeout
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	var target *version.Version
	if text := machine.KubernetesVersion(ctx, filepath.Join(from, "apiserver")); text != "" {
		target = version.MustParseSemantic(text)
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintf(s.deps.Out, "The cluster is not checked before the upgrade, because its API cannot be read: %v\n", err)
		return nil
	}
	findings := rollout.CheckNodes(nodes.Items, target, func(string) bool { return true })
	more, err := rollout.CheckAPI(ctx, client.Discovery().RESTClient(), target)
	if err != nil {
		return err
	}
	return preflight.Report(s.deps.Out, append(findings, more...), ignore)
}

// checkTimeout limits each request of checkUpgrade.
const checkTimeout = 30 * time.Second

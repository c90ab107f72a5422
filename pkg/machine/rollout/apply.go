// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/api/machines/v1alpha1"
	"keelson.dev/keelson/pkg/backup"
	"keelson.dev/keelson/pkg/machine/machines"
	"keelson.dev/keelson/pkg/machine/nodes"
	"keelson.dev/keelson/pkg/provision"
)

// Time limits of Apply. The agent has limits of its own, which are shorter.
const (
	machineLimit = 20 * time.Minute
	nodeLimit    = 2 * time.Minute
	// apiLimit is how long the API may be unreachable when a specification is written. The API server may
	// just have been restarted.
	apiLimit  = time.Minute
	callLimit = 10 * time.Second
)

// Cluster is the cluster that changes.
type Cluster struct {
	Machines *machines.Client
	Client   kubernetes.Interface
	Clock    clock.Clock
	Out      io.Writer // receives progress messages
}

// Read reads the state of the cluster.
func (c *Cluster) Read(ctx context.Context) (*State, error) {
	list, err := c.Machines.List(ctx)
	if apierrors.IsNotFound(err) { // not even the kind
		return nil, errNoMachines
	}
	if err != nil {
		return nil, fmt.Errorf("machines: %w", err)
	}
	nodes, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	made, err := backup.Last(ctx, c.Client)
	if err != nil {
		return nil, err
	}
	return &State{Machines: list, Nodes: nodes.Items, Backup: made, Now: c.Clock.Now()}, nil
}

// Apply does what a plan says. It can be interrupted and repeated with a new plan.
func (c *Cluster) Apply(ctx context.Context, p *Plan) error {
	for _, name := range p.Withdraw {
		if err := c.Machines.SetSpec(ctx, name, withdraw); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, s := range p.Steps {
		began := c.Clock.Now()
		if err := c.apply(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.Machine, err)
		}
		fmt.Fprintf(c.Out, "%5.1f s  %s: %s -> %s\n", c.Clock.Since(began).Seconds(), s.Machine, s.From, s.To)
	}
	return nil
}

// apply changes one machine, and waits until it runs the release and its node is ready.
func (c *Cluster) apply(ctx context.Context, s Step) error {
	if err := c.want(ctx, s); err != nil {
		return err
	}
	if err := c.await(ctx, s); err != nil {
		return err
	}
	return c.wait(ctx, nodeLimit, func(ctx context.Context) error {
		n, err := c.Client.CoreV1().Nodes().Get(ctx, s.Machine, metav1.GetOptions{})
		if err == nil && !nodes.IsReady(n) {
			err = errNodeNotReady
		}
		return err
	})
}

var errNodeNotReady = errors.New("the node is not ready")

// want writes the release into the specification of the machine. If it is there already, and the agent
// has not ended its work, an earlier call was interrupted, and the machine goes on.
func (c *Cluster) want(ctx context.Context, s Step) error {
	return c.wait(ctx, apiLimit, func(ctx context.Context) error {
		m, err := c.Machines.Get(ctx, s.Machine)
		if err != nil {
			return err
		}
		if _, ended := outcome(m); m.Spec.Release == s.To && !ended {
			return nil
		}
		return c.Machines.SetSpec(ctx, s.Machine, func(spec *v1alpha1.MachineSpec) {
			spec.Release, spec.Request = s.To, c.Clock.Now().UTC().Format(time.RFC3339Nano)
		})
	})
}

// outcome returns the condition with which the agent has answered the present specification. ended is
// false as long as it has not.
func outcome(m *v1alpha1.Machine) (c *metav1.Condition, ended bool) {
	c = meta.FindStatusCondition(m.Status.Conditions, v1alpha1.Upgraded)
	return c, c != nil && m.Status.ObservedGeneration == m.Generation && c.ObservedGeneration == m.Generation &&
		c.Reason != v1alpha1.ReasonSwitching
}

func withdraw(spec *v1alpha1.MachineSpec) { *spec = v1alpha1.MachineSpec{} }

var errSilent = errors.New("its agent has not yet reported the end")

// await waits until the machine runs the release, or has given up. Then it withdraws the specification.
func (c *Cluster) await(ctx context.Context, s Step) error {
	var end *metav1.Condition
	var runs string
	err := c.wait(ctx, machineLimit, func(ctx context.Context) error {
		m, err := c.Machines.Get(ctx, s.Machine)
		if err != nil {
			return err
		}
		answer, ended := outcome(m)
		if !ended {
			return errSilent
		}
		end, runs = answer, m.Status.Release
		return c.Machines.SetSpec(ctx, s.Machine, withdraw)
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w; on this machine, see \"journalctl -u keelson-agent -u keelson-switch\", and then run the "+
			"command again", err)
	case end.Reason == v1alpha1.ReasonRefused:
		return fmt.Errorf("%w: %s; nothing was changed there. Remove the cause, and run the command again", errRefused,
			end.Message)
	case end.Reason != v1alpha1.ReasonCurrent:
		return fmt.Errorf("%w: %s; this machine runs %s again, and later machines were not changed. See \"journalctl\" "+
			"there. Then run the command again, or return with \"ctl upgrade rollback\"", errRolledBack, end.Message, s.From)
	case runs != s.To:
		return errWithdrawn
	}
	return nil
}

var (
	errWithdrawn  = errors.New("another client has withdrawn the release from the machine's specification")
	errRefused    = errors.New("the machine refuses the release")
	errRolledBack = errors.New("the release does not work")
)

// wait calls check until it returns nil. Its calls have a time limit each, because a request can be lost
// when an API server ends.
func (c *Cluster) wait(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	return provision.Wait(ctx, c.Clock, limit, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		return check(ctx)
	})
}

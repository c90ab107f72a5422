// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"keelson.dev/api/clock"
)

// plugin implements the commands that attach and detach sandboxes.
type plugin struct{ clock clock.Clock }

// Main runs the CNI command that the runtime passes in the environment and on standard input. If
// the command fails, Main exits with an error code.
func Main(clk clock.Clock) {
	p := plugin{clock: clk}
	skel.PluginMainFuncs(skel.CNIFuncs{Add: p.add, Del: del, Check: check, GC: collect, Status: status},
		version.PluginSupports("1.0.0", "1.1.0"), "CNI plugin of the pod network")
}

func ownerOf(args *skel.CmdArgs) types.GCAttachment {
	return types.GCAttachment{ContainerID: args.ContainerID, IfName: args.IfName}
}

// add attaches a pod sandbox to the network. If a step fails, add reverses the earlier steps.
func (p plugin) add(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	given, err := c.addresses().give(ownerOf(args), c.Subnets)
	if err != nil {
		return err
	}
	connected, err := p.connect(c, args, given)
	if err != nil {
		return errors.Join(err, c.addresses().takeBack(given))
	}
	ctx, plugins := context.Background(), c.delegates()
	result, err := addDelegates(ctx, plugins, connected)
	if err != nil {
		return errors.Join(err, delDelegates(ctx, plugins, connected), disconnect(args),
			c.unbind(ownerOf(args), addressesOf(given)), c.addresses().takeBack(given))
	}
	return types.PrintResult(result, c.CNIVersion)
}

// del detaches a sandbox, which may be only partly attached. It frees the addresses last, when no
// interface has them any more.
func del(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	previous, err := c.previous()
	if err != nil {
		return err
	}
	if err := errors.Join(delDelegates(context.Background(), c.delegates(), previous), disconnect(args)); err != nil {
		return err
	}
	return c.addresses().releaseOf(ownerOf(args), c.unbind)
}

// check returns an error if a sandbox's interface or addresses are not as the command ADD has set
// them, or if the command CHECK of a delegated plugin fails. It does not check the binding of the
// port.
func check(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	previous, err := c.previous()
	if err != nil {
		return err
	}
	if previous == nil {
		return invalid("CHECK needs the previous result")
	}
	result, err := types100.NewResultFromResult(previous)
	if err != nil {
		return fmt.Errorf("previous result: %w", err)
	}
	if err := checkAddresses(c, args, result.IPs); err != nil {
		return err
	}
	var errs []error
	for _, d := range c.delegates() {
		d.PrevResult = previous
		errs = append(errs, d.ask(context.Background(), invoke.DelegateCheck))
	}
	return errors.Join(errs...)
}

// checkAddresses returns an error unless the addresses in the result of ADD are allocated to the
// sandbox and configured on its interface.
func checkAddresses(c *Config, args *skel.CmdArgs, ips []*types100.IPConfig) error {
	have, err := connected(args)
	if err != nil {
		return err
	}
	for _, ip := range ips {
		p, ok := prefixOf(&ip.Address)
		if !ok || !have[p] {
			return fmt.Errorf("%s of %s has no address %s", args.IfName, args.ContainerID, &ip.Address)
		}
		owner, err := c.addresses().owner(p.Addr())
		if err != nil {
			return err
		}
		if owner != ownerOf(args) {
			return fmt.Errorf("address %s of %s belongs to %s", p.Addr(), args.ContainerID, owner.ContainerID)
		}
	}
	return nil
}

// collect frees all addresses except those of the sandboxes that the container runtime lists in the
// configuration as still attached.
func collect(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	return c.addresses().releaseBut(c.ValidAttachments, c.unbind)
}

// status returns an error if the configuration is invalid, or if the command STATUS of a delegated
// plugin fails.
func status(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	ctx := context.Background()
	return errors.Join(c.portmap().ask(ctx, invoke.DelegateStatus), c.bandwidth().ask(ctx, invoke.DelegateStatus))
}

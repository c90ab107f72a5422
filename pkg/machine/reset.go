// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"keelson.dev/keelson/pkg/cgrouptree"
	"keelson.dev/keelson/pkg/loopdev"
	"keelson.dev/keelson/pkg/network"
)

// ResetWarning says what Reset deletes, for the question before it.
const ResetWarning = `This removes Keelson's programs, all pods and their files from this machine. It deletes:
  - the volumes on this machine's disk (storage driver disk.csi.keelson.dev), and all other files below
    /var/lib/kubelet,
  - the images of containers, and all other files below /var/lib/containerd,
  - on a control plane, the data of the cluster in /var/lib/etcd and the keys in /etc/kubernetes; if the cluster
    has other control planes, this machine leaves their etcd,
  - the logs in /var/log/pods, /var/log/containers and /var/log/kubernetes.
Directories of the machine that pods have mounted (hostPath) remain.
`

// cleanupTimeout is the time limit for the proxy's own cleanup.
const cleanupTimeout = time.Minute

// Installed reports whether Init or Join has made something on this machine. Both make their first
// files at these paths, and Reset removes them last.
func Installed() bool {
	for _, path := range append([]string{ownConfig}, releaseLinks()...) {
		if _, err := os.Lstat(path); err == nil {
			return true
		}
	}
	return false
}

// Reset removes everything that Init, Join and the machine's programs have made, except releases.
// It continues after a fault; its error lists what could not be removed. It can be interrupted at any
// time, and repeated.
func Reset(ctx context.Context, d Deps) error {
	if err := NotAdopted(); err != nil {
		return err
	}
	return exclusively(func() error { return reset(ctx, d) })
}

// reset is Reset while no other command changes the control plane.
func reset(ctx context.Context, d Deps) error {
	s := &steps{Deps: d}
	// First, because the switcher would start other programs again.
	errs := []error{s.run("agent", func() error { return stopAgent(ctx) })}
	remains := mayBeMember() && s.tryLeave(ctx)
	farewell := farewell(remains)
	for _, step := range s.removals() {
		errs = append(errs, s.run(step.name, func() error { return step.do(ctx) }))
	}
	// As long as something is left, Reset must recognize the machine and find its programs.
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := s.run("configuration", removeConfiguration); err != nil {
		return err
	}
	fmt.Fprint(s.Out, farewell)
	return nil
}

// removal is a step of Reset.
type removal struct {
	name string
	do   func(context.Context) error
}

// removals returns the steps of Reset, except the last one. First, nothing may start pods again. The
// runtime then ends the pods, because it knows best what belongs to them. The other steps remove what
// remains of them, for example because the runtime does not run.
func (s *steps) removals() []removal {
	pods := network.New(network.Config{ConfDir: networkConfigs, Clock: s.Clock})
	return []removal{
		{"kubelet and proxy", func(ctx context.Context) error {
			return stopUnits(ctx, unit(kubelet), unit(proxy))
		}},
		{"pods", s.endPods},
		{"units", removeUnits},
		{"processes", func(ctx context.Context) error { return removeGroups(ctx, s.Deps) }},
		{"mounts", func(context.Context) error { return unmountAll() }},
		{"loop devices", func(context.Context) error { return loopdev.DetachBelow(kubeletDir) }},
		{"proxy", cleanProxy},
		{"pod network", pods.Remove},
		{"files", removeFiles},
	}
}

// farewell says what of the machine's cluster remains elsewhere. isMember is true if this machine remains
// a member of etcd.
func farewell(isMember bool) string {
	name := "NAME"
	if c, err := readConfiguration(); err == nil {
		name = c.Node.Name
	}
	out := "\nKeelson's programs and files are removed from this machine. These remain:\n\n"
	if !exists(controlDir.PKI("ca.key")) || mayBeMember() {
		out += "  - the Node in the cluster. To remove it, run on a control plane:\n\n" +
			"      ctl node remove --force " + name + "\n\n"
	}
	if isMember {
		out += "  - this machine's membership in the cluster's etcd. The command above removes it, too, and so does\n" +
			"    \"ctl join --control-plane\" on this machine.\n"
	}
	return out + "  - kernel settings such as net.ipv4.ip_forward, until the machine restarts\n" +
		"  - the releases in " + releases + ": remove their packages if you do not need them\n"
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// removeGroups kills all remaining processes of pods and of Keelson's programs, for example those that
// hold a container, and removes their cgroups.
func removeGroups(ctx context.Context, d Deps) error {
	hierarchies, err := cgrouptree.Hierarchies("/sys/fs/cgroup")
	if err != nil {
		return err
	}
	var errs []error
	for _, group := range []string{"kubepods", "kubepods.slice", slice} {
		errs = append(errs, cgrouptree.RemoveAll(ctx, hierarchies, group, d.Clock))
	}
	return errors.Join(errs...)
}

// cleanProxy removes the proxy's nftables tables and addresses.
func cleanProxy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	dir, err := release()
	if err != nil {
		dir = current
	}
	return command(ctx, filepath.Join(dir, "bin", "proxy"), "--cleanup")
}

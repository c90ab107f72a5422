// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/machine/nodes"
	"keelson.dev/keelson/pkg/provision"
	"keelson.dev/keelson/pkg/restorehold"
)

// start starts the programs of the machine, and waits until its node is ready.
func (r *restore) start(ctx context.Context) error {
	if err := r.run("containerd", func() error { return startUnits(ctx, containerd) }); err != nil {
		return err
	}
	if r.several {
		if err := r.startEtcd(ctx); err != nil {
			return err
		}
	}
	api, err := r.startControlPlane(ctx)
	if err != nil {
		return err
	}
	name := r.config.Node.Name
	err = r.run("node "+name, func() error {
		if err := errors.Join(api.createNode(ctx, r.config), api.readmit(ctx, r.config)); err != nil {
			return err
		}
		return r.startNode(ctx, func(ctx context.Context) error { return nodeReady(ctx, api.client, name) })
	})
	if err != nil {
		return err
	}
	waiting := r.awaitReports(ctx, api.client)
	fmt.Fprintf(r.Out, "\nThe cluster %s is restored, with the epoch %d and the revision %d.\n"+
		"Other machines connect by themselves; see \"ctl get nodes\".\n", r.config.ClusterName, r.epoch, r.revision)
	if waiting != nil {
		fmt.Fprintf(r.Out, "\nPods of StatefulSets wait: %s.\n"+
			"If the machine of such a node is off and stays off: ctl node fence NAME\n\n", waiting)
	}
	if err := r.printOthers(ctx, api.client); err != nil {
		return err
	}
	for _, dir := range []string{storeDir, string(controlDir), ownConfig} {
		if old := filepath.Join(dir, r.stamp); exists(old) {
			fmt.Fprintln(r.Out, "The old files are in "+old+".")
		}
	}
	return nil
}

// printOthers prints which other control planes the restored cluster knows, and what they do.
func (r *restore) printOthers(ctx context.Context, client kubernetes.Interface) error {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: nodes.ControlPlaneLabel})
	if err != nil {
		return fmt.Errorf("control planes: %w", err)
	}
	var others []string
	for i := range list.Items {
		if name := list.Items[i].Name; name != r.config.Node.Name {
			others = append(others, name)
		}
	}
	if len(others) == 0 {
		return nil
	}
	fmt.Fprintf(r.Out, "\nThese control planes join by themselves as soon as they reach this machine: %s.\n"+
		"If one of them never comes back: ctl node remove NAME\n", strings.Join(others, ", "))
	if !r.several {
		fmt.Fprintln(r.Out, "Before, this command must make etcd a program of its own here: ctl token create --control-plane")
	}
	fmt.Fprintln(r.Out)
	return nil
}

// reportTimeout is how long Restore waits for the reports of nodes. Machines that are on need some seconds.
const reportTimeout = 30 * time.Second

// awaitReports waits until the cluster waits for no node. Otherwise, it returns for which nodes the
// cluster waits, or why that is unknown. Nothing depends on it, because the state is in the objects.
func (r *restore) awaitReports(ctx context.Context, client kubernetes.Interface) error {
	var last error
	return provision.Wait(ctx, r.Clock, reportTimeout, func(ctx context.Context) error {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: restorehold.Unreported})
		if err != nil {
			return cmp.Or(last, err) // at the end of the time, the previous answer says more
		}
		var waiting []string
		for i := range list.Items {
			if restorehold.Waiting(&list.Items[i]) {
				waiting = append(waiting, list.Items[i].Name)
			}
		}
		if len(waiting) > 0 {
			last = fmt.Errorf("%w: %s", errUnreported, strings.Join(waiting, ", "))
			return last
		}
		return nil
	})
}

var errUnreported = errors.New("these nodes have not reported yet")

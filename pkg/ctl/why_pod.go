// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"keelson.dev/keelson/pkg/scheduler"
	"keelson.dev/keelson/pkg/scheduler/profile"
)

// podCommand returns the command "ctl why pod". It explains why a pod is on its node, or why it has
// no node. The command reads objects from the API and runs the scheduler's code on them. It
// therefore works with every cluster whose scheduler has the default configuration.
func podCommand(flags genericclioptions.RESTClientGetter, stdout io.Writer) *cobra.Command {
	var nodes int
	var asJSON bool
	c := &cobra.Command{
		Use:   "pod NAME",
		Short: "Explain why a pod is on its node, or why it is on no node and which change would help",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
			if err != nil {
				return err
			}
			config, err := flags.ToRESTConfig()
			if err != nil {
				return err
			}
			config.QPS = -1
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			name := args[0][strings.LastIndex(args[0], "/")+1:]
			w, evicted, err := whyPod(cmd.Context(), client, namespace, name, nodes)
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(stdout)
				enc.SetIndent("", "  ")
				return enc.Encode(w)
			}
			printWhy(stdout, w, evicted)
			return nil
		},
	}
	c.Flags().IntVar(&nodes, "nodes", 5, "maximum number of nodes that are listed one by one; 0 means all nodes")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON instead of text")
	return c
}

// whyPod evaluates the pod in a scheduler.Model of the cluster. evicted has the messages of events
// about pods that preempted it. If the pod no longer exists, these events are the only result.
func whyPod(ctx context.Context, client kubernetes.Interface, namespace, name string,
	nodes int) (w *scheduler.Why, evicted []string, err error) {
	selector := fields.Set{"involvedObject.name": name, "involvedObject.kind": "Pod",
		"reason": "Preempted"}.AsSelector().String()
	events, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: selector})
	if err == nil {
		for i := range events.Items {
			evicted = append(evicted, events.Items[i].Message)
		}
	}
	pod, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		if len(evicted) > 0 {
			return &scheduler.Why{Pod: namespace + "/" + name}, evicted, nil
		}
		return nil, nil, err
	}
	profiles, err := profile.Build(&configv1.KubeSchedulerConfiguration{}, nil)
	if err != nil {
		return nil, nil, err
	}
	m, err := scheduler.NewModel(profiles.Profiles[v1.DefaultSchedulerName], rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		return nil, nil, err
	}
	if err := fillModel(ctx, client, m); err != nil {
		return nil, nil, err
	}
	w, err = m.Why(pod, nodes)
	return w, evicted, err
}

// fillModel reads the objects that the scheduler uses, and adds them to the model. It does not read
// those for devices (ResourceSlices, ResourceClaims and DeviceClasses) and for storage capacity
// (CSIDrivers and CSIStorageCapacities).
func fillModel(ctx context.Context, client kubernetes.Interface, m *scheduler.Model) error {
	core, apps, storage := client.CoreV1(), client.AppsV1(), client.StorageV1()
	all := metav1.ListOptions{ResourceVersion: "0"}
	running := all
	running.FieldSelector = "status.phase!=Succeeded,status.phase!=Failed"
	lists := []func() (runtime.Object, error){
		func() (runtime.Object, error) { return core.Namespaces().List(ctx, all) },
		func() (runtime.Object, error) { return core.Nodes().List(ctx, all) },
		func() (runtime.Object, error) { return core.Pods("").List(ctx, running) },
		func() (runtime.Object, error) { return core.Services("").List(ctx, all) },
		func() (runtime.Object, error) { return core.ReplicationControllers("").List(ctx, all) },
		func() (runtime.Object, error) { return apps.ReplicaSets("").List(ctx, all) },
		func() (runtime.Object, error) { return apps.StatefulSets("").List(ctx, all) },
		func() (runtime.Object, error) { return core.PersistentVolumes().List(ctx, all) },
		func() (runtime.Object, error) { return core.PersistentVolumeClaims("").List(ctx, all) },
		func() (runtime.Object, error) { return storage.StorageClasses().List(ctx, all) },
		func() (runtime.Object, error) { return storage.CSINodes().List(ctx, all) },
		func() (runtime.Object, error) { return storage.VolumeAttachments().List(ctx, all) },
	}
	for _, list := range lists {
		objects, err := list()
		if err != nil {
			return err
		}
		if err := m.SetAll(objects); err != nil {
			return err
		}
	}
	return nil
}

func printWhy(out io.Writer, w *scheduler.Why, evicted []string) {
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	for _, e := range evicted {
		p("%s: %s", w.Pod, e)
	}
	if w.Ended != "" {
		p("%s has ended: %s", w.Pod, w.Ended)
	}
	switch {
	case len(w.Gated) > 0:
		p("%s is held back from scheduling: %s", w.Pod, strings.Join(w.Gated, ", "))
	case w.Node != "":
		p("%s is on node %s. It fits on %d nodes.", w.Pod, w.Node, w.Fits)
	case w.Fits > 0:
		p("%s fits on %d nodes.", w.Pod, w.Fits)
	case len(w.Reasons) > 0:
		p("%s fits on no node:", w.Pod)
	}
	for _, r := range w.Reasons {
		p("  %5d nodes: %s (%s)", r.Nodes, r.Reason, r.Plugin)
	}
	if len(w.Changes) > 0 {
		p("It would fit if you")
		for _, c := range w.Changes {
			p("  %s (%d nodes, for example %s)", c.What, c.Nodes, c.Node)
		}
	}
	for _, n := range w.Nodes {
		if n.Objection != nil {
			p("%s: rejected: %s", n.Node, objections(&n))
			continue
		}
		var scores []string
		for _, s := range n.Scores {
			scores = append(scores, fmt.Sprintf("%s %d×%d", s.Plugin, s.Score, s.Weight))
		}
		p("%s: total %d: %s", n.Node, n.Total, strings.Join(scores, ", "))
	}
}

func objections(n *scheduler.NodeExplanation) string {
	reasons := append([]string{}, n.Objection.Reasons...)
	for _, o := range n.Others {
		reasons = append(reasons, o.Reasons...)
	}
	return strings.Join(reasons, "; ")
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"keelson.dev/keelson/pkg/restorehold"
)

var errReady = errors.New("the node is ready, so its machine is on; turn the machine off first, or use --force if " +
	"you have just done that")

// Fence declares that the machine of a node is off. Its pods are replaced, and its kubelet may not write
// until Unfence. Unless it is forced, Fence refuses to fence a node that is ready.
func Fence(ctx context.Context, name string, o Options) error {
	node, changed, err := o.update(ctx, name, func(node *v1.Node) error {
		if IsReady(node) && !restorehold.IsFenced(node) && !o.Force {
			return fmt.Errorf("node %s: %w", name, errReady)
		}
		restorehold.Fence(node, o.Clock.Now())
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "node/%s %s\n", name, word(changed, "fenced", "is fenced already"))
	if IsReady(node) {
		fmt.Fprintf(o.Out, "Its pods are replaced when it is not ready, which takes about a minute.\n")
	}
	return nil
}

// Unfence ends the fence of a node. Its kubelet ends the pods that were replaced, and then reports the
// node.
func Unfence(ctx context.Context, name string, o Options) error {
	_, changed, err := o.update(ctx, name, func(node *v1.Node) error {
		restorehold.EndFence(node)
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "node/%s %s\n", name, word(changed, "is not fenced any more", "is not fenced"))
	return nil
}

func word(changed bool, yes, no string) string {
	if changed {
		return yes
	}
	return no
}

// update changes a Node, and reports whether it has. If another client changes the Node at the same time,
// it tries again.
func (o *Options) update(ctx context.Context, name string, change func(*v1.Node) error) (node *v1.Node, changed bool,
	err error) {
	nodes := o.Client.CoreV1().Nodes()
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if node, err = nodes.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		old := node.DeepCopy()
		if err := change(node); err != nil {
			return err
		}
		if changed = !equality.Semantic.DeepEqual(old, node); !changed {
			return nil
		}
		node, err = nodes.Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
	return node, changed, err
}

// Readiness returns the condition Ready of a node, or one without a status.
func Readiness(node *v1.Node) v1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c
		}
	}
	return v1.NodeCondition{}
}

// IsReady reports whether a node is ready.
func IsReady(node *v1.Node) bool { return Readiness(node).Status == v1.ConditionTrue }

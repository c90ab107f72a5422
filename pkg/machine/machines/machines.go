// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machines reads and writes the Machines of a cluster: the objects by which an administrator
// tells the agents of machines what to do, and in which the agents report. Package v1alpha1 of
// machines.keelson.dev describes them.
package machines

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"

	"keelson.dev/api/machines/v1alpha1"
	"keelson.dev/keelson/pkg/follow"
)

// Client is a client of the Machines of a cluster.
type Client struct{ objects dynamic.ResourceInterface }

// NewClient returns a client with the given configuration.
func NewClient(rc *rest.Config) (*Client, error) {
	objects, err := dynamic.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return &Client{objects.Resource(v1alpha1.GroupVersionResource())}, nil
}

// Get returns the Machine with a name.
func (c *Client) Get(ctx context.Context, name string) (*v1alpha1.Machine, error) {
	o, err := c.objects.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return Decode(o)
}

// List returns all Machines, sorted by name.
func (c *Client) List(ctx context.Context) ([]v1alpha1.Machine, error) {
	list, err := c.objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := make([]v1alpha1.Machine, len(list.Items))
	for i := range list.Items {
		m, err := Decode(&list.Items[i])
		if err != nil {
			return nil, err
		}
		out[i] = *m
	}
	return out, nil
}

// SetSpec changes the specification of a Machine.
func (c *Client) SetSpec(ctx context.Context, name string, change func(*v1alpha1.MachineSpec)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		m, err := c.Get(ctx, name)
		if err != nil {
			return err
		}
		before := m.Spec
		if change(&m.Spec); m.Spec == before {
			return nil
		}
		o, err := encode(m)
		if err != nil {
			return err
		}
		_, err = c.objects.Update(ctx, o, metav1.UpdateOptions{FieldManager: "ctl"})
		return err
	})
}

// SetStatus changes the status of the Machine with a name. It creates the Machine if it does not
// exist. It writes nothing if the change changes nothing.
func (c *Client) SetStatus(ctx context.Context, name string, change func(*v1alpha1.Machine)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		m, err := c.Get(ctx, name)
		if apierrors.IsNotFound(err) {
			m, err = c.create(ctx, name)
		}
		if err != nil {
			return err
		}
		before := m.Status.DeepCopy()
		if change(m); equality.Semantic.DeepEqual(*before, m.Status) {
			return nil
		}
		o, err := encode(m)
		if err != nil {
			return err
		}
		_, err = c.objects.UpdateStatus(ctx, o, metav1.UpdateOptions{FieldManager: "agent"})
		return err
	})
}

func (c *Client) create(ctx context.Context, name string) (*v1alpha1.Machine, error) {
	o, err := encode(&v1alpha1.Machine{TypeMeta: v1alpha1.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(o.Object, "status")
	if o, err = c.objects.Create(ctx, o, metav1.CreateOptions{FieldManager: "agent"}); err != nil {
		return nil, err
	}
	return Decode(o)
}

// Source returns a source for a follow.Cache that has only the Machine with a name. Its objects are
// decoded by Decode.
func (c *Client) Source(name string) cache.ListerWatcher {
	return follow.Source(c.objects, follow.Named(name))
}

// Decode returns the Machine in an object of the dynamic client.
func Decode(o *unstructured.Unstructured) (*v1alpha1.Machine, error) {
	m := &v1alpha1.Machine{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, m); err != nil {
		return nil, fmt.Errorf("machine %s: %w", o.GetName(), err)
	}
	return m, nil
}

func encode(m *v1alpha1.Machine) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(m)
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", m.Name, err)
	}
	return &unstructured.Unstructured{Object: fields}, nil
}

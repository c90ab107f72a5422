// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mark prepares the objects in a restored store for the cluster, before an API server uses it. It sets
// the labels of package restorehold, and withdraws upgrades.
package mark

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/scheme"

	"keelson.dev/api/machines/v1alpha1"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/keelson/pkg/restorehold"
)

// pageSize is the number of objects that are read and written at a time. maxBytes limits the size of one
// write: etcd accepts 1.5 MiB.
const (
	pageSize = kv.MaxChanges
	maxBytes = 512 << 10
)

// Options describe a restore.
type Options struct {
	// Prefix is the prefix of all keys, for example registry.
	Prefix string
	// Epoch is the epoch of the restored store.
	Epoch int64
	// AlsoNodes are the names of machines that may have joined after the backup. A Node is created for
	// each of them that the store does not know.
	AlsoNodes []string
	// Now is the time of the restore.
	Now time.Time
}

var errEncrypted = errors.New("the object is encrypted in the store, and only an API server can decrypt it")

// Run marks all nodes as unreported, holds all pods that a StatefulSet controls, and clears the specifications
// of machines. It can be repeated after an error. No API server may use the store at the same time.
func Run(ctx context.Context, store kv.Store, o Options) error {
	for _, name := range o.AlsoNodes {
		if bad := validation.IsDNS1123Subdomain(name); len(bad) > 0 {
			return fmt.Errorf("node %q: %s", name, bad[0])
		}
	}
	value := restorehold.Value(o.Epoch)
	nodes := path.Join("/", o.Prefix, "minions")
	err := each(ctx, store, nodes+"/", typed(func(node *v1.Node) bool { return markNode(node, value) }))
	if err != nil {
		return err
	}
	for _, name := range o.AlsoNodes {
		if err := create(ctx, store, path.Join(nodes, name), placeholder(name, value, o.Now)); err != nil {
			return err
		}
	}
	err = each(ctx, store, path.Join("/", o.Prefix, "pods")+"/", typed(func(pod *v1.Pod) bool {
		return restorehold.HasIdentity(pod) && set(pod, restorehold.Held, value)
	}))
	if err != nil {
		return err
	}
	return each(ctx, store, path.Join("/", o.Prefix, v1alpha1.Group, v1alpha1.Resource)+"/", clearSpec)
}

// clearSpec removes the specification of a machine. A backup that was made during an upgrade has one, with
// which the machine would switch to the new release again after the restore.
func clearSpec(data []byte) ([]byte, error) {
	machine := &unstructured.Unstructured{}
	if err := machine.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	if spec, _, err := unstructured.NestedMap(machine.Object, "spec"); err != nil || len(spec) == 0 {
		return nil, err
	}
	machine.Object["spec"] = map[string]any{}
	machine.SetGeneration(machine.GetGeneration() + 1) // as an API server does
	return machine.MarshalJSON()
}

// markNode marks a node as unreported, and reports whether that has changed it. A fence in the backup
// does not count: the lost history may have ended it.
func markNode(node *v1.Node, value string) bool {
	if !set(node, restorehold.Unreported, value) {
		return false
	}
	restorehold.EndFence(node)
	return true
}

// set sets a label, and reports whether that has changed the object.
func set(obj metav1.Object, label, value string) bool {
	labels := obj.GetLabels()
	if labels[label] == value {
		return false
	}
	if labels == nil {
		labels = map[string]string{}
	}
	labels[label] = value
	obj.SetLabels(labels)
	return true
}

// placeholder returns the Node of a machine that the store does not know. No pods are scheduled to it.
func placeholder(name, value string, now time.Time) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: uuid.NewUUID(), CreationTimestamp: metav1.NewTime(now.Truncate(time.Second)),
			Labels:      map[string]string{restorehold.Unreported: value},
			Annotations: map[string]string{restorehold.Placeholder: ""},
		},
		Spec: v1.NodeSpec{Unschedulable: true},
	}
}

// create stores an object, unless the store has one with its key.
func create(ctx context.Context, store kv.Store, key string, obj runtime.Object) error {
	data, err := encode(obj)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if _, err := store.Put(ctx, key, data, 0, 0); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// typed returns a change of stored objects of a type in Kubernetes, from one of objects in memory that reports
// whether it has changed its argument.
func typed[T any, P interface {
	*T
	runtime.Object
}](change func(P) bool) func(data []byte) ([]byte, error) {
	return func(data []byte) ([]byte, error) {
		obj := P(new(T))
		if err := decode(data, obj); err != nil || !change(obj) {
			return nil, err
		}
		return encode(obj)
	}
}

// each calls change for all objects whose keys begin with prefix, and writes what it returns, unless that is
// nil.
func each(ctx context.Context, store kv.Store, prefix string, change func(data []byte) ([]byte, error)) error {
	next := prefix
	for next != "" {
		page, err := store.Range(ctx, kv.RangeOptions{Prefix: prefix, Start: next, Limit: pageSize})
		if err != nil {
			return fmt.Errorf("read %s: %w", prefix, err)
		}
		next = ""
		if n := len(page.Items); int64(n) < page.Count && n > 0 {
			next = page.Items[n-1].Key + "\x00"
		}
		var changes []kv.Change
		for _, item := range page.Items {
			if bytes.HasPrefix(item.Value, []byte("k8s:enc:")) {
				return fmt.Errorf("%s: %w", item.Key, errEncrypted)
			}
			data, err := change(item.Value)
			if err != nil {
				return fmt.Errorf("%s: %w", item.Key, err)
			}
			if data != nil {
				changes = append(changes, kv.Change{Key: item.Key, Expect: item.ModRevision, Value: data})
			}
		}
		if err := writeAll(ctx, store, changes); err != nil {
			return err
		}
	}
	return nil
}

var errChanged = errors.New("another program uses the store")

// writeAll writes all changes, in several writes if they are large.
func writeAll(ctx context.Context, store kv.Store, changes []kv.Change) error {
	for len(changes) > 0 {
		n, size := 1, len(changes[0].Value)
		for ; n < len(changes) && size+len(changes[n].Value) <= maxBytes; n++ {
			size += len(changes[n].Value)
		}
		result, err := store.WriteAll(ctx, changes[:n])
		if err == nil && !result.OK {
			err = errChanged
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", changes[0].Key, err)
		}
		changes = changes[n:]
	}
	return nil
}

// decode decodes a stored object, which is in protobuf or JSON.
func decode(data []byte, into runtime.Object) error {
	_, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, into)
	return err
}

// encode returns an object in the form in which Kubernetes stores it.
func encode(obj runtime.Object) ([]byte, error) {
	s := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	return runtime.Encode(scheme.Codecs.EncoderForVersion(s, v1.SchemeGroupVersion), obj)
}

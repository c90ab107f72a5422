// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	kjson "sigs.k8s.io/json"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/wire"
)

// Codec returns the codec for the stored objects of a resource: row.Codec if it is set, or else one
// that uses Kubernetes' protobuf envelope in the storage version.
func Codec(row *resource.Row) store.Codec {
	if row.Codec != nil {
		return row.Codec
	}
	gv := schema.GroupVersion{Group: row.Group, Version: row.Version}
	return &envelopeCodec{
		row: row, convert: newConvertor(row, nil),
		header:  wire.NewHeader(gv.String(), row.Kind),
		hollows: newHollows(row.New()),
	}
}

// envelopeCodec stores objects as protobuf envelopes, which begin with "k8s\0". It can also read
// JSON.
type envelopeCodec struct {
	row     *resource.Row
	convert *convertor
	header  wire.Header
	hollows func(store.Object) bool
}

// protoObject has the methods of generated API types.
type protoObject interface {
	wire.Message
	Unmarshal([]byte) error
}

// Lossy implements store.Codec.
func (*envelopeCodec) Lossy() bool { return false }

// Encode encodes obj without its resourceVersion, which obj keeps. It sets empty lists and maps in
// obj to nil, because the encoding does not distinguish them and decoding returns nil.
func (c *envelopeCodec) Encode(obj store.Object) ([]byte, error) {
	message, ok := obj.(wire.Message)
	if !ok {
		return nil, fmt.Errorf("encode %T: not a protobuf type", obj)
	}
	if c.hollows(obj) && c.row.Default != nil {
		c.row.Default(obj) // decoding would apply the defaults too
	}
	rv := obj.GetResourceVersion()
	obj.SetResourceVersion("")
	data, err := c.header.Marshal(message)
	obj.SetResourceVersion(rv)
	return data, err
}

// Decode reads an object stored in any version of the resource.
func (c *envelopeCodec) Decode(data []byte, rev int64) (store.Object, error) {
	obj, err := c.decode(data)
	if err != nil {
		return nil, err
	}
	complete(c.row, obj)
	obj.SetResourceVersion(revision(rev))
	return obj, nil
}

// complete sets fields that older servers did not store, with the functions Default and Restore of
// the kind table's row.
func complete(row *resource.Row, obj store.Object) {
	if row.Default != nil {
		row.Default(obj)
	}
	if row.Restore != nil {
		row.Restore(obj)
	}
}

func (c *envelopeCodec) decode(data []byte) (store.Object, error) {
	if !wire.IsEnvelope(data) {
		return c.decodeJSON(data)
	}
	e, err := wire.Parse(data)
	if err := notEnvelope(data, err); err != nil {
		return nil, err
	}
	form, err := c.formOf(schema.FromAPIVersionAndKind(e.APIVersion, e.Kind))
	if err != nil {
		return nil, err
	}
	obj := form.New()
	message, ok := obj.(protoObject)
	if !ok {
		return nil, fmt.Errorf("decode %T: not a protobuf type", obj)
	}
	if err := message.Unmarshal(e.Raw); err != nil {
		return nil, err
	}
	return toStorage(obj, form)
}

// notEnvelope returns the error that Kubernetes would return for an invalid envelope, or nil if the
// envelope is valid. err is the error of package wire's parser.
func notEnvelope(data []byte, err error) error {
	raw := data[len(wire.Prefix):]
	if len(raw) == 0 {
		return errors.New("empty body")
	}
	if err == nil {
		return nil
	}
	return cmp.Or((&runtime.Unknown{}).Unmarshal(raw), err)
}

// encrypted is the prefix of encrypted values. Only a server with the key can read them.
const encrypted = "k8s:enc:"

func (c *envelopeCodec) decodeJSON(data []byte) (store.Object, error) {
	if bytes.HasPrefix(data, []byte(encrypted)) {
		return nil, store.ErrEncrypted
	}
	said, err := serializer.DefaultMetaFactory.Interpret(data)
	if err != nil {
		return nil, err
	}
	form, err := c.formOf(*said)
	if err != nil {
		return nil, err
	}
	obj := form.New()
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, obj); err != nil {
		return nil, err
	}
	return toStorage(obj, form)
}

// formOf returns the form of stored bytes that declare the kind said. If they declare no apiVersion
// or kind, those of the resource are used.
func (c *envelopeCodec) formOf(said schema.GroupVersionKind) (resource.StoredForm, error) {
	own, kind := resource.StoredForm{New: c.row.New}, c.row.GroupVersionKind()
	if said.Kind == "" {
		said.Kind = kind.Kind
	}
	if said.Version == "" && said.Group == "" {
		said.Group, said.Version = kind.Group, kind.Version
	}
	if said == kind {
		return own, nil
	}
	if form, ok := c.convert.form(said); ok {
		return form, nil
	}
	switch scheme := c.row.Scheme; {
	case scheme != nil && !scheme.Recognizes(said):
		return own, runtime.NewNotRegisteredErrForKind(scheme.Name(), said)
	case said.GroupKind() != kind.GroupKind():
		return own, fmt.Errorf("converting (%s.%s) to (%s): unknown conversion", said.Version, said.Kind,
			resource.InternalName(kind))
	}
	// Kubernetes may have stored the object in an older version that is no longer served. All
	// versions of a kind use the same field numbers, except for versions in StoredForms.
	return own, nil
}

// toStorage converts an object in a stored form to the resource's own type, and clears its
// apiVersion and kind.
func toStorage(obj store.Object, form resource.StoredForm) (store.Object, error) {
	if form.ToStorage != nil {
		var err error
		if obj, err = form.ToStorage(obj); err != nil {
			return nil, err
		}
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return obj, nil
}

// Attrs returns a function that extracts from an object the labels and selectable fields, which
// selectors look at.
func Attrs(row *resource.Row) func(store.Object) store.Attrs {
	return func(obj store.Object) store.Attrs {
		var set fields.Set
		if row.Fields != nil {
			set = row.Fields(obj)
		}
		if set == nil {
			set = make(fields.Set, 2)
		}
		set["metadata.name"] = obj.GetName()
		if row.Namespaced {
			set["metadata.namespace"] = obj.GetNamespace()
		}
		return store.Attrs{Labels: labels.Set(obj.GetLabels()), Fields: set}
	}
}

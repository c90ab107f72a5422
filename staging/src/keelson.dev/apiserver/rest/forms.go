// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/table"
	"keelson.dev/apiserver/transcode"
	"keelson.dev/apiserver/wire"
)

// view encodes the stored objects of one resource in one served version, either whole or as
// metadata only. Most of these encodings are cached with the records.
type view struct {
	// What is encoded.

	row     *resource.Row
	version *resource.Version // nil means the storage version
	gvk     schema.GroupVersionKind
	listGVK schema.GroupVersionKind
	dynamic bool // objects have no Go type, and their encoded bytes contain their kind

	jsonHead []byte // `"kind":"K","apiVersion":"V",`, inserted into objects with a Go type
	header   wire.Header
	stored   wire.Header // header of envelopes in the store
	// program converts stored bytes to JSON. It is nil if objects have to be decoded.
	program   func() *transcode.Program
	cells     func() func(data []byte) (resource.Object, bool) // decodes the fields that a row of a Table shows
	buffers   *pools
	formJSON  store.Form
	formProto store.Form

	frames frames // recent events of this view's watches
}

func newView(row *resource.Row, version string, types *transcode.Types, buffers *pools) *view {
	v := &view{
		row:     row,
		buffers: buffers,
		gvk:     schema.GroupVersionKind{Group: row.Group, Version: version, Kind: row.Kind},
		listGVK: schema.GroupVersionKind{Group: row.Group, Version: version, Kind: row.ListKind},
	}
	if v.listGVK.Kind == "" {
		v.listGVK.Kind = row.Kind + "List"
	}
	for i := range row.Versions {
		if row.Versions[i].Name == version && version != row.Version {
			v.version = &row.Versions[i]
		}
	}
	apiVersion := v.gvk.GroupVersion().String()
	if row.New != nil {
		_, v.dynamic = row.New().(*unstructured.Unstructured)
	}
	v.jsonHead = fmt.Appendf(nil, `"kind":%q,"apiVersion":%q`, v.gvk.Kind, apiVersion)
	v.header = wire.NewHeader(apiVersion, row.Kind)
	v.stored = wire.NewHeader(row.GroupVersionKind().GroupVersion().String(), row.Kind)
	v.cells = registry.Parts(row, types, table.CellPaths(row)...)
	v.program = sync.OnceValue(func() *transcode.Program {
		if row.Codec != nil || row.New == nil {
			return nil
		}
		p, err := types.Program(row.New())
		if err != nil {
			return nil // objects of this type have to be decoded
		}
		return p
	})
	v.formJSON = store.Form{MediaType: negotiate.JSON, Variant: version}
	v.formProto = store.Form{MediaType: negotiate.Protobuf, Variant: version}
	return v
}

// object returns the record's object in the view's version. The object may be shared and must not
// be modified. If it has a Go type, its TypeMeta is empty.
func (v *view) object(rec *store.Record) (resource.Object, error) {
	obj, err := rec.Read()
	if err != nil || v.version == nil || v.version.FromStorage == nil {
		return obj, err
	}
	if obj, err = rec.Object(); err != nil {
		return nil, err
	}
	return v.version.FromStorage(obj)
}

// empty returns an empty object of the version in which the resource is viewed.
func (v *view) empty() (resource.Object, error) {
	obj := v.row.New()
	if v.row.FillEmpty != nil {
		v.row.FillEmpty(obj)
	}
	if v.version == nil || v.version.FromStorage == nil {
		return obj, nil
	}
	return v.version.FromStorage(obj)
}

// item returns the record's object as JSON, in the form that lists contain: without kind and
// apiVersion if the object has a Go type.
func (v *view) item(rec *store.Record) ([]byte, error) {
	return rec.Encoded(v.formJSON, v.encodeJSON)
}

// appendItem appends what item returns. It uses the encoding that the record keeps, if there is
// one, but does not make the record keep one.
func (v *view) appendItem(dst []byte, rec *store.Record) ([]byte, error) {
	if item, ok := rec.Remembered(v.formJSON); ok {
		return append(dst, item...), nil
	}
	return v.appendJSON(dst, rec)
}

func (v *view) encodeJSON(rec *store.Record) ([]byte, error) {
	return v.buffers.made(func(dst []byte) ([]byte, error) { return v.appendJSON(dst, rec) })
}

// appendJSON encodes as JSON and appends the object that item returns. It converts the stored bytes
// if possible.
func (v *view) appendJSON(dst []byte, rec *store.Record) ([]byte, error) {
	if v.version == nil || v.version.FromStorage == nil {
		if out, ok := v.transcode(dst, rec, (*transcode.Program).Append); ok {
			return out, nil
		}
	}
	obj, err := v.object(rec)
	if err != nil {
		return nil, err
	}
	var item []byte
	if u, ok := obj.(*unstructured.Unstructured); ok {
		if u.GroupVersionKind() != v.gvk {
			u = &unstructured.Unstructured{Object: shallow(u.Object)}
			u.SetGroupVersionKind(v.gvk)
		}
		item, err = marshalJSON(u.Object)
	} else {
		item, err = marshalJSON(obj)
	}
	return append(dst, item...), err
}

// transcode calls a method of the view's program, which appends the JSON of the stored bytes. It
// returns false if the program cannot convert them.
func (v *view) transcode(dst []byte, rec *store.Record,
	method func(p *transcode.Program, dst, raw []byte, revision string) ([]byte, bool)) (out []byte, ok bool) {
	program := v.program()
	if program == nil {
		return dst, false
	}
	out = dst
	rec.Use(func(data []byte) {
		if raw, is := v.stored.Open(data); is {
			out, ok = method(program, dst, raw, revision(rec.Revision))
		}
	})
	return out, ok
}

func shallow(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// marshalJSON encodes v as JSON without the newline that an encoder adds.
func marshalJSON(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// appendObject appends the object as JSON, with kind and apiVersion.
func (v *view) appendObject(dst []byte, rec *store.Record) ([]byte, error) {
	item, err := v.item(rec)
	if err != nil {
		return nil, err
	}
	if v.dynamic {
		return append(dst, item...), nil
	}
	return appendWithKind(dst, v.jsonHead, item), nil
}

// appendWithKind appends the JSON object item with head inserted before its first member.
func appendWithKind(dst, head, item []byte) []byte {
	dst = append(dst, '{')
	dst = append(dst, head...)
	if len(item) > 2 {
		dst = append(dst, ',')
	}
	return append(dst, item[1:]...)
}

// proto returns the record's object in a protobuf envelope.
func (v *view) proto(rec *store.Record) ([]byte, error) {
	return rec.Encoded(v.formProto, v.encodeProto)
}

func (v *view) encodeProto(rec *store.Record) ([]byte, error) {
	var out []byte
	if v.splice(rec, func(item wire.Item) {
		out = v.header.AppendItem(make([]byte, 0, v.header.Size(item.Size())), &item)
	}) {
		return out, nil
	}
	obj, err := v.object(rec)
	if err != nil {
		return nil, err
	}
	message, ok := obj.(wire.Message)
	if !ok {
		return nil, negotiate.NotAcceptable([]string{negotiate.JSON, negotiate.YAML})
	}
	return v.header.Marshal(message)
}

// splice calls use with the stored bytes and the resourceVersion inserted in them. It returns
// false, without calling use, if the stored bytes are not in the view's version.
func (v *view) splice(rec *store.Record, use func(item wire.Item)) (ok bool) {
	if v.row.Codec != nil || v.version != nil && v.version.FromStorage != nil {
		return false
	}
	rec.Use(func(data []byte) {
		var item wire.Item
		if item, ok = v.header.Splice(data, rec.Revision); ok {
			use(item) // item is passed by value, so that it stays on the stack
		}
	})
	return ok
}

// metadata returns the record's object as a PartialObjectMetadata, without kind and apiVersion.
func (v *view) metadata(rec *store.Record) (*metav1.PartialObjectMetadata, error) {
	obj, err := rec.Read()
	if err != nil {
		return nil, err
	}
	p := partial(obj)
	if len(v.row.HiddenAnnotations) > 0 {
		p.Annotations = maps.Clone(p.Annotations)
		for _, name := range v.row.HiddenAnnotations {
			delete(p.Annotations, name)
		}
	}
	return p, nil
}

// partial returns obj's metadata as a PartialObjectMetadata, which shares memory with obj.
func partial(obj metav1.Object) *metav1.PartialObjectMetadata {
	if a, ok := obj.(metav1.ObjectMetaAccessor); ok {
		if m, ok := a.GetObjectMeta().(*metav1.ObjectMeta); ok {
			return &metav1.PartialObjectMetadata{ObjectMeta: *m}
		}
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: obj.GetName(), GenerateName: obj.GetGenerateName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
		ResourceVersion: obj.GetResourceVersion(), Generation: obj.GetGeneration(),
		CreationTimestamp: obj.GetCreationTimestamp(),
		DeletionTimestamp: obj.GetDeletionTimestamp(), DeletionGracePeriodSeconds: obj.GetDeletionGracePeriodSeconds(),
		Labels: obj.GetLabels(), Annotations: obj.GetAnnotations(), OwnerReferences: obj.GetOwnerReferences(),
		Finalizers: obj.GetFinalizers(), ManagedFields: obj.GetManagedFields(),
	}}
}

// partialForm returns the store.Form for a record's metadata in a version of meta.k8s.io.
func partialForm(mediaType, metaVersion string) store.Form {
	return store.Form{MediaType: mediaType, Variant: "metadata/" + metaVersion}
}

// partialJSON returns the record's metadata as a PartialObjectMetadata in JSON, with kind and
// apiVersion of the given version of meta.k8s.io.
func (v *view) partialJSON(rec *store.Record, metaVersion string) ([]byte, error) {
	return rec.Encoded(partialForm(negotiate.JSON, metaVersion), func(rec *store.Record) ([]byte, error) {
		return v.encodePartial(rec, metaVersion)
	})
}

// appendPartial appends what partialJSON returns. It does not make the record keep the encoding.
func (v *view) appendPartial(dst []byte, rec *store.Record, metaVersion string) ([]byte, error) {
	if item, ok := rec.Remembered(partialForm(negotiate.JSON, metaVersion)); ok {
		return append(dst, item...), nil
	}
	return v.makePartial(dst, rec, metaVersion)
}

func (v *view) encodePartial(rec *store.Record, metaVersion string) ([]byte, error) {
	return v.buffers.made(func(dst []byte) ([]byte, error) { return v.makePartial(dst, rec, metaVersion) })
}

func (v *view) makePartial(dst []byte, rec *store.Record, metaVersion string) ([]byte, error) {
	head := append(dst, `{"kind":"PartialObjectMetadata","apiVersion":"`+metav1.GroupName+`/`+metaVersion+
		`","metadata":`...)
	if len(v.row.HiddenAnnotations) == 0 {
		if out, ok := v.transcode(head, rec, (*transcode.Program).AppendMetadata); ok {
			return append(out, '}'), nil
		}
	}
	p, err := v.metadata(rec)
	if err != nil {
		return nil, err
	}
	p.TypeMeta = metav1.TypeMeta{APIVersion: metav1.GroupName + "/" + metaVersion, Kind: "PartialObjectMetadata"}
	item, err := marshalJSON(p)
	return append(dst, item...), err
}

// partialProto returns the record's metadata as a PartialObjectMetadata in a protobuf envelope. Its
// field 1 is field 1 of the object.
func (v *view) partialProto(rec *store.Record, metaVersion string) ([]byte, error) {
	return rec.Encoded(partialForm(negotiate.Protobuf, metaVersion), func(rec *store.Record) ([]byte, error) {
		p, err := v.metadata(rec)
		if err != nil {
			return nil, err
		}
		return wire.NewHeader(metav1.GroupName+"/"+metaVersion, "PartialObjectMetadata").Marshal(p)
	})
}

// indent indents JSON for people.
func indent(b []byte) []byte {
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSpace(b), "", "  "); err != nil {
		return b
	}
	return out.Bytes()
}

// yamlOf converts JSON to YAML.
func yamlOf(b []byte) ([]byte, error) { return yaml.JSONToYAML(b) }

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"reflect"
	"sync"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/transcode"
	"keelson.dev/apiserver/wire"
)

// Part returns a function that decodes only the given paths of a resource's stored objects. The
// function returns false if the object has to be decoded whole: if there are no paths, if types
// does not support the object's type, or if the stored bytes are not an envelope of the storage
// version. It does not apply defaults, because stored objects have them.
func Part(row *resource.Row, types *transcode.Types, paths ...string) func(data []byte) (store.Object, bool) {
	read := partReader(row, types, paths)
	return func(data []byte) (store.Object, bool) {
		obj := row.New()
		return obj, read(data, obj)
	}
}

// Parts is like Part, for many objects in sequence. It returns a function that makes decoders. Each
// decoder decodes into one object, which is valid until the decoder's next call. This saves
// allocating a large object for each call, which is most of the cost of decoding a part.
func Parts(row *resource.Row, types *transcode.Types, paths ...string) func() func(data []byte) (store.Object, bool) {
	read := partReader(row, types, paths)
	lists := sync.OnceValue(func() [][]int { return listsOn(reflect.TypeOf(row.New()).Elem(), paths) })
	return func() func(data []byte) (store.Object, bool) {
		var r *recycler // allocated at the first call
		return func(data []byte) (store.Object, bool) {
			if r == nil {
				r = newRecycler(row.New(), lists())
			}
			r.empty()
			return r.obj, read(data, r.obj)
		}
	}
}

// partReader is like Part, but the function that it returns decodes into the object that its caller
// passes, which must be empty.
func partReader(row *resource.Row, types *transcode.Types, paths []string) func(data []byte,
	into resource.Object) bool {
	header := wire.NewHeader(row.GroupVersionKind().GroupVersion().String(), row.Kind)
	picker := sync.OnceValue(func() *transcode.Picker {
		if row.Codec != nil || row.New == nil || len(paths) == 0 {
			return nil
		}
		p, err := types.Picker(row.New(), paths...)
		if err != nil {
			return nil // single fields of this type cannot be decoded from protobuf
		}
		return p
	})
	buffers := sync.Pool{New: func() any { return new([]byte) }}
	return func(data []byte, into resource.Object) bool {
		p := picker()
		if p == nil {
			return false
		}
		raw, ok := header.Open(data)
		if !ok {
			return false
		}
		buf := buffers.Get().(*[]byte)
		defer buffers.Put(buf)
		part, ok := p.Append((*buf)[:0], raw)
		*buf = part[:0]
		message, isProto := into.(protoObject)
		return ok && isProto && message.Unmarshal(part) == nil
	}
}

// Peek returns a function that computes from stored bytes what Attrs computes from the decoded
// object. It returns nil if the computation needs the whole object.
func Peek(row *resource.Row, types *transcode.Types) func(data []byte) (store.Attrs, bool) {
	if row.Peek != nil {
		return row.Peek
	}
	if row.Codec != nil || row.Fields != nil && row.FieldPaths == nil {
		return nil
	}
	paths := append([]string{"metadata.name", "metadata.namespace", "metadata.labels"}, row.FieldPaths...)
	read, attrs := partReader(row, types, paths), Attrs(row)
	objects := sync.Pool{New: func() any { return row.New() }}
	return func(data []byte) (store.Attrs, bool) {
		obj := objects.Get().(resource.Object)
		if !read(data, obj) {
			return store.Attrs{}, false
		}
		found := attrs(obj)
		if empty, ok := obj.(interface{ Reset() }); ok {
			empty.Reset()
			objects.Put(obj)
		}
		return found, true
	}
}

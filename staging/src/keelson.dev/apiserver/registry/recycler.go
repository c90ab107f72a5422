// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"reflect"
	"slices"
	"strings"

	"keelson.dev/apiserver/resource"
)

// recycler empties an object for the next, and keeps the room of its lists.
type recycler struct {
	obj   resource.Object
	reset func()        // nil: nothing is decoded into it
	v     reflect.Value // the object
	room  reflect.Value // of a struct like it, for the lists meanwhile
	lists [][]int
}

func newRecycler(obj resource.Object, lists [][]int) *recycler {
	r := &recycler{obj: obj, v: reflect.ValueOf(obj).Elem(), lists: lists}
	r.room = reflect.New(r.v.Type()).Elem()
	if m, ok := obj.(interface{ Reset() }); ok {
		r.reset = m.Reset
	}
	return r
}

func (r *recycler) empty() {
	if r.reset == nil {
		return
	}
	for _, at := range r.lists {
		r.room.FieldByIndex(at).Set(r.v.FieldByIndex(at))
	}
	r.reset()
	for _, at := range r.lists {
		list := r.v.FieldByIndex(at)
		list.Set(r.room.FieldByIndex(at))
		list.SetLen(0) // what is appended overwrites what was there
	}
}

// listsOn are the first lists on paths, whose steps are names as in JSON: their indices, as
// reflect has them.
func listsOn(typ reflect.Type, paths []string) [][]int {
	var lists [][]int
	for _, path := range paths {
		at := listOn(typ, strings.Split(path, "."))
		if at != nil && !slices.ContainsFunc(lists, func(l []int) bool { return slices.Equal(l, at) }) {
			lists = append(lists, at)
		}
	}
	return lists
}

func listOn(typ reflect.Type, path []string) (at []int) {
	for _, name := range path {
		if typ.Kind() != reflect.Struct {
			return nil
		}
		f, ok := typ.FieldByNameFunc(func(field string) bool {
			f, _ := typ.FieldByName(field)
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return tag == name
		})
		if !ok {
			return nil
		}
		at, typ = append(at, f.Index...), f.Type
		if typ.Kind() == reflect.Slice {
			return at
		}
	}
	return nil
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"reflect"
	"slices"
	"strings"

	"keelson.dev/apiserver/resource"
)

// recycler empties an object for reuse, and keeps the memory of its lists.
type recycler struct {
	obj   resource.Object
	reset func()          // nil if the object has no Reset method
	lists []reflect.Value // lists of the object
	room  []reflect.Value // has the object's lists while the object is reset
}

func newRecycler(obj resource.Object, lists [][]int) *recycler {
	r := &recycler{obj: obj}
	if m, ok := obj.(interface{ Reset() }); ok {
		r.reset = m.Reset
	}
	for _, at := range lists {
		list := reflect.ValueOf(obj).Elem().FieldByIndex(at)
		r.lists = append(r.lists, list)
		r.room = append(r.room, reflect.New(list.Type()).Elem())
	}
	return r
}

func (r *recycler) empty() {
	if r.reset == nil {
		return
	}
	for i, list := range r.lists {
		r.room[i].Set(list)
	}
	r.reset()
	for i, list := range r.lists {
		list.Set(r.room[i])
		list.SetLen(0) // new items overwrite the old ones in the list's memory
	}
}

// listsOn returns the first list on each path, as a field index for package reflect. Paths consist
// of JSON names.
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

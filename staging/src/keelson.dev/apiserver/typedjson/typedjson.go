// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package typedjson decodes JSON into the Go types of the API. Unmarshal returns what the library
// sigs.k8s.io/json returns, but is several times as fast for valid documents. The API server
// decodes the body of every write with it.
//
// For each Go type, the package makes a plan of how to read it, once. It reads a document in one
// pass, as long as the document contains only what the library accepts without an error or a
// finding. Anything else ends the pass, and the library reads the document from the start: syntax
// errors, unknown or repeated fields, numbers in an unexpected form, invalid UTF-8, deep nesting,
// unsupported types. So results and messages are always those of the library. If the library has to
// read a document, the additional cost is at most the one pass.
//
// Decoded values share no memory with the document. The package does not decode into interfaces,
// and it does not merge into objects that already have values. Its functions are safe for
// concurrent use.
package typedjson

import (
	"reflect"

	"sigs.k8s.io/json"
)

// Unmarshal decodes data into the zero value that its second argument points to. If strict is set,
// findings contains an error for each unknown or repeated field. err comes from the library.
func Unmarshal(data []byte, into any, strict bool) (findings []error, err error) {
	if Read(data, into) {
		return nil, nil
	}
	if v := reflect.ValueOf(into); v.Kind() == reflect.Pointer && !v.IsNil() {
		v.Elem().SetZero()
	}
	if strict {
		return json.UnmarshalStrict(data, into)
	}
	return nil, json.UnmarshalCaseSensitivePreserveInts(data, into)
}

// Read decodes data in one pass, without the library. into is a pointer to a zero value. Read
// returns false if the library has to read the document; into is then in an undefined state.
func Read(data []byte, into any) bool {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return false
	}
	v = v.Elem()
	recent := recentPool.Get().(*recentTexts)
	defer recentPool.Put(recent)
	r := reader{data: data, recent: recent}
	r.space()
	if !r.value(planOf(v.Type()), v) {
		return false
	}
	r.space()
	return r.at == len(data)
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package typedjson decodes JSON into the Go types of the API. Unmarshal returns what
// sigs.k8s.io/json returns, several times as fast for valid documents. The API server decodes the
// body of every write.
//
// How to read a Go type is compiled into a plan once. A document is read in one pass, as long as it
// contains only what the library accepts without an error or a finding. Anything else ends the
// pass, and the library reads the document from the start: syntax errors, unknown or repeated
// fields, numbers in an unexpected form, invalid UTF-8, deep nesting, unsupported types. So results
// and messages are always the library's. For a document that the library has to read, the
// additional cost is at most the one pass.
//
// Decoded values share no memory with the document. The package does not decode into interfaces,
// and it does not merge into objects that already have values. Its functions are safe for
// concurrent use.
package typedjson

import (
	"reflect"

	"sigs.k8s.io/json"
)

// Unmarshal decodes data into into, a pointer to a zero value. If strict is set, findings contains
// an error for each unknown or repeated field. err is an error of the library.
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

// Read decodes data in the one pass, without the library. into is a pointer to a zero value. Read
// returns false if the document needs the library; into is then in an undefined state.
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

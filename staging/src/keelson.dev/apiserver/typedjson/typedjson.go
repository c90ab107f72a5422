// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package typedjson reads JSON into the Go types of the API. Unmarshal returns
// what sigs.k8s.io/json returns, several times as fast for documents in which
// that finds nothing to say: a write pays for its body once per request.
//
// How a Go type is read is found out once and kept. A document is then read in
// one pass, and only as long as it is plainly what the library takes without an
// error or a finding. Anything else, be it wrong or merely rare (a syntax error,
// an unknown or repeated field, a number in another form than the type's, text
// that is not UTF-8, deep nesting, a type that is not known here), ends the pass,
// and the library reads the document from the start. Results and messages are
// therefore the library's, always; a document that it has to read costs more than
// before by at most the one pass.
//
// What is read shares no memory with the document. The package does not read into
// interfaces, and it does not merge into objects that hold something already.
package typedjson

import (
	"reflect"

	"sigs.k8s.io/json"
)

// Unmarshal reads data into into, a pointer to a zero value. What strict reading
// finds (unknown and repeated fields) is returned beside err if strict says so, and
// ignored if not.
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

// Read is the one pass alone, for those who know another way too. It reports false,
// with into in any state, for what Unmarshal leaves to the library.
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

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package openapi has the OpenAPI definitions of the built-in kinds, which hack/generate-openapi.sh
// generates from k8s.io/api. The binary contains them in compressed form.
package openapi

import (
	"bytes"
	"compress/gzip"
	_ "embed" // embeds the definitions
	"fmt"
	"io"
)

//go:generate ../../../hack/generate-openapi.sh

//go:embed v2.json.gz
var v2 []byte

//go:embed v3.json.gz
var v3 []byte

// Source returns the OpenAPI definitions of the built-in kinds. Each call decompresses them.
type Source struct{}

// Definitions returns the definitions for version 2 or 3 of OpenAPI, as a JSON object of schemas by
// name.
func (Source) Definitions(version int) ([]byte, error) {
	var packed []byte
	switch version {
	case 2:
		packed = v2
	case 3:
		packed = v3
	default:
		return nil, fmt.Errorf("openapi version %d: must be 2 or 3", version)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

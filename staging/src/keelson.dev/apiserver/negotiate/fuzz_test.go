// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package negotiate_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"keelson.dev/apiserver/negotiate"
)

// FuzzAccept parses arbitrary Accept headers. The chosen type must have been offered; a header that
// cannot be satisfied must be answered with 406.
func FuzzAccept(f *testing.F) {
	for _, header := range []string{
		"application/json;as=Table;g=meta.k8s.io;v=v1,application/json", "*/*", "application/*",
		"application/vnd.kubernetes.protobuf;stream=watch",
		"application/json;q=0.1,application/yaml;q=nan", ";;;=,,,", "application/json;as=" +
			strings.Repeat("x", 500), "application/json;pretty=1",
	} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		r := &http.Request{Header: http.Header{"Accept": {header}}}
		offer := negotiate.Standard()
		out, err := negotiate.Accept(r, offer)
		if err != nil {
			if apierrors.ReasonForError(err) != "NotAcceptable" {
				t.Errorf("%q: %v", header, err)
			}
			return
		}
		if !slices.Contains(offer.MediaTypes, out.MediaType) {
			t.Errorf("%q: chose %q", header, out.MediaType)
		}
	})
}

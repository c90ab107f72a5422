// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import "net/http"

type openAPIDocuments struct {
	d *documents
}

func (d *documents) serveOpenAPI(w http.ResponseWriter, r *http.Request) {
	WriteError(w, r, errNotFound())
}

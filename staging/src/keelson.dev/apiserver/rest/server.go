// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
)

// Server serves rows. It is safe for concurrent use.
type Server struct {
	cfg Config
}

// RowOptions are what a row added at run time brings along.
type RowOptions struct {
	// TypeConverter replaces the server's for this row.
	TypeConverter managedfields.TypeConverter
	Hooks         registry.Hooks
	// Connectors by subresource name.
	Connectors map[string]Connector
	// OpenAPI is the definition of the kind in each served version, as OpenAPI
	// v3 and v2 schemas in JSON; nil publishes a schema without fields.
	OpenAPI func(version string) (v3, v2 []byte, err error)
}

// New returns a server of cfg.Rows.
func New(cfg Config) (*Server, error) { panic("being written") }

// Add serves row from now on, in place of a row of the same group and resource.
func (s *Server) Add(row *resource.Row, options RowOptions) error { panic("being written") }

// Remove serves a resource no longer. Its watches end.
func (s *Server) Remove(gr schema.GroupResource) { panic("being written") }

// Registry returns the registry of a resource, or nil when it is not served or
// stores nothing.
func (s *Server) Registry(gr schema.GroupResource) *registry.Registry { panic("being written") }

// Row returns a served row, or nil.
func (s *Server) Row(gr schema.GroupResource) *resource.Row { panic("being written") }

// Serves reports whether path ("/api...", "/apis...", "/openapi...") is the
// server's: an API group and version it has rows of, or a discovery or OpenAPI
// document. What is not may be delegated (aggregation).
func (s *Server) Serves(path string) bool { panic("being written") }

// ServeHTTP answers the API's paths: /api, /apis, /openapi and below.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { panic("being written") }

// ObjectInterfaces is what admission plugins get to convert and default objects.
func (s *Server) ObjectInterfaces() admission.ObjectInterfaces { panic("being written") }

// WriteError answers r with err as a Status, in the content type r asks for.
func WriteError(w http.ResponseWriter, r *http.Request, err error) { panic("being written") }

// ServeAPI answers one POST.
func (c Creater) ServeAPI(w http.ResponseWriter, r *http.Request, req *Request) error {
	panic("being written")
}

// Decode reads r's body, at most the server's limit, into a new object made by
// into, honouring content type and fieldValidation.
func (req *Request) Decode(w http.ResponseWriter, r *http.Request, into runtime.Object) error {
	panic("being written")
}

// Respond answers with obj in the content type r asks for.
func (req *Request) Respond(w http.ResponseWriter, r *http.Request, status int, obj runtime.Object) error {
	panic("being written")
}

// Connect asks admission whether the user may connect (exec, attach, proxy ...).
func (req *Request) Connect(r *http.Request, options runtime.Object) error { panic("being written") }

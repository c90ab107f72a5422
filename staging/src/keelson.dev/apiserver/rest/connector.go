// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
)

// Connector answers the requests of one subresource, or of an ephemeral kind.
type Connector interface {
	// ServeAPI answers a request whose path, verb and namespace the server has
	// checked. An error it returns is written as a Status; after it has begun
	// to answer it returns nil. Admission is its own affair (Request.Connect),
	// but for a Creater.
	ServeAPI(w http.ResponseWriter, r *http.Request, req *Request) error
}

// ConnectorFunc is a function that is a Connector.
type ConnectorFunc func(w http.ResponseWriter, r *http.Request, req *Request) error

// ServeAPI calls f.
func (f ConnectorFunc) ServeAPI(w http.ResponseWriter, r *http.Request, req *Request) error {
	return f(w, r, req)
}

// Creater is a Connector for POST of one object which answers one object:
// bindings, evictions, tokens, reviews. The server decodes, sees to it that the
// object's namespace is the path's, runs admission and encodes. Whether the path has a
// namespace, and a name that can be, Create asks (Request.CheckKey) when it has
// judged the object.
type Creater struct {
	// New makes the object the body is decoded into, in the hub version.
	New func() runtime.Object
	// Create does the deed. obj has passed mutating admission; validate runs
	// the validating part and is called when obj is known to be well-formed.
	Create func(ctx context.Context, req *Request, obj runtime.Object, validate func(context.Context, runtime.Object) error, options *metav1.CreateOptions) (runtime.Object, error)
	// Default fills what the body leaves out; nil: nothing.
	Default func(runtime.Object)
	// Preconditions is set where the object's UID and times are not the server's
	// to set: they tell which object is meant.
	Preconditions bool
	// Status is the code of a success; 0: 201.
	Status int
}

// Request is what the server knows of a request it hands to a Connector.
type Request struct {
	Info *request.RequestInfo
	Row  *resource.Row
	// Version is the served version the path names.
	Version string
	// Kind is the kind the endpoint takes and gives.
	Kind            schema.GroupVersionKind
	Subresource     *resource.RowSub // nil for ephemeral kinds
	Namespace, Name string
	// Registry is the row's; nil for ephemeral kinds.
	Registry *registry.Registry

	server *Server
}

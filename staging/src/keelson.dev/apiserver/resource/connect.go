// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// ConnectFunc answers a request whose path, verb and namespace the server has already checked. If
// it returns an error, the server writes the error as a Status; once it has started to answer, it
// returns nil. It calls admission itself (Request.Connect).
type ConnectFunc func(w http.ResponseWriter, r *http.Request, req *Request) error

// Creator answers a POST of one object with one object: for example bindings, evictions, tokens and
// reviews. The server decodes the object, checks that its namespace is that of the path, runs
// mutating admission and encodes the result. The function Create checks the namespace and name in
// the path itself (Request.CheckKey), after it has validated the object.
type Creator struct {
	// New returns the empty object that the body is decoded into.
	New func() runtime.Object
	// Create handles the request. obj has passed mutating admission. Create must call validate,
	// which runs validating admission, after it has checked that obj is well-formed.
	Create func(ctx context.Context, req *Request, obj runtime.Object, validate ValidateFunc,
		options *metav1.CreateOptions) (runtime.Object, error)
	// Default fills the fields that the body leaves out. It may be nil.
	Default func(runtime.Object)
	// Preconditions reports whether the object's UID and times come from the client, because they
	// select the object that the request is about. Otherwise the server sets them.
	Preconditions bool
	// Status is the HTTP status of a success; 0 means 201.
	Status int
}

// ValidateFunc runs validating admission for an object.
type ValidateFunc = func(ctx context.Context, obj runtime.Object) error

// Request is a request to a Create or Connect function of a resource.
type Request struct {
	Gate
	Info *request.RequestInfo
	Row  *Row
	// Version is the served version in the path.
	Version string
	// Kind is the kind that the endpoint accepts and returns.
	Kind            schema.GroupVersionKind
	Subresource     *RowSub // nil for the resource itself
	Namespace, Name string
}

// Gate has the functions of the server that a ConnectFunc may call.
type Gate interface {
	// Connect runs admission for a connect request (exec, attach, proxy ...). options are the
	// request's options.
	Connect(r *http.Request, options runtime.Object) error
	// Streams returns an error if the client accepts only metadata (as=PartialObjectMetadata): the
	// response is a stream, which has no metadata. stream is the name of the stream's type in
	// Kubernetes' error message.
	Streams(r *http.Request, stream string) error
}

// CheckKey rejects a request that cannot refer to an object: one without a namespace if the
// resource is namespaced, one without a name, or one with a name that cannot be part of a path.
func (req *Request) CheckKey(name string) error {
	if err := req.Row.CheckNamespace(req.Namespace); err != nil {
		return err
	}
	if name == "" {
		return apierrors.NewBadRequest("Name parameter required.")
	}
	return CheckName(name)
}

// CheckNamespace rejects an empty namespace if the resource is namespaced.
func (k *Kind[O]) CheckNamespace(namespace string) error {
	if k.Namespaced && namespace == "" {
		return apierrors.NewBadRequest("Namespace parameter required.")
	}
	return nil
}

// CheckName rejects names that cannot be part of a path.
func CheckName(name string) error {
	if msgs := path.IsValidPathSegmentName(name); len(msgs) > 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", name, strings.Join(msgs, ";")))
	}
	return nil
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metascheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/typedjson"
	"keelson.dev/apiserver/wire"
)

const (
	// maxBody is the default limit on the size of a request body, in bytes.
	maxBody = 3 << 20
	// initialBodySize is the maximum number of bytes that are allocated for a body before any of it
	// has arrived, even if its Content-Length is larger. More memory is allocated as the body
	// arrives, because a client could announce a large body without sending it.
	initialBodySize = 64 << 10
)

// readBody returns the whole body of r, or an error if it is too large.
func (s *Server) readBody(r *http.Request) ([]byte, error) {
	limit := s.cfg.MaxBodyBytes
	if r.ContentLength > limit {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", limit))
	}
	if r.ContentLength >= 0 {
		return readLength(r.Body, int(r.ContentLength))
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err != nil {
		return nil, readError(err)
	}
	if int64(len(body)) > limit {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", limit))
	}
	return body, nil
}

// readBodyOf is readBody for a request whose body size is counted.
func (s *Server) readBodyOf(r *http.Request, t *target) ([]byte, error) {
	body, err := s.readBody(r)
	t.bodyRead, t.bodySize = err == nil, len(body)
	t.span.Sized("limitedReadBody", len(body), err)
	return body, err
}

// readLength reads n bytes, the length that the request declares.
func readLength(from io.Reader, n int) ([]byte, error) {
	body := make([]byte, min(n, initialBodySize))
	for read := 0; ; {
		more, err := io.ReadFull(from, body[read:])
		read += more
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // the body ends early
		}
		if err != nil || read == n {
			return body[:read], readError(err)
		}
		grow := min(n-read, read)
		body = slices.Grow(body, grow)[:read+grow]
	}
}

func readError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", tooLarge.Limit))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("read request body: %v", err))
}

// decoders decode request bodies in the media types of the API.
type decoders struct {
	json, yaml, strictJSON, strictYAML runtime.Decoder
}

func newDecoders(scheme *runtime.Scheme) decoders {
	serializer := func(yaml, strict bool) runtime.Decoder {
		return kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme, scheme,
			kjson.SerializerOptions{Yaml: yaml, Strict: strict})
	}
	return decoders{serializer(false, false), serializer(true, false), serializer(false, true), serializer(true, true)}
}

func (d decoders) pick(mediaType string, strict bool) runtime.Decoder {
	switch {
	case mediaType == negotiate.YAML && strict:
		return d.strictYAML
	case mediaType == negotiate.YAML:
		return d.yaml
	case strict:
		return d.strictJSON
	}
	return d.json
}

// decode decodes body into the argument into, an empty object of the given kind, and returns the
// kind that the body declares. Its version must be that of kind or one of versions. Depending on
// fieldValidation, the findings of strict decoding become warnings or an error.
func (s *Server) decode(r *http.Request, body []byte, kind schema.GroupVersionKind, into runtime.Object,
	fieldValidation string, versions []string) (*schema.GroupVersionKind, error) {
	mediaType, err := negotiate.ContentType(r, negotiate.Standard().MediaTypes)
	if err != nil {
		return nil, err
	}
	strict := fieldValidation != metav1.FieldValidationIgnore
	gvk, err := s.decodeAs(mediaType, body, kind, into, strict)
	var other *otherVersionError
	if errors.As(err, &other) {
		err = other.findings
	}
	if err != nil {
		findings, ok := runtime.AsStrictDecodingError(err)
		if !ok || fieldValidation == metav1.FieldValidationStrict {
			return nil, decodeError(err, kind, gvk, body)
		}
		registry.WarnStrict(r.Context(), findings.Errors())
	}
	if other != nil {
		return gvk, checkVersion(gvk.GroupVersion(), kind.GroupVersion())
	}
	if gvk.Kind != kind.Kind || gvk.Group != kind.Group && gvk.GroupVersion() != kind.GroupVersion() && into == nil {
		return nil, decodeError(fmt.Errorf("expected %s", kind.Kind), kind, gvk, body)
	}
	for _, v := range versions {
		if gvk.Version == v && gvk.Group == kind.Group {
			return gvk, nil
		}
	}
	return gvk, checkVersion(gvk.GroupVersion(), kind.GroupVersion())
}

// otherVersionError is the error for a body whose kind is right, but whose version or group is not
// one that the endpoint serves.
type otherVersionError struct{ findings error }

func (*otherVersionError) Error() string { return "another version of the kind" }

func checkVersion(have, want schema.GroupVersion) error {
	if have == want {
		return nil
	}
	return apierrors.NewBadRequest(
		fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", have, want))
}

func (s *Server) decodeAs(mediaType string, body []byte, kind schema.GroupVersionKind, into runtime.Object,
	strict bool) (*schema.GroupVersionKind, error) {
	if mediaType == negotiate.Protobuf {
		return s.decodeProto(body, kind, into)
	}
	decoder := s.decoders.pick(mediaType, strict)
	if u, ok := into.(*unstructured.Unstructured); ok {
		return decodeDynamic(decoder, body, kind, u)
	}
	if mediaType == negotiate.JSON {
		if gvk, err, ok := decodePlain(body, kind, into, strict); ok {
			return gvk, err
		}
	}
	obj, gvk, err := decoder.Decode(body, &kind, into)
	if _, isStrict := runtime.AsStrictDecodingError(err); err != nil && !isStrict {
		return gvk, err
	}
	if obj != into {
		if gvk.Kind == kind.Kind {
			return gvk, &otherVersionError{findings: err}
		}
		return gvk, fmt.Errorf("converting (%s) to (%s): unknown conversion", typeName(obj), resource.InternalName(kind))
	}
	return gvk, err
}

// decodePlain decodes a JSON body in one pass if the body declares the given kind. into is empty.
// For any other body it returns false and leaves into empty; the general decoder then finds the
// error.
func decodePlain(body []byte, kind schema.GroupVersionKind, into runtime.Object,
	strict bool) (gvk *schema.GroupVersionKind, findings error, ok bool) {
	odd, err := typedjson.Unmarshal(body, into, strict)
	if err != nil || into.GetObjectKind().GroupVersionKind() != kind {
		reflect.ValueOf(into).Elem().SetZero()
		return nil, nil, false
	}
	if len(odd) > 0 {
		findings = runtime.NewStrictDecodingError(odd)
	}
	return &kind, findings, true
}

func typeName(obj runtime.Object) string { return reflect.TypeOf(obj).Elem().String() }

// decodeDynamic decodes an object that has no Go type.
func decodeDynamic(decoder runtime.Decoder, body []byte, kind schema.GroupVersionKind,
	into *unstructured.Unstructured) (*schema.GroupVersionKind, error) {
	_, gvk, err := decoder.Decode(body, &kind, into)
	if _, isStrict := runtime.AsStrictDecodingError(err); err != nil && !isStrict {
		return gvk, err
	}
	for _, name := range []string{"kind", "apiVersion"} { // null is an error, but the fields may be missing
		if _, _, err := unstructured.NestedString(into.Object, name); err != nil {
			return gvk, err
		}
	}
	if into.GetKind() == "" || into.GetAPIVersion() == "" {
		into.SetGroupVersionKind(*gvk)
	}
	return gvk, err
}

func (s *Server) decodeProto(body []byte, kind schema.GroupVersionKind,
	into runtime.Object) (*schema.GroupVersionKind, error) {
	if len(body) == 0 {
		return nil, errors.New("empty data")
	}
	if !wire.IsEnvelope(body) {
		return nil, errors.New("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
	}
	if len(body) == len(wire.Prefix) {
		return nil, errors.New("empty body")
	}
	e, err := wire.Parse(body)
	if err != nil {
		if unknown := (&runtime.Unknown{}).Unmarshal(body[len(wire.Prefix):]); unknown != nil {
			return nil, unknown // Kubernetes returns this error instead of err
		}
		return nil, err
	}
	gvk := kind
	if e.Kind != "" {
		gvk.Kind = e.Kind
	}
	if e.APIVersion != "" {
		gv, err := schema.ParseGroupVersion(e.APIVersion)
		if err != nil {
			return nil, err
		}
		gvk.Group, gvk.Version = gv.Group, gv.Version
	}
	if known := gvk == kind || s.cfg.Scheme.Recognizes(gvk); !known {
		return &gvk, runtime.NewNotRegisteredErrForKind(s.cfg.Scheme.Name(), gvk)
	}
	message, ok := into.(interface{ Unmarshal([]byte) error })
	if !ok || gvk.Kind != kind.Kind {
		return &gvk, fmt.Errorf("converting (%s.%s) to (%s): unknown conversion", gvk.Version, gvk.Kind,
			resource.InternalName(kind))
	}
	return &gvk, message.Unmarshal(e.Raw)
}

// decodeError returns the error for a body that could not be decoded because of err. got is the
// kind that the body declares, and want is the kind of the endpoint.
func decodeError(err error, want schema.GroupVersionKind, got *schema.GroupVersionKind, body []byte) error {
	if got != nil && got.Kind != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", got.Kind,
			got.Version, want.Kind, err))
	}
	return apierrors.NewBadRequest(
		fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", want.Kind, err, summary(body)))
}

// summary returns the beginning of a body, for an error message.
func summary(body []byte) string {
	const limit = 30
	switch {
	case len(body) == 0:
		return "<empty>"
	case body[0] == '{' && len(body) > limit:
		return string(body[:limit]) + " ..."
	case body[0] == '{':
		return string(body)
	case len(body) > limit:
		return hex.EncodeToString(body[:limit]) + " ..."
	}
	return hex.EncodeToString(body)
}

// parameters decodes query parameters into options.
func parameters(query url.Values, options runtime.Object) error {
	if len(query) == 0 {
		return nil
	}
	if err := metascheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, options); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// query returns r's query parameters, or nil if r has none.
func query(r *http.Request) url.Values {
	if r.URL.RawQuery == "" {
		return nil
	}
	return r.URL.Query()
}

// invalidOptions returns the error for options with the validation errors errs, or nil if there are
// none.
func invalidOptions(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

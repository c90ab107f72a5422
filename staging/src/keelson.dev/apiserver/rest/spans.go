// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	metascheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/tracing"
)

// Names of the events that spans of requests record.
const (
	eventRead       = "About to Get from storage"
	eventConvert    = "About to convert to expected version"
	eventConverted  = "Conversion done"
	eventStore      = "About to store object in database"
	eventRecorded   = "Recorded the audit event"
	eventDelete     = "About to delete object from database"
	eventDeleted    = "Object deleted from database"
	eventRespond    = "About to write a response"
	eventResponded  = "Writing http response done"
	eventFirstBytes = "About to start writing response"
)

// maxUserAgent is the maximum number of bytes of the client's User-Agent in a span.
const maxUserAgent = 1024

// spanName returns the name of the span of a request, or "" if the request has none. A watch that
// begins with a list gets its span later, when its options are known.
func (t *target) spanName() string {
	if t.sub != nil && t.sub.Connects() {
		return ""
	}
	switch t.verb {
	case "create":
		return "Create"
	case "get":
		return "Get"
	case "list":
		return "List"
	case "update":
		return "Update"
	case "patch":
		return "Patch"
	case "delete", "deletecollection":
		return "Delete"
	}
	return ""
}

// trace begins the span of a request, t.span, and returns the request with it. It does nothing if
// the name is empty.
func (t *target) trace(r *http.Request, name string) *http.Request {
	if name == "" {
		return r
	}
	ctx, span := tracing.Start(r.Context(), name, func() []attribute.KeyValue { return t.attributes(r) })
	if span == nil {
		return r
	}
	t.span = span
	return r.WithContext(ctx)
}

func (t *target) attributes(r *http.Request) []attribute.KeyValue {
	agent, client := utilnet.GetHTTPClient(r), "unknown"
	if len(agent) > maxUserAgent {
		agent = agent[:maxUserAgent] + "...TRUNCATED"
	}
	if ip := utilnet.GetClientIP(r); ip != nil {
		client = ip.String()
	}
	var all []attribute.KeyValue
	for _, a := range [][2]string{
		{"accept", r.Header.Get("Accept")}, {"client", client}, {"api-group", t.info.APIGroup},
		{"api-version", t.info.APIVersion}, {"name", t.info.Name}, {"subresource", t.info.Subresource},
		{"namespace", t.info.Namespace}, {"protocol", r.Proto}, {"resource", t.info.Resource},
		{"scope", metricScope(t.info)}, {"url", r.URL.Path}, {"user-agent", agent},
		{"verb", metricVerb(r, t.info, false)},
	} {
		all = append(all, attribute.String(a[0], a[1]))
	}
	return all
}

// wrote adds to the request's span the event that the object was written, or could not be written.
func (t *target) wrote(err error) { t.span.Sized("Write to database call", t.bodySize, err) }

// responseAttributes are the attributes of the span of a response. The objects in it are encoded in the
// group version gv.
func responseAttributes(r *http.Request, mediaType string, encoder runtime.Encoder,
	gv schema.GroupVersion) []attribute.KeyValue {
	name := metascheme.Codecs.EncoderForVersion(encoder, gv).Identifier()
	return []attribute.KeyValue{
		attribute.String("method", r.Method), attribute.String("url", r.URL.Path), attribute.String("protocol", r.Proto),
		attribute.String("mediaType", mediaType), attribute.String("encoder", string(name)),
	}
}

// serializerOf returns Kubernetes' encoder for a media type. Spans contain its name.
func serializerOf(mediaType string) runtime.SerializerInfo {
	info, _ := runtime.SerializerInfoForMediaType(metascheme.Codecs.SupportedMediaTypes(), mediaType)
	return info
}

// serialization is the span of encoding and sending a response. It is the writer of the response,
// and so knows when the first and the last bytes are sent.
type serialization struct {
	http.ResponseWriter
	span  *tracing.Span
	begun bool
	size  int
	err   error
}

// serialize begins the span of a response, and returns the writer and the request with which to
// send it. The caller must call end. If the request is not traced, the results are w, r and nil.
func serialize(w http.ResponseWriter, r *http.Request, out negotiate.Output,
	gv schema.GroupVersion) (http.ResponseWriter, *http.Request, *serialization) {
	ctx, span := tracing.Start(r.Context(), "SerializeObject", func() []attribute.KeyValue {
		info := serializerOf(out.MediaType)
		var encoder runtime.Encoder = info.Serializer
		if out.Pretty && info.PrettySerializer != nil {
			encoder = info.PrettySerializer
		}
		if out.As != "" {
			gv = schema.GroupVersion{Group: metav1.GroupName, Version: out.AsVersion}
		}
		return responseAttributes(r, out.MediaType, encoder, gv)
	})
	if span == nil {
		return w, r, nil
	}
	sent := &serialization{ResponseWriter: w, span: span}
	return sent, r.WithContext(ctx), sent
}

// Write implements http.ResponseWriter.
func (s *serialization) Write(b []byte) (n int, err error) {
	if !s.begun {
		s.begun = true
		s.span.Count(eventFirstBytes, "size", len(b))
	}
	n, s.err = s.ResponseWriter.Write(b)
	s.size += n
	return n, s.err
}

// Unwrap returns the underlying response writer. http.ResponseController calls it.
func (s *serialization) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// end ends the span.
func (s *serialization) end() {
	if s == nil {
		return
	}
	switch {
	case s.err != nil:
		s.span.Result("Write call", s.err)
	case s.begun:
		s.span.Count("Write call succeeded", "size", s.size)
	}
	s.span.End()
}

// startStream begins the span of sending the initial events of a watch.
func (e *eventEncoder) startStream(r *http.Request, t *target) {
	e.request = t.span
	_, e.span = tracing.Start(r.Context(), "WatchServer.HandleHTTP", func() []attribute.KeyValue {
		return responseAttributes(r, e.contentType(), serializerOf(e.out.MediaType).StreamSerializer.Serializer,
			e.v.gvk.GroupVersion())
	})
}

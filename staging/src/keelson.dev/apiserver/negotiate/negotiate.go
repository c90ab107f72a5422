// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package negotiate chooses the content type and the form of a response, and determines the content
// type of a request's body. It follows Kubernetes' rules: the first acceptable clause of the Accept
// header wins, and the parameters of a clause (as, g, v, pretty, stream) may make it unacceptable.
package negotiate

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The media types of the API.
const (
	JSON     = "application/json"
	YAML     = "application/yaml"
	Protobuf = "application/vnd.kubernetes.protobuf"
)

// Standard returns the offer of built-in kinds. Its first type is the default.
func Standard() Offer { return Offer{MediaTypes: []string{JSON, YAML, Protobuf}} }

// Offer describes the content types and forms that an endpoint can answer with.
type Offer struct {
	MediaTypes []string
	// NoProtobufObjects excludes protobuf for objects, but not for responses with only metadata
	// (custom resources).
	NoProtobufObjects bool
	// Transforms allows as=Table, as=PartialObjectMetadata and as=PartialObjectMetadataList.
	Transforms bool
	// NoTables excludes as=Table.
	NoTables bool
	// Aggregated accepts only clauses that request the aggregated form of discovery.
	Aggregated bool
}

// Output describes the response.
type Output struct {
	MediaType string
	Pretty    bool
	// As is the kind of the group meta.k8s.io that objects are converted to, and AsVersion its
	// version. Both are empty if objects are not converted.
	As, AsVersion string
	// Stream is the stream parameter of the client: "watch" or empty.
	Stream string
}

// Accept returns the output for r. Its error is a Status with code 406.
func Accept(r *http.Request, offer Offer) (Output, error) {
	header := r.Header.Get("Accept")
	out, ok := Output{MediaType: offer.MediaTypes[0]}, true
	if header != "" && header != JSON && header != "*/*" {
		out, ok = choose(header, offer)
	}
	if !ok {
		return Output{}, NotAcceptable(offer.MediaTypes)
	}
	if !out.Pretty && out.MediaType == JSON {
		out.Pretty = Pretty(r)
	}
	return out, nil
}

func choose(header string, offer Offer) (Output, bool) {
	for _, clause := range goautoneg.ParseAccept(header) {
		for _, mediaType := range offer.MediaTypes {
			if !matches(clause, mediaType) {
				continue
			}
			if out, ok := withParams(mediaType, clause.Params, offer); ok {
				return out, true
			}
		}
	}
	return Output{}, false
}

// Routes reports whether Kubernetes' router would accept r for an endpoint with these media types.
// The router supports the wildcard */* but no others, and ignores parameters.
func Routes(r *http.Request, mediaTypes []string) bool {
	header := r.Header.Get("Accept")
	if header == "" || header == JSON && slices.Contains(mediaTypes, JSON) {
		return true
	}
	for clause := range strings.SplitSeq(header, ",") {
		mediaType, _, _ := strings.Cut(clause, ";")
		mediaType = strings.TrimSpace(mediaType)
		if mediaType == "*/*" || slices.Contains(mediaTypes, mediaType) {
			return true
		}
	}
	return false
}

func matches(clause goautoneg.Accept, mediaType string) bool {
	major, minor, _ := strings.Cut(mediaType, "/")
	if clause.Type == "*" {
		return clause.SubType == "*"
	}
	return clause.Type == major && (clause.SubType == minor || clause.SubType == "*")
}

func withParams(mediaType string, params map[string]string, offer Offer) (Output, bool) {
	out := Output{MediaType: mediaType}
	group, convert := "", false
	for k, v := range params {
		switch k {
		case "as":
			out.As, convert = v, true
		case "g":
			group, convert = v, true
		case "v":
			out.AsVersion, convert = v, true
		case "stream":
			if v != "" && (v != "watch" || mediaType == YAML) { // a stream of YAML documents has no delimiters
				return out, false
			}
			out.Stream = v
		case "sv":
			if v != "" && (v != "v1" || !offer.Transforms) {
				return out, false
			}
		case "pretty":
			out.Pretty = v == "1"
		}
	}
	if offer.Aggregated {
		return out, group == "apidiscovery.k8s.io" && out.AsVersion == "v2" && out.As == "APIGroupDiscoveryList"
	}
	if !convert {
		return out, !offer.NoProtobufObjects || mediaType != Protobuf
	}
	if !offer.Transforms || group != metav1.GroupName || out.AsVersion != "v1" && out.AsVersion != "v1beta1" {
		return out, false
	}
	switch out.As {
	case "Table":
		return out, !offer.NoTables && (mediaType == JSON || mediaType == YAML)
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return out, true
	}
	return out, false
}

// Pretty reports whether the response should be indented for a person: the client requests it, or
// is a browser or a command-line tool.
func Pretty(r *http.Request) bool {
	if r.URL != nil && strings.Contains(r.URL.RawQuery, "pretty") {
		if v := r.URL.Query().Get("pretty"); v != "" {
			on, _ := strconv.ParseBool(v)
			return on
		}
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// ContentType returns the media type of r's body, which must be in the list accepted. If r does not
// declare a media type, it returns the first of that list. Its error is a Status with code 415.
func ContentType(r *http.Request, accepted []string) (string, error) {
	header := r.Header.Get("Content-Type")
	if header == "" {
		return accepted[0], nil
	}
	for _, a := range accepted {
		if header == a {
			return a, nil
		}
	}
	if mediaType, _, err := mime.ParseMediaType(header); err == nil {
		for _, a := range accepted {
			if mediaType == a {
				return a, nil
			}
		}
	}
	return "", UnsupportedMediaType(accepted)
}

// statusError is an error that clients receive as a Status.
type statusError struct{ status metav1.Status }

func (e *statusError) Error() string         { return e.status.Message }
func (e *statusError) Status() metav1.Status { return e.status }

// NotAcceptable returns the error for an Accept header that allows none of the offered types.
func NotAcceptable(accepted []string) error {
	return failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"only the following media types are accepted: "+strings.Join(accepted, ", "))
}

// NotRouted returns the error that Kubernetes' router sends for an Accept header that Routes
// rejects.
func NotRouted(mediaTypes []string) error {
	err := failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"406: Not Acceptable\n\nAvailable representations: "+strings.Join(mediaTypes, ", "))
	err.status.Details = &metav1.StatusDetails{}
	return err
}

// NotAcceptableMessage is like NotAcceptable, with another message.
func NotAcceptableMessage(message string) error {
	return failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, message)
}

// UnsupportedMediaType returns the error for a body whose type is not accepted.
func UnsupportedMediaType(accepted []string) error {
	return failure(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+strings.Join(accepted, ", "))
}

func failure(code int32, reason metav1.StatusReason, message string) *statusError {
	return &statusError{metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

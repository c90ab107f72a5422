// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package negotiate decides in which content type, and as which kind of object,
// a request is answered, and in which content type its body is. It follows
// Kubernetes' rules: the first acceptable clause wins, parameters of a clause
// (as, g, v, pretty, stream) may make it unacceptable.
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

// Standard returns what built-in kinds are served in; the first is the default.
func Standard() Offer { return Offer{MediaTypes: []string{JSON, YAML, Protobuf}} }

// Offer is what an endpoint can answer.
type Offer struct {
	MediaTypes []string
	// NoProtobufObjects keeps Protobuf for metadata-only answers (custom resources).
	NoProtobufObjects bool
	// Transforms allows as=Table and as=PartialObjectMetadata(List).
	Transforms bool
	// NoTables leaves as=Table out of them.
	NoTables bool
	// Aggregated takes only clauses that ask for the aggregated form of discovery.
	Aggregated bool
}

// Output is how to answer.
type Output struct {
	MediaType string
	Pretty    bool
	// As is the kind of meta.k8s.io the objects are turned into, and AsVersion
	// its version; empty: none.
	As, AsVersion string
	// Stream is the streaming schema asked for ("watch").
	Stream string
}

// Accept chooses the answer to r. Its error is a Status with code 406.
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

// Routes reports whether r accepts any of the media types as Kubernetes' router
// sees it, which knows no wildcard but the one for everything, and no parameters.
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
			if v != "" && (v != "watch" || mediaType == YAML) { // YAML has no framing
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

// Pretty reports whether a person reads the answer: they said so, or use a
// browser or a command-line fetcher.
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

// ContentType returns the media type of r's body, one of accepted (the first,
// when r does not say). Its error is a Status with code 415.
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

// statusError is an error that knows its Status.
type statusError struct{ status metav1.Status }

func (e *statusError) Error() string         { return e.status.Message }
func (e *statusError) Status() metav1.Status { return e.status }

// NotAcceptable is the answer to an Accept header that nothing satisfies.
func NotAcceptable(accepted []string) error {
	return failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"only the following media types are accepted: "+strings.Join(accepted, ", "))
}

// NotRouted is the answer of Kubernetes' router to an Accept header that names
// nothing a path produces (Routes).
func NotRouted(mediaTypes []string) error {
	err := failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"406: Not Acceptable\n\nAvailable representations: "+strings.Join(mediaTypes, ", "))
	err.status.Details = &metav1.StatusDetails{}
	return err
}

// NotAcceptableMessage is NotAcceptable with words of its own.
func NotAcceptableMessage(message string) error {
	return failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, message)
}

// UnsupportedMediaType is the answer to a body of a type that is not accepted.
func UnsupportedMediaType(accepted []string) error {
	return failure(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+strings.Join(accepted, ", "))
}

func failure(code int32, reason metav1.StatusReason, message string) *statusError {
	return &statusError{metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

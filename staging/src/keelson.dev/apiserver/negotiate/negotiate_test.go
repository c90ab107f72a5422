// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package negotiate_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"keelson.dev/apiserver/negotiate"
)

func TestAccept(t *testing.T) {
	full := negotiate.Standard()
	full.Transforms = true
	dynamic := full
	dynamic.NoProtobufObjects = true
	tests := map[string]struct {
		accept, agent, query string
		offer                negotiate.Offer
		want                 negotiate.Output
		refused              bool
	}{
		"None":     {offer: full, want: negotiate.Output{MediaType: negotiate.JSON}},
		"Anything": {accept: "*/*", offer: full, want: negotiate.Output{MediaType: negotiate.JSON}},
		"ProtobufFirst": {accept: negotiate.Protobuf + ", */*", offer: full,
			want: negotiate.Output{MediaType: negotiate.Protobuf}},
		"ClientGo": {accept: negotiate.Protobuf + ",application/json", offer: dynamic,
			want: negotiate.Output{MediaType: negotiate.JSON}},
		"YAML": {accept: "application/yaml", offer: full, want: negotiate.Output{MediaType: negotiate.YAML}},
		"HTML": {accept: "text/html", offer: full, refused: true},
		"Quality": {accept: "application/yaml;q=0.5,application/json", offer: full,
			want: negotiate.Output{MediaType: negotiate.JSON}},
		"Kubectl": {accept: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
			offer: full, want: negotiate.Output{MediaType: negotiate.JSON, As: "Table", AsVersion: "v1"}},
		"TableElsewhere": {accept: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
			offer: negotiate.Standard(), want: negotiate.Output{MediaType: negotiate.JSON}},
		"TableProtobuf": {accept: negotiate.Protobuf + ";as=Table;v=v1;g=meta.k8s.io", offer: full, refused: true},
		"MetadataDynamic": {accept: negotiate.Protobuf + ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
			offer: dynamic, want: negotiate.Output{MediaType: negotiate.Protobuf, As: "PartialObjectMetadata", AsVersion: "v1"}},
		"UnknownVersion": {accept: "application/json;as=Table;v=v2;g=meta.k8s.io", offer: full, refused: true},
		"Stream": {accept: negotiate.Protobuf + ";stream=watch", offer: full,
			want: negotiate.Output{MediaType: negotiate.Protobuf, Stream: "watch"}},
		"StreamYAML":    {accept: "application/yaml;stream=watch", offer: full, refused: true},
		"ServerVersion": {accept: "application/json;sv=v1", offer: full, want: negotiate.Output{MediaType: negotiate.JSON}},
		"VersionOfNone": {accept: "application/json;sv=v1", offer: negotiate.Standard(), refused: true},
		"UnknownStream": {accept: "application/json;stream=x", offer: full, refused: true},
		"Curl":          {agent: "curl/8", offer: full, want: negotiate.Output{MediaType: negotiate.JSON, Pretty: true}},
		"CurlNotPretty": {agent: "curl/8", query: "pretty=false", offer: full,
			want: negotiate.Output{MediaType: negotiate.JSON}},
		"Pretty": {query: "pretty=1", offer: full, want: negotiate.Output{MediaType: negotiate.JSON, Pretty: true}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/api/v1/pods?"+tt.query, nil)
			r.Header.Set("User-Agent", tt.agent)
			if tt.accept != "" {
				r.Header.Set("Accept", tt.accept)
			}
			got, err := negotiate.Accept(r, tt.offer)
			if (err != nil) != tt.refused {
				t.Fatalf("error %v, refused should be %v", err, tt.refused)
			}
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestContentType(t *testing.T) {
	accepted := negotiate.Standard().MediaTypes
	for header, want := range map[string]string{
		"": negotiate.JSON, "application/json; charset=utf-8": negotiate.JSON, negotiate.Protobuf: negotiate.Protobuf,
		"text/plain": "", "application/json; x": "",
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Content-Type", header)
		got, err := negotiate.ContentType(r, accepted)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("Content-Type %q: got %q, %v, want %q", header, got, err, want)
		}
	}
}

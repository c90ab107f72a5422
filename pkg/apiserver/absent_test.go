// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestMetadataOfCreated checks that every request that creates an object ignores metadata that only
// the server sets. An object with a client's deletionTimestamp could never be deleted. See
// kubernetes/kubernetes#133388.
func TestMetadataOfCreated(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	define(t, client, s.Config.Host,
		`{"metadata":{"name":"bs.y.example.com"},"spec":{"group":"y.example.com","scope":"Namespaced","names":{"plural":"bs","kind":"B"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, "/apis/y.example.com/v1/bs")
	const (
		leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
		maps   = "/api/v1/namespaces/default/configmaps"
		custom = "/apis/y.example.com/v1/namespaces/default/bs"
	)
	for name, tc := range map[string]struct{ method, collection, kind string }{
		"created":            {"POST", maps, `"apiVersion":"v1","kind":"ConfigMap"`},
		"created, custom":    {"POST", custom, `"apiVersion":"y.example.com/v1","kind":"B"`},
		"put where none is":  {"PUT", leases, `"apiVersion":"coordination.k8s.io/v1","kind":"Lease"`},
		"applied":            {"PATCH", maps, `"apiVersion":"v1","kind":"ConfigMap"`},
		"applied, custom":    {"PATCH", custom, `"apiVersion":"y.example.com/v1","kind":"B"`},
		"applied, where put": {"PATCH", leases, `"apiVersion":"coordination.k8s.io/v1","kind":"Lease"`},
		"applied, by default": {"PATCH", "/api/v1/namespaces/default/serviceaccounts",
			`"apiVersion":"v1","kind":"ServiceAccount"`},
	} {
		t.Run(name, func(t *testing.T) {
			object := strings.NewReplacer(" ", "-", ",", "").Replace(name)
			body := `{` + tc.kind + `,"metadata":{"name":"` + object +
				`","creationTimestamp":"2001-01-01T00:00:00Z","selfLink":"/x",
				"deletionTimestamp":"2001-01-01T00:00:00Z","deletionGracePeriodSeconds":5}}`
			req := s.Client.CoreV1().RESTClient().Verb(tc.method).Body([]byte(body)).SetHeader("Content-Type",
				"application/json")
			switch tc.method {
			case "POST":
				req = req.AbsPath(tc.collection)
			case "PUT":
				req = req.AbsPath(tc.collection, object)
			default:
				req = req.AbsPath(tc.collection, object).Param("fieldManager", "m").SetHeader("Content-Type",
					string(types.ApplyYAMLPatchType))
			}
			if err := req.Do(t.Context()).Error(); err != nil {
				t.Fatal(err)
			}
			raw, err := s.Client.CoreV1().RESTClient().Get().AbsPath(tc.collection, object).Do(t.Context()).Raw()
			if err != nil {
				t.Fatal(err)
			}
			var got unstructured.Unstructured
			if err := got.UnmarshalJSON(raw); err != nil {
				t.Fatal(err)
			}
			if got.GetDeletionTimestamp() != nil || got.GetDeletionGracePeriodSeconds() != nil ||
				got.GetSelfLink() != "" || got.GetCreationTimestamp().Year() == 2001 {
				t.Errorf("the client's metadata is stored: %s", raw)
			}
			if err := s.Client.CoreV1().RESTClient().Delete().AbsPath(tc.collection,
				object).Body(&metav1.DeleteOptions{}).Do(t.Context()).Error(); err != nil {
				t.Error(err)
			}
		})
	}
}

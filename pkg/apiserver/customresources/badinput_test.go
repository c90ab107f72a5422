// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// nested returns a schema, in JSON, of objects nested to the given depth.
func nested(levels int) string {
	return strings.Repeat(`{"type":"object","properties":{"a":`, levels) + `{"type":"string"}` +
		strings.Repeat(`}}`, levels)
}

// withSchema returns a CustomResourceDefinition with the given schema, both in JSON.
func withSchema(schema string) string {
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"bads.stable.example.com"},
		"spec":{"group":"stable.example.com","scope":"Namespaced","names":{"plural":"bads","singular":"bad","kind":"Bad","listKind":"BadList"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":` + schema + `}}]}}`
}

// TestBadSchemas checks that definitions whose schemas are invalid, too deep or too costly are
// rejected with Kubernetes' messages.
func TestBadSchemas(t *testing.T) {
	e := newEnv(t, testserver.Options{})
	object := func(properties string) string { return `{"type":"object","properties":{` + properties + `}}` }
	for name, tc := range map[string]struct{ schema, want string }{
		"reference to itself": {
			object(`"a":{"$ref":"#/definitions/a"}`),
			`spec.validation.openAPIV3Schema.properties[a].$ref: Forbidden: $ref is not supported`,
		},
		"rules without a cost limit": {
			object(`"list":{"type":"array","items":{"type":"array","items":{"type":"array",` +
				`"items":{"type":"string"}}},"x-kubernetes-validations":[{"rule":"self.all(a, a.all(b, ` +
				`b.all(c, c.contains('x'))))"}]}`),
			`estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or ` +
				`adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)`,
		},
		"invalid rule": {
			object(`"a":{"type":"string","x-kubernetes-validations":[{"rule":"self.nothing(1) +"}]}`),
			`compilation failed: ERROR: <input>:1:18: Syntax error: mismatched input '<EOF>'`,
		},
		"invalid pattern": {
			object(`"a":{"type":"string","pattern":"a(b"}`),
			"must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `a(b`",
		},
		"default that does not match the schema": {
			object(`"a":{"type":"integer","default":"x"}`),
			`properties[a].default: Invalid value: "string":  in body must be of type integer: "string"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := e.post(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", withSchema(tc.schema))
			message, _ := got.Object["message"].(string)
			if got.Object["reason"] != string(metav1.StatusReasonInvalid) ||
				!strings.Contains(message, strings.TrimPrefix(tc.want, "spec.validation.openAPIV3Schema.")) {
				t.Errorf("%v", message)
			}
		})
	}
	t.Run("depth without end", func(t *testing.T) {
		got, _ := e.post(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", withSchema(nested(200_000)))
		if code, _, _ := unstructured.NestedInt64(got.Object, "code"); code < 400 || code >= 500 {
			t.Errorf("answered with %v", got.Object)
		}
		if _, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().List(t.Context(),
			metav1.ListOptions{}); err != nil {
			t.Error("and then: ", err)
		}
	})
}

// TestBadConversions checks that a conversion webhook with faulty answers makes only those requests
// fail that need a conversion, and that stored objects stay as they are.
func TestBadConversions(t *testing.T) {
	e := newEnv(t, testserver.Options{})
	var way atomic.Value
	way.Store("")
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		convertBadly(w, r, way.Load().(string))
	}))
	t.Cleanup(server.Close)
	crd := parse[apiextensionsv1.CustomResourceDefinition](t, endpoints)
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig: &apiextensionsv1.WebhookClientConfig{
				URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			ConversionReviewVersions: []string{"v1"},
		}}
	e.define(t, toYAML(t, crd))
	v1, v2 := e.dynamic.Resource(places("v1")).Namespace("default"), e.dynamic.Resource(places("v2")).Namespace("default")
	kept := place("kept", "v1", map[string]any{"host": "a"})
	kept.SetLabels(map[string]string{"l": "x"})
	before, err := v1.Create(t.Context(), kept, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const failed = "conversion webhook for stable.example.com/v1, Kind=Place failed: "
	for _, tc := range []struct{ way, want string }{
		{"status", failed + "Conversion failed"},
		{"nothing", "conversion webhook for stable.example.com/v1, Kind=Place returned 0 objects, expected 1"},
		{"twice", "conversion webhook for stable.example.com/v1, Kind=Place returned 2 objects, expected 1"},
		{"version", "conversion webhook for stable.example.com/v1, Kind=Place returned invalid object at " +
			"index 0: invalid groupVersion (expected stable.example.com/v2, received stable.example.com/v1)"},
		{"kind", "returned invalid object at index 0: invalid kind (expected Place, received Other)"},
		{"name", "returned invalid object: must have the same name: kept != other"},
		{"uid", "returned invalid object: must have the same UID: " + string(before.GetUID()) + " != other"},
		{"answer", failed + `expected response.uid=`},
		{"garbage", failed},
		{"endless", "answer is longer than"},
		{"refused", failed},
	} {
		t.Run(tc.way, func(t *testing.T) {
			way.Store(tc.way)
			_, err := v2.Get(t.Context(), "kept", metav1.GetOptions{})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("read: %v, want %s", err, tc.want)
			}
			_, err = v2.Create(t.Context(), place("new", "v2", map[string]any{"hostPort": "b:1"}), metav1.CreateOptions{})
			if err == nil {
				t.Error("created")
			}
			if got, err := v1.Get(t.Context(), "kept", metav1.GetOptions{}); err != nil ||
				got.GetResourceVersion() != before.GetResourceVersion() || got.Object["host"] != "a" {
				t.Errorf("what is stored: %v, %v", got, err)
			}
			if _, err := v1.Get(t.Context(), "new", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("what was not made: %v", err)
			}
		})
	}
	// The webhook may change labels and annotations. The server restores all other metadata, which
	// this answer omits.
	way.Store("metadata")
	got, err := v2.Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil || got.GetGeneration() != 1 || got.GetCreationTimestamp() != before.GetCreationTimestamp() ||
		got.GetLabels()["l"] != "x" || got.Object["hostPort"] != "a:80" {
		t.Errorf("metadata that the webhook lost: %v, %v", got, err)
	}
}

// convertBadly answers as a conversion webhook that makes the error named by way.
func convertBadly(w http.ResponseWriter, r *http.Request, way string) {
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch way {
	case "garbage":
		fmt.Fprint(w, "<html>")
		return
	case "refused":
		panic(http.ErrAbortHandler)
	case "endless":
		chunk := bytes.Repeat([]byte(" "), 1<<20)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
	answer := &apiextensionsv1.ConversionResponse{UID: review.Request.UID,
		Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, raw := range review.Request.Objects {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw.Raw); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		convertPlace(u, review.Request.DesiredAPIVersion)
		switch way {
		case "version":
			u.SetAPIVersion("stable.example.com/v1")
		case "kind":
			u.SetKind("Other")
		case "name":
			u.SetName("other")
		case "uid":
			u.SetUID("other")
		case "metadata":
			u.Object["metadata"] = map[string]any{"name": u.GetName(), "namespace": u.GetNamespace(),
				"uid": string(u.GetUID()), "labels": map[string]any{"l": "x"}}
		}
		if way != "nothing" {
			answer.ConvertedObjects = append(answer.ConvertedObjects, runtime.RawExtension{Object: u})
		}
		if way == "twice" {
			answer.ConvertedObjects = append(answer.ConvertedObjects, runtime.RawExtension{Object: u})
		}
	}
	switch way {
	case "status":
		answer.Result = metav1.Status{Status: metav1.StatusFailure, Message: "Conversion failed"}
	case "answer":
		answer.UID = "other"
	}
	review.Request, review.Response = nil, answer
	if err := json.NewEncoder(w).Encode(review); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

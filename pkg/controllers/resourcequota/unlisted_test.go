// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// TestUnlisted checks a quota that limits a resource whose objects cannot be listed, because its
// conversion webhook does not answer. The quota's other limits must still be counted.
func TestUnlisted(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	post := func(path, body string) {
		t.Helper()
		controllertest.Eventually(t, "answer of "+path, func(ctx context.Context) (any, bool) {
			err := s.Client.CoreV1().RESTClient().Post().AbsPath(path).Body([]byte(body)).SetHeader(
				"Content-Type", "application/json").Do(ctx).Error()
			return err, err == nil
		})
	}
	post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":"hats.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"hats","kind":"Hat"},
		"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://127.0.0.1:1/"}}},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}},
		{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
	post("/apis/example.com/v1/namespaces/default/hats",
		`{"apiVersion":"example.com/v1","kind":"Hat","metadata":{"name":"h"}}`)

	controllertest.Account(t, s)
	controllertest.RunAs(t, s, "resourcequota-controller", controller.Options{}, New)
	c := cluster{t, s.Client}
	c.quota("mixed", v1.ResourceQuotaSpec{Hard: list("secrets", "5", "count/hats.example.com", "2", "pods", "3")})
	c.used("mixed", list("secrets", "0", "pods", "0"))
	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	if _, err := c.client.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.used("mixed", list("secrets", "1", "pods", "0"))
}

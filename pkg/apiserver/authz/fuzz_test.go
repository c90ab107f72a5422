// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"fmt"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"keelson.dev/keelson/pkg/apiserver/authn/authntest"
	"keelson.dev/keelson/pkg/apiserver/config"
)

// FuzzWebhook sends random answers of a webhook. A request may be allowed only if the answer has a
// field "allowed" that is true.
func FuzzWebhook(f *testing.F) {
	file, answer := authntest.Webhook(f)
	c, err := Load(Config{
		Authorization: config.Authorization{Webhook: config.AccessWebhook{ConfigFile: file, Version: "v1"}},
		Modes:         []string{config.ModeWebhook}})
	if err != nil {
		f.Fatal(err)
	}
	if err := c.Build(map[string]Authorizer{}, nil); err != nil {
		f.Fatal(err)
	}
	review := `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":%t,` +
		`"denied":%t,"reason":"x"}}`
	for _, allowed := range []bool{true, false} {
		f.Add([]byte(fmt.Sprintf(review, allowed, false)))
		f.Add([]byte(fmt.Sprintf(review, allowed, true)))
	}
	f.Add([]byte(`{"apiVersion":"v1","kind":"Status","status":"Failure"}`))
	f.Add([]byte(`<html>{"status":{"allowed":true}}</html>`))
	f.Fuzz(func(t *testing.T, body []byte) {
		answer.Store(&body)
		decision, _, _ := c.Authorize(t.Context(),
			authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "alice"}, Verb: "get", Resource: "pods",
				ResourceRequest: true})
		if decision == authorizer.DecisionAllow && !authntest.Says(body, "allowed") {
			t.Errorf("%q lets alice in", body)
		}
	})
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"keelson.dev/apiserver/rest"
)

// TestDeleteCorrupt deletes an object whose stored bytes cannot be decoded. Only a request that ignores
// read errors removes it, and only if its user may do that.
func TestDeleteCorrupt(t *testing.T) {
	var asked []authorizer.Attributes
	may := authorizer.DecisionNoOpinion
	e := newEnv(t, func(c *rest.Config) {
		c.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision,
			string, error) {
			asked = append(asked, a)
			return may, "no rule", nil
		})
	})
	e.must(t, "POST", configMaps, `{"metadata":{"name":"good"}}`)
	e.must(t, "POST", configMaps, `{"metadata":{"name":"bad","finalizers":["a.b/c"]}}`)
	it, _, err := e.kv.Get(t.Context(), "/registry/configmaps/t/bad")
	if err != nil || it == nil {
		t.Fatal(it, err)
	}
	if res, err := e.kv.Put(t.Context(), it.Key, []byte("{"), it.ModRevision, 0); err != nil || !res.OK {
		t.Fatal(res, err)
	}
	const ignore = "ignoreStoreReadErrorWithClusterBreakingPotential=true"
	check := func(path string, code int, text string) {
		t.Helper()
		r := e.do(t, "DELETE", configMaps+path, "")
		got := parse[metav1.Status](t, r)
		if r.code != code || !strings.Contains(got.Message, text) {
			t.Errorf("%s: %d %s, want %d %s", path, r.code, r.body, code, text)
		}
	}
	const undecodable = "AdditionalErrorMsg: object not decodable revision="
	check("/bad", 500, "Internal error occurred: StorageError: corrupt object, Code: 7, Key: /configmaps/t/bad, "+
		"ResourceVersion: 0, "+undecodable)
	r := e.do(t, "GET", configMaps+"/bad", "")
	if got := parse[metav1.Status](t, r); r.code != 500 || got.Reason != metav1.StatusReasonInternalError ||
		!strings.Contains(got.Message, undecodable) {
		t.Errorf("get: %d %s", r.code, r.body)
	}
	r = e.do(t, "GET", configMaps, "")
	const key = "/registry/configmaps/t/bad"
	if got := parse[metav1.Status](t, r); r.code != 500 || got.Reason != metav1.StatusReasonStoreReadError ||
		!strings.HasPrefix(got.Message, "failed to read one or more configmaps from the storage: "+
			"StorageError: corrupt object, Code: 7, Key: "+key+", ResourceVersion: 0, "+undecodable) ||
		got.Details == nil || got.Details.Kind != "configmaps" || len(got.Details.Causes) != 1 ||
		got.Details.Causes[0].Field != key ||
		got.Details.Causes[0].Type != metav1.CauseTypeUnexpectedServerResponse {
		t.Errorf("list: %d %s", r.code, r.body)
	}
	check("/bad?"+ignore, 403, `configmaps "bad" is forbidden: not permitted to do `+
		`"unsafe-delete-ignore-read-errors", reason: no rule`)
	if len(asked) != 1 || asked[0].GetVerb() != "unsafe-delete-ignore-read-errors" || asked[0].GetName() != "bad" ||
		asked[0].GetNamespace() != "t" || asked[0].GetResource() != "configmaps" || asked[0].GetUser().GetName() != "tester" {
		t.Errorf("authorizer was asked %+v", asked)
	}
	may = authorizer.DecisionAllow
	check("?"+ignore, 422, "DeleteOptions.meta.k8s.io \"\" is invalid: ignoreStoreReadErrorWithClusterBreakingPotential: "+
		"Invalid value: true: is not allowed with DELETECOLLECTION, try again after removing the option")
	check("/bad?gracePeriodSeconds=0&"+ignore, 422, "cannot be set together with .gracePeriodSeconds")
	check("/absent?"+ignore, 404, `configmaps "absent" not found`)
	check("/good?"+ignore, 409, `Operation cannot be fulfilled on configmaps "good": StorageError: invalid object, `+
		`Code: 4, Key: /registry/configmaps/t/good, ResourceVersion: 0, AdditionalErrorMsg: unsafe deletion is not `+
		`allowed because the object is decodable from storage`)
	check("/bad?dryRun=All&"+ignore, 200, "")
	if it, _, err := e.kv.Get(t.Context(), it.Key); err != nil || it == nil {
		t.Errorf("after a dry run: %v, %v", it, err)
	}
	deleted := parse[metav1.Status](t, e.must(t, "DELETE", configMaps+"/bad?"+ignore, ""))
	if deleted.Status != "Success" || deleted.Code != 200 || deleted.Details == nil || deleted.Details.Name != "bad" ||
		deleted.Details.Kind != "ConfigMap" || deleted.Details.UID != "" {
		t.Errorf("status %+v", deleted)
	}
	if r := e.do(t, "GET", configMaps+"/bad", ""); r.code != 404 {
		t.Errorf("after the delete: %d %s", r.code, r.body)
	}
	e.must(t, "GET", configMaps+"/good", "")
}

// TestListCorrupt lists more objects that cannot be decoded than an error names, and tries to delete all
// objects. As in Kubernetes, both fail with the same error, and no object is deleted.
func TestListCorrupt(t *testing.T) {
	e := newEnv(t, func(c *rest.Config) {
		c.KeyRoot = "/root"
		c.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision,
			string, error) {
			return authorizer.DecisionAllow, "", nil
		})
	})
	e.must(t, "POST", configMaps, `{"metadata":{"name":"good"}}`)
	for i := range 105 {
		if res, err := e.kv.Put(t.Context(), fmt.Sprintf("/registry/configmaps/t/z%03d", i), []byte("{"), 0, 0); err != nil ||
			!res.OK {
			t.Fatal(res, err)
		}
	}
	for _, method := range []string{"GET", "DELETE"} {
		r := e.do(t, method, configMaps, "")
		got := parse[metav1.Status](t, r)
		if r.code != 500 || got.Reason != metav1.StatusReasonStoreReadError || got.Details == nil ||
			!strings.HasSuffix(got.Message, " (and 99 more)") || len(got.Details.Causes) != 101 {
			t.Fatalf("%s: %d %s", method, r.code, r.body)
		}
		const many = "too many errors, the list is truncated"
		if last := got.Details.Causes[100]; last.Type != metav1.CauseTypeTooMany || last.Message != many {
			t.Errorf("%s: last cause %+v", method, last)
		}
		for i, c := range got.Details.Causes[:100] {
			want := fmt.Sprintf("/root/configmaps/t/z%03d", i)
			if c.Field != want || !strings.Contains(c.Message, "Key: "+want+", ") {
				t.Errorf("%s: cause %d is %+v, want the object %s", method, i, c, want)
			}
		}
	}
	for _, r := range []reply{
		e.do(t, "DELETE", configMaps+"/good?ignoreStoreReadErrorWithClusterBreakingPotential=true", ""),
		e.do(t, "PUT", configMaps+"/good", `{"metadata":{"name":"good","uid":"other"}}`),
	} {
		if r.code != 409 || !strings.Contains(parse[metav1.Status](t, r).Message, "Key: /root/configmaps/t/good, ") {
			t.Errorf("an object that can be read: %d %s", r.code, r.body)
		}
	}
	e.must(t, "GET", configMaps+"/good", "")
}

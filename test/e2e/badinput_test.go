// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestBadInput checks that ctl and the API server reject invalid input with Kubernetes' messages,
// and that the input has no effect.
func TestBadInput(t *testing.T) {
	ns := namespace(t, "bad")
	post := func(body string) *metav1.Status {
		t.Helper()
		err := shared.client.CoreV1().RESTClient().Post().Namespace(ns).Resource("configmaps").Param(
			"fieldValidation", "Strict").
			SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context()).Error()
		if err == nil {
			return nil
		}
		var st apierrors.APIStatus
		if !errors.As(err, &st) {
			t.Fatalf("no Status: %v", err)
		}
		s := st.Status()
		return &s
	}
	if st := post(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"there"},"data":{"k":"v"}}`); st != nil {
		t.Fatalf("a good object is refused: %+v", st)
	}
	for _, tc := range []struct {
		name, body string
		code       int32
		reason     metav1.StatusReason
		message    string
		causes     []metav1.StatusCause
	}{
		{
			name: "unknown field", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"date":{}}`,
			code: http.StatusBadRequest, reason: metav1.StatusReasonBadRequest,
			message: `ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "date"`,
		},
		{
			name: "wrong type", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"k":1}}`,
			code: http.StatusBadRequest, reason: metav1.StatusReasonBadRequest,
			message: `ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal ` +
				`number into Go struct field ConfigMap.data of type string`,
		},
		{
			name: "invalid name", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"No_Name"},"data":{"k":"v"}}`,
			code: http.StatusUnprocessableEntity, reason: metav1.StatusReasonInvalid,
			message: `ConfigMap "No_Name" is invalid: metadata.name: Invalid value: "No_Name": a lowercase ` +
				`RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', ` +
				`and must start and end with an alphanumeric character (e.g. 'example.com', regex used for ` +
				`validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			causes: []metav1.StatusCause{{
				Type: metav1.CauseTypeFieldValueInvalid, Field: "metadata.name",
				Message: `Invalid value: "No_Name": a lowercase RFC 1123 subdomain must consist of lower ` +
					`case alphanumeric characters, '-' or '.', ` +
					`and must start and end with an alphanumeric character (e.g. 'example.com', regex used ` +
					`for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			}},
		},
		{
			name: "duplicate", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"there"},"data":{"k":"other"}}`,
			code: http.StatusConflict, reason: metav1.StatusReasonAlreadyExists, message: `configmaps "there" already exists`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			st := post(tc.body)
			if st == nil {
				t.Fatal("accepted")
			}
			if st.Code != tc.code || st.Reason != tc.reason || st.Message != tc.message {
				t.Errorf("got %d %s\n%s\nwant %d %s\n%s", st.Code, st.Reason, st.Message, tc.code, tc.reason, tc.message)
			}
			var causes []metav1.StatusCause
			if st.Details != nil {
				causes = st.Details.Causes
			}
			if !slices.Equal(causes, tc.causes) {
				got, _ := json.Marshal(causes)
				t.Errorf("causes %s", got)
			}
		})
	}
	list, err := shared.client.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, cm := range list.Items {
		if cm.Name != "kube-root-ca.crt" && (cm.Name != "there" || cm.Data["k"] != "v") {
			t.Errorf("changed: %s %v", cm.Name, cm.Data)
		}
	}
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// checkEncoding checks that all values of the resources in the encryption configuration are
// encrypted by its providers, and that Events expire.
func (s *store) checkEncoding(t *testing.T, v *server) {
	t.Helper()
	for prefix, encoding := range map[string]string{
		"secrets/": "k8s:enc:aescbc:v1:one:", "configmaps/": "k8s:enc:secretbox:v1:two:",
		"cr.bar.com/foos/": "k8s:enc:aesgcm:v1:three:",
	} {
		values, err := s.etcd.Get(t.Context(), "/registry/"+prefix, clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		if len(values.Kvs) == 0 {
			t.Errorf("after %s: no %s", v.name, prefix)
		}
		for _, kv := range values.Kvs {
			if !bytes.HasPrefix(kv.Value, []byte(encoding)) {
				t.Errorf("after %s: %s is not encrypted: %.40q", v.name, kv.Key, kv.Value)
			}
		}
	}
	events, err := s.etcd.Get(t.Context(), "/registry/events/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range events.Kvs {
		if kv.Lease == 0 {
			t.Errorf("after %s: %s does not expire", v.name, kv.Key)
		}
	}
}

// issue returns a token of a ServiceAccount that is bound to a Secret.
func issue(t *testing.T, v *server) string {
	t.Helper()
	answer, err := v.client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "default",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: "secret1"},
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("%s: create a token: %v", v.name, err)
	}
	return answer.Status.Token
}

// accept checks that a server accepts a token that another server has issued.
func accept(t *testing.T, v *server, token string) {
	t.Helper()
	config := rest.CopyConfig(v.config)
	config.BearerToken = token
	review, err := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Errorf("%s: use a token: %v", v.name, err)
		return
	}
	if want := "system:serviceaccount:" + namespace + ":default"; review.Status.UserInfo.Username != want {
		t.Errorf("%s: the token belongs to %s, want %s", v.name, review.Status.UserInfo.Username, want)
	}
}

// apply applies the data of the ConfigMap "applied", and returns the new data.
func apply(t *testing.T, v *server, manager, data string, force bool) (map[string]string, error) {
	t.Helper()
	patch := `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": ` + data + `}`
	m, err := v.client.CoreV1().ConfigMaps(namespace).Patch(t.Context(), "applied", types.ApplyPatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: manager, Force: &force})
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

// mustApply is like apply, but checks the new data.
func mustApply(t *testing.T, v *server, manager, data string, want map[string]string) {
	t.Helper()
	got, err := apply(t, v, manager, data, true)
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%s: data applied by %s: %v, want %v (%v)", v.name, manager, got, want, err)
	}
}

// applyFirst, applySecond and applyThird apply a ConfigMap with three servers. Each has to know which
// fields the managers have applied with the servers before it.
func applyFirst(t *testing.T, v *server) {
	t.Helper()
	mustApply(t, v, "one", `{"a": "1", "b": "1"}`, map[string]string{"a": "1", "b": "1"})
}

func applySecond(t *testing.T, v *server) {
	t.Helper()
	if _, err := apply(t, v, "two", `{"a": "2"}`, false); !apierrors.IsConflict(err) ||
		!strings.Contains(err.Error(), `conflict with "one": .data.a`) {
		t.Errorf("%s: apply a field of another manager: %v", v.name, err)
	}
	mustApply(t, v, "two", `{"a": "2"}`, map[string]string{"a": "2", "b": "1"})
	mustApply(t, v, "one", `{"c": "1"}`, map[string]string{"a": "2", "c": "1"})
}

func applyThird(t *testing.T, v *server) {
	t.Helper()
	mustApply(t, v, "one", `{"d": "1"}`, map[string]string{"a": "2", "d": "1"})
	mustApply(t, v, "two", `{}`, map[string]string{"d": "1"})
}

// switchVersion makes v3 the version in which pandas are stored. Those that were stored before stay
// in v1 until they are written.
func switchVersion(t *testing.T, v *server) {
	t.Helper()
	client := v.dynamic.Resource(definitionsResource)
	o, err := client.Get(t.Context(), "pandas.awesome.bears.com", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("%s: %v", v.name, err)
	}
	versions, _, err := unstructured.NestedSlice(o.Object, "spec", "versions")
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range versions {
		version := version.(map[string]any)
		version["storage"] = version["name"] == "v3"
	}
	if err := unstructured.SetNestedSlice(o.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("%s: %v", v.name, err)
	}
}

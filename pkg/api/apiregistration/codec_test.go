// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiregistration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"keelson.dev/apiserver/wire"
)

// TestCodec checks that the stored bytes are those of Kubernetes.
func TestCodec(t *testing.T) {
	c := apiServiceRow().Codec
	in := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.a", ResourceVersion: "7"},
		Spec:       apiregistrationv1.APIServiceSpec{Group: "a", Version: "v1", GroupPriorityMinimum: 1, VersionPriority: 2},
	}
	data, err := c.Encode(in)
	if err != nil || in.ResourceVersion != "7" {
		t.Fatal(in, err)
	}
	const want = `{"kind":"APIService","apiVersion":"apiregistration.k8s.io/v1","metadata":{"name":"v1.a"},` +
		`"spec":{"group":"a","version":"v1","groupPriorityMinimum":1,"versionPriority":2},"status":{}}` + "\n"
	if string(data) != want {
		t.Errorf("stored %s\nwant   %s", data, want)
	}
	older, err := wire.NewHeader("apiregistration.k8s.io/v1", "APIService").Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	for form, stored := range map[string][]byte{"JSON": data, "protobuf": older} {
		obj, err := c.Decode(stored, 9)
		if err != nil {
			t.Fatal(form, err)
		}
		if out, ok := obj.(*apiregistrationv1.APIService); !ok || out.Name != "v1.a" ||
			out.ResourceVersion != "9" || out.Kind != "" || out.Spec.VersionPriority != 2 {
			t.Errorf("%s: got %+v", form, obj)
		}
	}
}

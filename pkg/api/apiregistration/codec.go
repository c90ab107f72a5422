// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiregistration

import (
	"bytes"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"keelson.dev/apiserver/store"
)

// codec stores API services as Kubernetes does: as JSON. It reads protobuf too.
type codec struct{ store.Codec }

// Lossy implements store.Codec.
func (codec) Lossy() bool { return false }

// Encode returns the stored form of obj, which stays as it is.
func (codec) Encode(obj store.Object) ([]byte, error) {
	service, ok := obj.(*apiregistrationv1.APIService)
	if !ok {
		return nil, fmt.Errorf("encode %T: not an API service", obj)
	}
	out := *service
	out.TypeMeta = metav1.TypeMeta{APIVersion: apiregistrationv1.SchemeGroupVersion.String(), Kind: "APIService"}
	out.ResourceVersion = ""
	var data bytes.Buffer
	err := json.NewEncoder(&data).Encode(&out)
	return data.Bytes(), err
}

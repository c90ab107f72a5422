// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiextensions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/wire"
)

// codec stores definitions as JSON of v1beta1, as Kubernetes still does. It also reads definitions
// that were stored in v1, as JSON or in a protobuf envelope.
type codec struct{}

var _ store.Codec = codec{}

// Lossy implements store.Codec.
func (codec) Lossy() bool { return false }

// Encode returns the stored form of the CustomResourceDefinition obj. It does not change obj.
func (codec) Encode(obj store.Object) ([]byte, error) {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil, fmt.Errorf("encode %T: not a definition", obj)
	}
	var hub apiextensions.CustomResourceDefinition
	// The conversion moves fields that all versions share to the top of the spec. Its result may
	// share memory with its input, so the input is a copy.
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(
		crd.DeepCopy(), &hub, nil); err != nil {
		return nil, err
	}
	var out apiextensionsv1beta1.CustomResourceDefinition
	if err :=
		apiextensionsv1beta1.Convert_apiextensions_CustomResourceDefinition_To_v1beta1_CustomResourceDefinition(
			&hub, &out, nil); err != nil {
		return nil, err
	}
	out.TypeMeta = metav1.TypeMeta{APIVersion: apiextensionsv1beta1.SchemeGroupVersion.String(),
		Kind: "CustomResourceDefinition"}
	out.ResourceVersion = ""
	var data bytes.Buffer
	err := json.NewEncoder(&data).Encode(&out)
	return data.Bytes(), err
}

// Decode returns the CustomResourceDefinition whose stored form is data.
func (codec) Decode(data []byte, rev int64) (store.Object, error) {
	crd, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("stored definition: %w", err)
	}
	crd.TypeMeta = metav1.TypeMeta{}
	defaultCustomResourceDefinition(crd)
	if rev != 0 {
		crd.ResourceVersion = strconv.FormatInt(rev, 10)
	}
	return crd, nil
}

func decode(data []byte) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if wire.IsEnvelope(data) {
		e, err := wire.Parse(data)
		if err != nil {
			return nil, err
		}
		return crd, crd.Unmarshal(e.Raw)
	}
	var meta metav1.TypeMeta
	if err := json.Unmarshal(data, &meta); err != nil {
		return nil, err
	}
	if meta.APIVersion != apiextensionsv1beta1.SchemeGroupVersion.String() {
		return crd, json.Unmarshal(data, crd)
	}
	var old apiextensionsv1beta1.CustomResourceDefinition
	if err := json.Unmarshal(data, &old); err != nil {
		return nil, err
	}
	apiextensionsv1beta1.SetObjectDefaults_CustomResourceDefinition(&old)
	var hub apiextensions.CustomResourceDefinition
	if err :=
		apiextensionsv1beta1.Convert_v1beta1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(
			&old, &hub, nil); err != nil {
		return nil, err
	}
	return crd, apiextensionsv1.Convert_apiextensions_CustomResourceDefinition_To_v1_CustomResourceDefinition(
		&hub, crd, nil)
}

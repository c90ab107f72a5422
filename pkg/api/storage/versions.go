// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/older"
)

func attributesClassVersions() []resource.Version {
	v := older.Version{
		Name:       "v1beta1",
		Deprecated: "storage.k8s.io/v1beta1 VolumeAttributesClass is deprecated in v1.34+, unavailable in v1.37+; use storage.k8s.io/v1 VolumeAttributesClass",
		Stored:     &storagev1.VolumeAttributesClass{}, Object: &storagev1beta1.VolumeAttributesClass{}, List: &storagev1beta1.VolumeAttributesClassList{},
		Convert: convertAttributesClass,
	}
	return []resource.Version{v.Row()}
}

func convertAttributesClass(in, out resource.Object) error {
	if in, ok := in.(*storagev1.VolumeAttributesClass); ok {
		if out, ok := out.(*storagev1beta1.VolumeAttributesClass); ok {
			out.ObjectMeta, out.DriverName, out.Parameters = in.ObjectMeta, in.DriverName, in.Parameters
			return nil
		}
	}
	if in, ok := in.(*storagev1beta1.VolumeAttributesClass); ok {
		if out, ok := out.(*storagev1.VolumeAttributesClass); ok {
			out.ObjectMeta, out.DriverName, out.Parameters = in.ObjectMeta, in.DriverName, in.Parameters
			return nil
		}
	}
	return fmt.Errorf("%T does not become %T", in, out)
}

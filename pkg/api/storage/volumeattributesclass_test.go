// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"reflect"
	"testing"

	storagev1beta1 "k8s.io/api/storage/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOlderVersions converts an object of an older version to the stored version and back. The
// result must be equal to the original object.
func TestOlderVersions(t *testing.T) {
	class := &storagev1beta1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "a"}, DriverName: "d",
		Parameters: map[string]string{"a": "b"}}
	for _, v := range attributesClassVersions() {
		stored, err := v.ToStorage(class)
		if err != nil {
			t.Fatal(err)
		}
		back, err := v.FromStorage(stored)
		if err != nil || !reflect.DeepEqual(back, class) {
			t.Errorf("%+v, %v, want %+v", back, err, class)
		}
	}
}

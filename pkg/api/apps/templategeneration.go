// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
)

// The number of changes of a daemon set's template is a field of its older
// versions; apps/v1 keeps it in an annotation.

func templateGeneration(d *appsv1.DaemonSet) int64 {
	n, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// readTemplateGeneration refuses an annotation that is no number.
func readTemplateGeneration(d *appsv1.DaemonSet) error {
	said, ok := d.Annotations[appsv1.DeprecatedTemplateGeneration]
	if !ok {
		return nil
	}
	_, err := strconv.ParseInt(said, 10, 64)
	return err
}

func setTemplateGeneration(d *appsv1.DaemonSet, n int64) {
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(n, 10)
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cell

import "k8s.io/apimachinery/pkg/api/resource"

func newMilli(v int64) *resource.Quantity { return resource.NewMilliQuantity(v, resource.DecimalSI) }

func newBytes(v int64) *resource.Quantity { return resource.NewQuantity(v, resource.BinarySI) }

//go:build tools

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	_ "github.com/onsi/ginkgo/v2/ginkgo"
	_ "k8s.io/kubernetes/test/images/agnhost"
)

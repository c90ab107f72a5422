// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import "k8s.io/apimachinery/pkg/api/validation"

// Names that stand in a host name are labels; all others are subdomains.

func nameNamespace(name string, prefix bool) []string { return validation.NameIsDNSLabel(name, prefix) }

func nameService(name string, prefix bool) []string { return validation.NameIsDNSLabel(name, prefix) }

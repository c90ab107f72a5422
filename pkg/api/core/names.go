// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import "keelson.dev/apiserver/naming"

// Names that stand in a host name are labels; all others are subdomains.

func nameNamespace(name string, prefix bool) []string { return naming.NameIsDNSLabel(name, prefix) }

func nameService(name string, prefix bool) []string { return naming.NameIsDNSLabel(name, prefix) }

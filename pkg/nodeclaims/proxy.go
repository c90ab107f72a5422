// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaims

// ProxyGroup is the group of the proxies of all nodes. It has the rights of proxies.
const ProxyGroup = "keelson:proxies"

// ProxyUser returns the user name of a node's proxy. The name shows in audit logs which node sent a
// request.
func ProxyUser(node string) string { return "system:kube-proxy:" + node }

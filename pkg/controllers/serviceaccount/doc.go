// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceaccount contains the controllers of service accounts and of their token Secrets:
//
//   - Default accounts: the service account "default" exists in every namespace. Without this account,
//     the API server admits no pod in the namespace.
//   - Tokens: a Secret of type kubernetes.io/service-account-token gets a token for the service account
//     that it names, and is deleted when that service account was deleted. The tokens do not expire.
//     They are meant for clients that cannot request tokens from the API.
//   - Legacy tokens: unused token Secrets that Kubernetes before version 1.24 generated automatically
//     are deleted. After a year without use (by default) a token is marked with a label, and from then
//     on the API server rejects it. After another year the Secret is deleted. If a user removes the
//     label, the token is valid again.
//
// The API server records the last use of each legacy token, and the date on which it began to record
// uses. Tokens that a user requested and tokens that pods mount are not cleaned up.
//
// A Secret is deleted only with preconditions, so that another Secret of the same name, or a token that
// was used in the meantime, is kept.
package serviceaccount

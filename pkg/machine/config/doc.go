// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config has the kind KeelsonConfiguration: what an operator can choose about a cluster of
// machines and about one of its machines.
//
// A configuration comes from a file, from flags, or from both. [Flags.Load] reads the file strictly,
// sets the values of flags, which win over the file, sets defaults, and validates the result. The
// defaults of some fields depend on the machine: its host name and its addresses. The caller passes
// them as [Facts], so that this package reads nothing but the file.
//
// All fields are in one table, the function [Fields]. The flags, their help, the output of [Print] and
// the reference page of the documentation are made from it, so each field is in all of them. A test
// checks that the table has every field of the type.
//
// The package decides nothing about the machine itself, such as whether a port is in use. Package
// preflight does.
package config

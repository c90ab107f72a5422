// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// shared reports whether all machines of a cluster must have the same value of the field.
func (f *Field) shared() bool {
	return strings.HasPrefix(f.Path, "network.") ||
		slices.Contains([]string{"clusterName", "apiServer.port", "emulatedVersion", "ingress", "certificateValidityPeriod",
			"caCertificateValidityPeriod"}, f.Path)
}

// Shared returns a configuration with those fields of c that all machines of a cluster have in
// common. It has no other fields.
func (c *KeelsonConfiguration) Shared() *KeelsonConfiguration {
	out := &KeelsonConfiguration{TypeMeta: c.TypeMeta}
	for _, f := range Fields() {
		if f.value != nil && f.shared() {
			f.of(out).Set(f.of(c))
		}
	}
	return out
}

var errNotShared = errors.New("the cluster has another value; leave it out, or use the cluster's")

// adopt sets the fields of c that all machines have in common to those of the cluster. It returns an
// error for each of them that c sets to something else.
func (c *KeelsonConfiguration) adopt(cluster *KeelsonConfiguration) error {
	var faults []error
	for _, f := range Fields() {
		if f.value == nil || !f.shared() {
			continue
		}
		have, want := f.of(c), f.of(cluster)
		if !have.IsZero() && !reflect.DeepEqual(have.Interface(), want.Interface()) {
			faults = append(faults, fmt.Errorf("%s (--%s) is %v, want %v: %w", f.Path, f.Flag, have, want, errNotShared))
			continue
		}
		have.Set(want)
	}
	return errors.Join(faults...)
}

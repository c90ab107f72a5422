// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"github.com/spf13/pflag"
)

// Store configures what the server does when the databases of etcd become full. Kubernetes has no such
// flags. The zero value does nothing.
type Store struct {
	// EmbeddedQuota is the size of the database in bytes at which an embedded etcd rejects writes; 0
	// means etcd.DefaultQuota.
	EmbeddedQuota int64
	// WarningPercent and RefusalPercent are the shares of etcd's quota in use at which the server warns,
	// and refuses writes that need more space. 0 means never.
	WarningPercent, RefusalPercent int
	// Defragmentation makes the server defragment etcd's members and end the alarm NOSPACE.
	Defragmentation bool
	// Interval is the time between observations of the members; 0 means storehealth.ObserveInterval.
	Interval time.Duration
}

// Protects reports whether the server observes its databases.
func (s *Store) Protects() bool {
	return s.WarningPercent > 0 || s.RefusalPercent > 0 || s.Defragmentation
}

func (s *Store) addFlags(fs *pflag.FlagSet) {
	fs.Int64Var(&s.EmbeddedQuota, "embedded-etcd-quota-bytes", 0,
		"size of the database at which an embedded etcd rejects writes; 0 means 8 GiB")
	fs.IntVar(&s.WarningPercent, "store-warning-percent", 0,
		"percentage of etcd's quota in use at which the server warns with log messages and events; 0 means that "+
			"it does not warn")
	fs.IntVar(&s.RefusalPercent, "store-refusal-percent", 0,
		"percentage of etcd's quota in use at which the server answers with status 429 to requests that create "+
			"objects or make them larger, until objects are deleted; 0 means that it never refuses them")
	fs.BoolVar(&s.Defragmentation, "store-defragmentation", false,
		"defragment one member of etcd at a time when this frees enough space, and end etcd's alarm NOSPACE when "+
			"there is space again")
}

func (s *Store) validate(add func(format string, args ...any)) {
	percentage := func(flag string, value int) {
		if value < 0 || value > 100 {
			add("--%s must be between 0 and 100", flag)
		}
	}
	percentage("store-warning-percent", s.WarningPercent)
	percentage("store-refusal-percent", s.RefusalPercent)
	if s.RefusalPercent > 0 && s.WarningPercent >= s.RefusalPercent {
		add("--store-warning-percent must be less than --store-refusal-percent")
	}
	if s.EmbeddedQuota < 0 {
		add("--embedded-etcd-quota-bytes must not be negative")
	}
}

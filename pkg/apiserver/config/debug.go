// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/spf13/pflag"

// Debug says what the server tells who looks into it.
type Debug struct {
	// Contention has profiles tell of what blocks.
	Contention bool
	// Socket is a unix socket at which profiles are for who may open it; empty: there is none.
	Socket string
	// Logs serves the files of /var/log.
	Logs bool
}

func (d *Debug) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&d.Contention, "contention-profiling", false, "have profiles tell of what blocks, with --profiling")
	fs.StringVar(&d.Socket, "debug-socket-path", "", "unix socket at which /debug/pprof and /debug/flags are for everybody who may open it")
	fs.BoolVar(&d.Logs, "enable-logs-handler", false, "serve the files of /var/log at /logs/")
	_ = fs.MarkDeprecated("enable-logs-handler", "Log handler functionality is deprecated") // which there is
	fs.Lookup("enable-logs-handler").Hidden = false
}

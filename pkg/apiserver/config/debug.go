// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/spf13/pflag"

// Debug configures debugging endpoints.
type Debug struct {
	// Contention records blocking for the profiles.
	Contention bool
	// Socket is a unix socket that serves profiles to every user that can open it. If empty, there
	// is no socket.
	Socket string
	// Logs serves the files of /var/log.
	Logs bool
}

func (d *Debug) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&d.Contention, "contention-profiling", false, "record blocking in profiles; requires --profiling")
	fs.StringVar(&d.Socket, "debug-socket-path", "",
		"unix socket that serves /debug/pprof and /debug/flags to every user who can open it; empty: none")
	fs.BoolVar(&d.Logs, "enable-logs-handler", false, "serve the files of /var/log at /logs/")
	_ = fs.MarkDeprecated("enable-logs-handler", "Log handler functionality is deprecated") // cannot fail: the flag exists
	fs.Lookup("enable-logs-handler").Hidden = false
}

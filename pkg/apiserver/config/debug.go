// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/spf13/pflag"

// Debug configures debugging endpoints.
type Debug struct {
	// If Contention is true, profiles include where goroutines block.
	Contention bool
	// Socket is the path of a unix socket that serves profiles to every user who can open it. If it is
	// empty, there is no socket.
	Socket string
	// If Logs is true, the server serves the files of /var/log.
	Logs bool
}

func (d *Debug) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&d.Contention, "contention-profiling", false,
		"record in profiles where goroutines wait for locks and channels; requires --profiling")
	fs.StringVar(&d.Socket, "debug-socket-path", "",
		"path of a unix socket at which the server serves /debug/pprof and /debug/flags, to every user who "+
			"can open the socket; if empty, there is no socket")
	fs.BoolVar(&d.Logs, "enable-logs-handler", false, "serve the files of the machine's /var/log at /logs/")
	_ = fs.MarkDeprecated("enable-logs-handler", "Log handler functionality is deprecated") // cannot fail: the flag exists
	fs.Lookup("enable-logs-handler").Hidden = false
}

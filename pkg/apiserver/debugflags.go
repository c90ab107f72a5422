// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"io"
	"net/http"
	"strconv"

	"keelson.dev/keelson/pkg/daemon"
)

const (
	// debugFlagsPath lists the flags that may be changed while the server runs.
	debugFlagsPath = "/debug/flags"
	// debugFlagsPage is the list, which is that of Kubernetes: clients may read it.
	debugFlagsPage = "<html>\n<head>\n<title>/debug/flags/</title>\n</head>\n<body>\n/debug/flags/<br>\n<br>\nflags:<br>\n<table>\n" +
		"<tr>v<br>\n</table>\n<br>\nfull flags configurable<br>\n</body>\n</html>\n"
	// maxFlagValue bounds what is read of a value.
	maxFlagValue = 1 << 10
)

// addDebugFlags serves the flags that may be changed while the server runs: how
// much the log says.
func (m *mux) addDebugFlags(v *daemon.Verbosity) {
	index := document("text/html; charset=utf-8", []byte(debugFlagsPage))
	m.handle(debugFlagsPath, index)
	m.handle(debugFlagsPath+"/", index)
	m.handle(debugFlagsPath+"/v", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, text := setVerbosity(v, r)
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(code)
		_, _ = fmt.Fprintln(w, text) // a client that is gone misses nothing
	}))
}

// setVerbosity does what a request asks for, and returns the answer to it.
func setVerbosity(v *daemon.Verbosity, r *http.Request) (code int, text string) {
	if r.Method != http.MethodPut {
		return http.StatusNotAcceptable, "unsupported http method"
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxFlagValue))
	if err != nil {
		return http.StatusBadRequest, "error reading request body: " + err.Error()
	}
	n, err := strconv.ParseUint(string(body), 10, 31)
	if err != nil {
		return http.StatusBadRequest, err.Error()
	}
	v.Set(int(n))
	return http.StatusOK, "successfully set klog.logging.verbosity to " + string(body)
}

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
	// debugFlagsPath is the path of the flags that can be changed at run time.
	debugFlagsPath = "/debug/flags"
	// debugFlagsPage is the list of these flags, in Kubernetes' format, which clients may parse.
	debugFlagsPage = "<html>\n<head>\n<title>/debug/flags/</title>\n</head>\n<body>\n" +
		"/debug/flags/<br>\n<br>\nflags:<br>\n<table>\n" +
		"<tr>v<br>\n</table>\n<br>\nfull flags configurable<br>\n</body>\n</html>\n"
	// maxFlagValue is the maximum size of a value in a request.
	maxFlagValue = 1 << 10
)

// addDebugFlags serves the flags that can be changed at run time: the log verbosity.
func (m *mux) addDebugFlags(v *daemon.Verbosity) {
	index := document("text/html; charset=utf-8", []byte(debugFlagsPage))
	m.handle(debugFlagsPath, index)
	m.handle(debugFlagsPath+"/", index)
	m.handle(debugFlagsPath+"/v", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, text := setVerbosity(v, r)
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(code)
		_, _ = fmt.Fprintln(w, text) // fails if the client has closed the connection
	}))
}

// setVerbosity handles a request to change the verbosity, and returns the answer.
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

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/http"
	"strconv"
)

// checkpoint serves POST /checkpoint/{namespace}/{pod}/{container}. It makes the runtime write the
// state of a container to a file on the node.
func (s *Server) checkpoint(w http.ResponseWriter, r *http.Request) {
	namespace, name, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	pod, ok := s.cfg.Pods.Pod(namespace, name)
	if !ok {
		writeText(w, http.StatusNotFound, "pod does not exist")
		return
	}
	if !hasContainer(pod, container) {
		writeText(w, http.StatusNotFound, fmt.Sprintf("container %v does not exist", container))
		return
	}
	seconds := int64(0)
	if given := r.URL.Query()["timeout"]; len(given) > 0 {
		var err error
		if seconds, err = strconv.ParseInt(given[len(given)-1], 10, 64); err != nil {
			writeText(w, http.StatusNotFound, "cannot parse value of timeout parameter")
			return
		}
	}
	file, err := s.cfg.Runtime.Checkpoint(r.Context(), pod, container, seconds)
	if err != nil {
		writeText(w, http.StatusInternalServerError,
			fmt.Sprintf("checkpointing of %v/%v/%v failed (%v)", namespace, name, container, err))
		return
	}
	writeJSON(w, map[string][]string{"items": {file}})
}

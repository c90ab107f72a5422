// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"keelson.dev/keelson/pkg/scheduler"
)

// whyPath serves /why/NAMESPACE/POD?nodes=N. The response says why a pod is on its node, or why it
// has no node. At most N nodes are listed individually; the default is 20, and 0 means all nodes.
const whyPath = "/why/"

const whyNodes = 20

func whyHandler(s *scheduler.Scheduler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		namespace, name, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, whyPath), "/")
		if !ok || name == "" {
			http.Error(w, "the path must be "+whyPath+"NAMESPACE/POD", http.StatusBadRequest)
			return
		}
		limit := whyNodes
		if n := r.URL.Query().Get("nodes"); n != "" {
			var err error
			if limit, err = strconv.Atoi(n); err != nil || limit < 0 {
				http.Error(w, "nodes must be a number and not negative", http.StatusBadRequest)
				return
			}
		}
		answer, err := s.Why(namespace, name, limit)
		switch {
		case errors.Is(err, scheduler.ErrUnknown):
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(answer) // fails only if the client has closed the connection
	})
}

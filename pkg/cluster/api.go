// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
)

// Status describes the processes that a supervisor runs.
type Status struct {
	Config     Config         `json:"config"`
	Supervisor int            `json:"supervisor"`
	Pids       map[string]int `json:"pids"`
	Nodes      []NodeStatus   `json:"nodes"`
	// Emulates is true if the supervisor can change the release that the control plane emulates.
	Emulates bool `json:"emulates"`
}

// NodeStatus is the state of a node host. Pid is the process ID of the node's init process, or 0 if
// the node is stopped.
type NodeStatus struct {
	Node
	Address string `json:"address"`
	Pid     int    `json:"pid"`
}

// routes returns the HTTP handler of the control socket.
func (s *supervisor) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.status(), nil) })
	mux.HandleFunc("POST /nodes/add", func(w http.ResponseWriter, r *http.Request) {
		n, err := s.addNode(r.FormValue("name"), r.FormValue("bootstrap"))
		answer(w, n, err)
	})
	mux.HandleFunc("POST /nodes/start", func(w http.ResponseWriter, r *http.Request) {
		answer(w, nil, s.switchNode(r.FormValue("name"), true))
	})
	mux.HandleFunc("POST /nodes/kill", func(w http.ResponseWriter, r *http.Request) {
		answer(w, nil, s.switchNode(r.FormValue("name"), false))
	})
	mux.HandleFunc("POST /nodes/remove", func(w http.ResponseWriter, r *http.Request) {
		answer(w, nil, s.removeNode(r.FormValue("name")))
	})
	mux.HandleFunc("POST /control/stop", func(w http.ResponseWriter, r *http.Request) {
		answer(w, nil, s.setControl(r.FormValue("name"), false))
	})
	mux.HandleFunc("POST /control/start", func(w http.ResponseWriter, r *http.Request) {
		answer(w, nil, s.setControl(r.FormValue("name"), true))
	})
	mux.HandleFunc("POST /control/emulate", func(w http.ResponseWriter, r *http.Request) {
		s.emulate(r.FormValue("version"))
		answer(w, nil, nil)
	})
	mux.HandleFunc("POST /down", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, nil, nil)
		s.down()
	})
	return mux
}

func answer(w http.ResponseWriter, value any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // fails only if the client has closed the connection
}

// call sends a request to the supervisor that listens on socket, and decodes the response into its
// last argument.
func call(ctx context.Context, socket, method, path string, form url.Values, into any) error {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, method, "http://supervisor"+path, bytes.NewBufferString(form.Encode()))
	if err != nil {
		return fmt.Errorf("supervisor: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("supervisor: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err != nil {
		return fmt.Errorf("supervisor: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(string(bytes.TrimSpace(body)))
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("supervisor: %w", err)
	}
	return nil
}

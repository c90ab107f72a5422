// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/test/soak/history"
)

// api is a client of one API server. It never retries, because a retry would hide the result of the
// first attempt.
type api struct {
	name, url string
	http      *http.Client
}

// apis returns n clients with separate connections. The first one uses the balancer in front of the
// API servers. If there are several API servers, each of the next ones connects to one API server,
// and then the order repeats.
func (s *soak) apis(n int) []*api {
	st, err := s.status(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	type server struct {
		url  string
		dial func(context.Context, string, string) (net.Conn, error)
	}
	servers := []server{{s.rest.Host, (&net.Dialer{}).DialContext}}
	if s.planes > 1 {
		for i := range s.planes {
			servers = append(servers, server{fmt.Sprintf("https://10.50.0.%d:6443", 2+i), dialFrom(st.Supervisor)})
		}
	}
	var out []*api
	for i := range n {
		to := servers[i%len(servers)]
		cfg := rest.CopyConfig(s.rest)
		cfg.Host, cfg.Dial = to.url, to.dial
		client, err := rest.HTTPClientFor(cfg)
		if err != nil {
			s.t.Fatal(err)
		}
		out = append(out, &api{name: fmt.Sprintf("client-%d", i), url: to.url, http: client})
	}
	return out
}

// object has the fields of an API object that the workloads use.
type object struct {
	APIVersion string            `json:"apiVersion,omitempty"`
	Kind       string            `json:"kind,omitempty"`
	Metadata   metadata          `json:"metadata"`
	Data       map[string]string `json:"data,omitempty"`
	Spec       map[string]any    `json:"spec,omitempty"`
}

type metadata struct {
	Name            string            `json:"name,omitempty"`
	Namespace       string            `json:"namespace,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	UID             string            `json:"uid,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
}

func (o *object) version() int64 { return number(o.Metadata.ResourceVersion) }

func number(version string) int64 {
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// answer is the result of one request, as far as the client knows it.
type answer struct {
	outcome history.Outcome
	code    int
	err     error
}

// requestTimeout is longer than an API server may take to respond. A response that takes longer is
// therefore almost always lost because a process was killed.
const requestTimeout = 40 * time.Second

// do sends one request and decodes the response into its last argument.
func (a *api) do(ctx context.Context, method, path string, body, into any) answer {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var payload io.Reader = http.NoBody
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return answer{history.Refused, 0, err}
		}
		payload = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, payload)
	if err != nil {
		return answer{history.Refused, 0, err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := a.http.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return answer{history.Refused, 0, err}
		}
		return answer{history.Unknown, 0, err}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{history.Unknown, resp.StatusCode, err}
	}
	if resp.StatusCode < 300 {
		if into != nil {
			err = json.Unmarshal(data, into)
		}
		if err != nil {
			return answer{history.Unknown, resp.StatusCode, err}
		}
		return answer{history.Acknowledged, resp.StatusCode, nil}
	}
	return answer{refusal(resp.StatusCode, data), resp.StatusCode, statusError(resp.StatusCode, data)}
}

// refusal returns whether a request that got an error response certainly had no effect, or whether
// its effect is unknown.
func refusal(code int, body []byte) history.Outcome {
	if code < 500 || strings.Contains(string(body), "failed calling webhook") {
		return history.Refused
	}
	return history.Unknown
}

func statusError(code int, body []byte) error {
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		return fmt.Errorf("%d: %s", code, status.Message)
	}
	return fmt.Errorf("%d: %.200s", code, body)
}

// resource describes one kind of objects, and the field of such an object that holds its value.
type resource struct {
	name, path, apiVersion, kind string
	value                        func(o *object) string
	set                          func(o *object, value string)
}

func (r *resource) object(name, value string) *object {
	o := &object{APIVersion: r.apiVersion, Kind: r.kind, Metadata: metadata{Name: name}}
	r.set(o, value)
	return o
}

func (r *resource) key(name string) string { return r.name + "/" + name }

// precondition returns delete options that restrict a delete to the given version of the object.
func precondition(o *object) any {
	return map[string]any{
		"apiVersion": "v1", "kind": "DeleteOptions",
		"preconditions": map[string]any{"uid": o.Metadata.UID, "resourceVersion": o.Metadata.ResourceVersion},
	}
}

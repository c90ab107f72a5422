// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package static

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"keelson.dev/keelson/pkg/kubelet/source"
)

const (
	// maxAnswer is the maximum size of a response in bytes, and askTimeout the timeout of a
	// request.
	maxAnswer  = 10 << 20
	askTimeout = 10 * time.Second
)

// ask reads the URL of static pods periodically until ctx ends. It sends on asked after each
// attempt, even a failed one.
func (m *Manager) ask(ctx context.Context, asked chan<- struct{}) {
	client := &http.Client{
		Timeout: askTimeout,
		// Do not follow redirects, because only the configured server may run pods on this node.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t := m.cfg.Clock.NewTicker(m.cfg.URLPeriod)
	defer t.Stop()
	for {
		pods, err := m.fetch(ctx, client)
		if ctx.Err() != nil {
			return
		}
		m.serve(pods, err)
		select {
		case asked <- struct{}{}:
		default:
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C():
		}
	}
}

// serve stores the pods of a response. If pods is nil, it keeps the earlier pods. It logs err.
func (m *Manager) serve(pods map[string]*v1.Pod, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != m.complaint {
		m.cfg.Log.Warn("Failed to read static pods from the URL", "err", err)
	}
	if m.complaint = text; pods != nil {
		m.served, m.urlRead = pods, true
		m.merge()
	}
}

// fetch reads the pods of the URL. The keys are "namespace/name". If one pod is invalid, fetch
// returns an error, and nil instead of the pods. As in Kubernetes, an empty response is an error but
// means that there are no pods; fetch then returns an empty map.
func (m *Manager) fetch(ctx context.Context, client *http.Client) (map[string]*v1.Pod, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.cfg.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("static pods of %s: %w", m.cfg.URL, err)
	}
	r.Header = m.cfg.Header.Clone()
	resp, err := client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("static pods: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("static pods of %s: %w", m.cfg.URL, err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("static pods of %s: %s", m.cfg.URL, resp.Status)
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("static pods of %s: the response is too large", m.cfg.URL)
	case len(body) == 0:
		return map[string]*v1.Pod{}, fmt.Errorf("static pods of %s: zero-length data received", m.cfg.URL)
	}
	items, err := manifests(body)
	if err != nil {
		return nil, fmt.Errorf("static pods of %s: %w", m.cfg.URL, err)
	}
	out := map[string]*v1.Pod{}
	for i, item := range items {
		pod, err := decode(item, origin{source.HTTP, m.cfg.URL}, m.cfg.NodeName)
		if err != nil {
			return nil, fmt.Errorf("static pods of %s: number %d: %w", m.cfg.URL, i+1, err)
		}
		if out[key(pod)] != nil {
			return nil, fmt.Errorf("static pods of %s: %s is listed twice", m.cfg.URL, key(pod))
		}
		out[key(pod)] = pod
	}
	return out, nil
}

// manifests returns the pods in a response as JSON documents. The response is a Pod or a PodList.
func manifests(body []byte) ([][]byte, error) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Items           []json.RawMessage `json:"items"`
	}
	if err := yaml.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	switch {
	case list.Kind == "Pod":
		return [][]byte{body}, nil
	case list.Kind != "PodList" || list.APIVersion != "v1":
		return nil, errors.New("neither a v1 Pod nor a v1 PodList")
	}
	var out [][]byte
	for _, item := range list.Items {
		// An item of a list may omit apiVersion and kind.
		pod := map[string]any{"apiVersion": "v1", "kind": "Pod"}
		if err := json.Unmarshal(item, &pod); err != nil {
			return nil, err
		}
		b, err := json.Marshal(pod)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

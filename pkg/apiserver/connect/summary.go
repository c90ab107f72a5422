// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// maxSummary is the maximum size of a kubelet's summary, in bytes.
const maxSummary = 16 << 20

// Summary returns the CPU and memory usage of a node and its pods from its kubelet.
func (k *Kubelets) Summary(ctx context.Context, node string) (*statsapi.Summary, error) {
	at, err := k.of(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("kubelet of %s: %w", node, err)
	}
	u := at.url("/stats/summary", url.Values{"only_cpu_and_memory": {"true"}})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("kubelet of %s: %w", node, err)
	}
	resp, err := k.transports().verified.RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("kubelet of %s: %w", node, err)
	}
	defer func() { _ = resp.Body.Close() }() // the body has been read, or is not needed
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("kubelet of %s: %s", node, resp.Status)
	}
	var out statsapi.Summary
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxSummary)).Decode(&out); err != nil {
		return nil, fmt.Errorf("kubelet of %s: summary: %w", node, err)
	}
	return &out, nil
}

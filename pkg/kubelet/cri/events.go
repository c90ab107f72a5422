// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Digest returns a digest of the state of each pod in the runtime. The digest of a pod changes when
// one of the pod's sandboxes or containers changes its state.
func (c *Client) Digest(ctx context.Context) (map[types.UID]string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	boxes, err := c.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	list, err := c.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	c.statuses.retain(boxes.Items, list.Containers)
	facts := map[types.UID][]string{}
	for _, b := range boxes.Items {
		if uid := types.UID(b.GetLabels()[LabelPodUID]); uid != "" {
			facts[uid] = append(facts[uid], fmt.Sprint(b.Id, b.State))
		}
	}
	for _, k := range list.Containers {
		if uid := types.UID(k.GetLabels()[LabelPodUID]); uid != "" {
			facts[uid] = append(facts[uid], fmt.Sprint(k.Id, k.State))
		}
	}
	digest := make(map[types.UID]string, len(facts))
	for uid, f := range facts {
		slices.Sort(f)
		h := fnv.New64a()
		_, _ = h.Write([]byte(strings.Join(f, ",")))
		digest[uid] = fmt.Sprint(h.Sum64())
	}
	return digest, nil
}

// Watch follows the runtime's event stream until ctx ends or the stream breaks. When the stream is
// open, it calls opened; the caller must then list all pods, because Watch does not deliver earlier
// events. For each event, Watch calls changed with the UID of the pod and the time of the event.
func (c *Client) Watch(ctx context.Context, opened func(), changed func(pod types.UID, at time.Time)) error {
	stream, err := c.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return fmt.Errorf("container events: %w", err)
	}
	opened()
	for {
		e, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("container events: %w", err)
		}
		if uid := e.GetPodSandboxStatus().GetMetadata().GetUid(); uid != "" {
			changed(types.UID(uid), time.Unix(0, e.GetCreatedAt()))
		}
	}
}

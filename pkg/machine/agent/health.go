// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/balancer"
	"keelson.dev/keelson/pkg/epoch"
)

const (
	// checkInterval is how often the agent asks each API server whether it is ready. The balancer
	// notices dead servers by itself; the check finds servers that accept connections and are not
	// ready. Each machine of the cluster sends one such request to each server in this time.
	checkInterval = 5 * time.Second
	checkTimeout  = 4 * time.Second
	// seekInterval is the interval while the machine has no server of the restored cluster, for example
	// after it has booted. Without a check, it does not know that a server belongs to this cluster. The next
	// check after the end of a connection to a server follows also after this time.
	seekInterval = 500 * time.Millisecond
	// failuresUntilUnusable is how many consecutive checks must fail before a server is not used any
	// more. A single failure can be a restart of the API server's own clients.
	failuresUntilUnusable = 2
	// maxAnswer is how much of an answer is read.
	maxAnswer = 64 << 10
)

// checks finds out which of a balancer's servers are ready.
type checks struct {
	balancer *balancer.Balancer
	client   *http.Client
	clock    clock.Clock
	log      *slog.Logger
	failures map[string]int // consecutive failures by server
	epochs   *epochs
	ages     *ages
	seen     func(ctx context.Context, shown map[string]int64, highest int64) // may be nil
	// lost is true if the cluster was restored, and no server of the balancer has shown its epoch.
	lost atomic.Bool
}

func newChecks(rc *rest.Config, e *epochs, a *ages, clk clock.Clock, log *slog.Logger) (*checks, error) {
	rc = rest.CopyConfig(rc)
	rc.Timeout, rc.Dial = checkTimeout, a.dial
	client, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, fmt.Errorf("client of health checks: %w", err)
	}
	return &checks{balancer: a.balancer, client: client, clock: clk, log: log, failures: map[string]int{},
		epochs: e, ages: a}, nil
}

// run checks the servers periodically until ctx ends.
func (c *checks) run(ctx context.Context) {
	defer c.client.CloseIdleConnections()
	for {
		interval := checkInterval
		if !c.round(ctx) {
			interval = seekInterval
		}
		select {
		case <-ctx.Done():
			return
		case <-c.clock.After(interval):
		case <-c.ages.again:
			select {
			case <-ctx.Done():
				return
			case <-c.clock.After(seekInterval): // the server may be restarting
			}
		}
	}
}

// round checks each server once, all at the same time. It returns false if the cluster was restored and no
// server of the restored cluster answers.
func (c *checks) round(ctx context.Context) (found bool) {
	servers := c.balancer.Servers()
	errs, epochs := make([]error, len(servers)), make([]int64, len(servers))
	var wait sync.WaitGroup
	for i, s := range servers {
		wait.Go(func() {
			if epochs[i], errs[i] = ready(ctx, c.client, s); errs[i] == nil {
				c.ages.learn(ctx, c.client, s)
			}
		})
	}
	wait.Wait()
	if ctx.Err() != nil {
		return true
	}
	found = c.epochs.apply(c.balancer, servers, epochs)
	c.ages.apply(servers, func(i int) bool { return errs[i] == nil })
	c.lost.Store(!found)
	c.report(ctx, servers, epochs, errs)
	next := map[string]int{}
	for i, s := range servers {
		before := c.failures[s]
		if errs[i] != nil {
			next[s] = min(before+1, failuresUntilUnusable)
		}
		switch {
		case next[s] == failuresUntilUnusable && before < failuresUntilUnusable:
			c.log.Warn("API server is not ready", "server", s, "err", errs[i])
			c.balancer.SetUsable(s, false)
		case next[s] == 0 && before == failuresUntilUnusable:
			c.log.Info("API server is ready again", "server", s)
			c.balancer.SetUsable(s, true)
		}
	}
	c.failures = next
	return found
}

// report calls seen with the epochs that servers have shown.
func (c *checks) report(ctx context.Context, servers []string, epochs []int64, errs []error) {
	if c.seen == nil {
		return
	}
	shown, highest, known := map[string]int64{}, int64(0), c.epochs.highest()
	for i, s := range servers {
		if epochs[i] != unknown {
			shown[s] = epochs[i]
		}
		if errs[i] == nil && epochs[i] == known {
			highest = epochs[i]
		}
	}
	c.seen(ctx, shown, highest)
}

// runFormer asks the earlier servers in k for their epochs periodically until ctx ends. If one of them has
// a higher epoch than the machine knows, the cluster was restored there, and the machine uses it. It also
// uses one with the highest epoch if the balancer has none. The first round is not at once, so that the agent has
// usually read which servers were removed while it did not run.
func (c *checks) runFormer(ctx context.Context, k *known) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.clock.After(checkInterval):
			c.roundFormer(ctx, k)
		}
	}
}

// roundFormer asks each of the earlier servers once, all at the same time. Those that are not ready do not count.
func (c *checks) roundFormer(ctx context.Context, k *known) {
	servers := k.formerServers()
	if len(servers) == 0 {
		return
	}
	epochs := make([]int64, len(servers))
	var wait sync.WaitGroup
	for i, s := range servers {
		wait.Go(func() {
			var err error
			if epochs[i], err = ready(ctx, c.client, s); err != nil {
				epochs[i] = unknown
			}
		})
	}
	wait.Wait()
	former := k.formerServers()
	for i, s := range servers {
		if !slices.Contains(former, s) { // forgotten or used meanwhile
			epochs[i] = unknown
		}
	}
	best, highest := slices.Max(epochs), c.epochs.highest()
	if best < highest || best == highest && !c.lost.Load() || c.epochs.raise(best) != nil {
		return
	}
	var restored []string
	for i, s := range servers {
		if epochs[i] == best {
			restored = append(restored, s)
		}
	}
	k.use(restored)
}

// Ready returns the epoch of the API server at HOST:PORT, and a nil error if the server says that it is ready.
// rc has the kubelet's credentials.
func Ready(ctx context.Context, rc *rest.Config, server string) (number int64, err error) {
	client, err := rest.HTTPClientFor(rc)
	if err != nil {
		return unknown, fmt.Errorf("client of health checks: %w", err)
	}
	return ready(ctx, client, server)
}

// ready returns the server's epoch, or unknown if the server does not answer. The error is nil if the server
// says that it is ready.
func ready(ctx context.Context, client *http.Client, server string) (number int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+server+"/readyz", http.NoBody)
	if err != nil {
		return unknown, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return unknown, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)) // so that the connection can be used again
	if number, err = epoch.Of(resp.Header); err != nil {
		return unknown, err
	}
	// A server that does not accept the kubelet's credentials works. Other clients may have better
	// ones.
	if resp.StatusCode >= http.StatusInternalServerError {
		return number, fmt.Errorf("%s: %s", req.URL, resp.Status)
	}
	return number, nil
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package perturb

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/features"
)

// Cell is an API server that runs in virtual time (package testing/synctest).
type Cell struct {
	// Client acts as an administrator, and its requests never fail because of injected faults.
	Client kubernetes.Interface
	// Dynamic is like Client, but for objects of any kind.
	Dynamic dynamic.Interface

	tb       testing.TB
	clock    clock.Clock
	server   *testserver.Server
	pipes    *pipes
	base     *http.Transport
	baseline map[string][]byte

	mu        sync.Mutex
	revisions []revision
}

// revision is a revision of the store with the time at which it was recorded.
type revision struct {
	at time.Time
	rv int64
}

// NewCell starts an API server that serves the given APIs in addition to the default ones. The
// caller must be within a synctest bubble. The server stops when the bubble's test ends.
func NewCell(tb testing.TB, serve map[string]bool) *Cell {
	tb.Helper()
	c := &Cell{tb: tb, clock: clock.Real(), pipes: newPipes()}
	c.server = testserver.Start(tb, testserver.Options{Listener: c.pipes, Configure: func(cfg *config.Config) {
		disablePeriodicWork(cfg)
		cfg.RuntimeConfig = serve
		cfg.Features.Turned = features.Turned{
			features.StorageVersionAPI:      serve["internal.apiserver.k8s.io/v1alpha1"],
			features.StorageVersionMigrator: serve["storagemigration.k8s.io/v1"],
			features.GenericWorkload:        serve["scheduling.k8s.io/v1beta1"],
		}
	}})
	tlsConfig, err := rest.TLSConfigFor(c.server.Config)
	if err != nil {
		tb.Fatal(err)
	}
	c.base = &http.Transport{DialContext: c.pipes.dial, TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true}
	tb.Cleanup(c.base.CloseIdleConnections)
	admin := c.config(c.base, "")
	if c.Client, err = kubernetes.NewForConfig(admin); err != nil {
		tb.Fatal(err)
	}
	plain := rest.CopyConfig(admin)
	plain.ContentType, plain.AcceptContentTypes = "", ""
	if c.Dynamic, err = dynamic.NewForConfig(plain); err != nil {
		tb.Fatal(err)
	}
	c.settle(startup)
	c.baseline = c.Contents()
	return c
}

// disablePeriodicWork disables features of the server that do periodic work and do not matter to
// controllers.
func disablePeriodicWork(cfg *config.Config) {
	cfg.PriorityAndFairness = false
	cfg.AdvertiseAddress = "127.0.0.1" // a server with a loopback address publishes no endpoints
	cfg.DisableAdmission = append(cfg.DisableAdmission,
		"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", "ValidatingAdmissionWebhook", "MutatingAdmissionWebhook")
}

// startup is how long NewCell waits after the server has started, until it has stored its own
// objects.
const startup = 10 * time.Second

// config returns a client configuration that uses the transport rt. The client acts as the given
// service account in kube-system, or as an administrator if account is "".
func (c *Cell) config(rt http.RoundTripper, account string) *rest.Config {
	rc := &rest.Config{Host: c.server.URL, QPS: -1, Transport: rt}
	rc.ContentType = "application/vnd.kubernetes.protobuf"
	rc.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if account != "" {
		rc.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:kube-system:" + account,
			Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
		}
	}
	return rc
}

// settle waits until the virtual duration d has passed.
func (c *Cell) settle(d time.Duration) { <-c.clock.After(d) }

// Contents returns all keys and values in the API server's store.
func (c *Cell) Contents() map[string][]byte {
	c.tb.Helper()
	all, err := c.server.KV.Range(context.Background(), kv.RangeOptions{Prefix: "/"})
	if err != nil {
		c.tb.Fatal(err)
	}
	out := make(map[string][]byte, len(all.Items))
	for _, item := range all.Items {
		out[item.Key] = item.Value
	}
	return out
}

// reset restores the contents that the API server's store had after the server's start.
func (c *Cell) reset() {
	c.tb.Helper()
	ctx := context.Background()
	all, err := c.server.KV.Range(ctx, kv.RangeOptions{Prefix: "/"})
	if err != nil {
		c.tb.Fatal(err)
	}
	present := map[string]kv.Item{}
	for _, item := range all.Items {
		present[item.Key] = item
		if _, keep := c.baseline[item.Key]; !keep {
			if _, err := c.server.KV.Delete(ctx, item.Key, item.ModRevision); err != nil {
				c.tb.Fatal(err)
			}
		}
	}
	for key, value := range c.baseline {
		if string(present[key].Value) == string(value) {
			continue
		}
		if _, err := c.server.KV.Put(ctx, key, value, present[key].ModRevision, 0); err != nil {
			c.tb.Fatal(err)
		}
	}
	c.mu.Lock()
	c.revisions = nil
	c.mu.Unlock()
	c.recordRevision()
}

// recordRevision records the present revision of the store and returns it.
func (c *Cell) recordRevision() int64 {
	rv, err := c.server.KV.Revision(context.Background())
	if err != nil {
		// Cannot happen: a store in memory never fails.
		panic("perturb: revision of a store in memory: " + err.Error())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.revisions); n == 0 || c.revisions[n-1].rv != rv {
		c.revisions = append(c.revisions, revision{c.clock.Now(), rv})
	}
	return rv
}

// maxStaleness is the maximum age of the state that a list returns if the fault called old occurs.
const maxStaleness = 20 * time.Second

// oldRevision returns the revision whose state a list must return if the fault old occurs, or "" if
// it does not occur.
func (c *Cell) oldRevision(f *Faults, what string) string {
	c.recordRevision()
	hit, x := f.draw(old, what)
	if !hit {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	oldest := c.clock.Now().Add(-maxStaleness)
	var usable []revision
	for _, r := range c.revisions {
		if !r.at.Before(oldest) {
			usable = append(usable, r)
		}
	}
	if len(usable) == 0 {
		return ""
	}
	return strconv.FormatInt(usable[x%uint64(len(usable))].rv, 10)
}

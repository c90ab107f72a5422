// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"keelson.dev/api/clock"
)

// serverPoll is how often Lead checks whether the API server is ready.
const serverPoll = 50 * time.Millisecond

// ErrLostLease is returned by Lead when this process has lost the lease, so that another process
// may have become the leader.
var ErrLostLease = errors.New("leader election lost")

// Lead waits until this process holds the lease, and then runs work. If leader election is
// disabled, it runs work immediately. Lead returns the error of work when work has returned,
// ErrLostLease when the lease is lost, or nil when ctx ends first. In the last two cases the
// process should exit, because work may not have stopped yet.
func Lead(ctx context.Context, f ElectionFlags, client kubernetes.Interface, clk clock.Clock, log *slog.Logger,
	work func(context.Context) error) error {
	if !f.Enabled {
		return work(ctx)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("identity for the leader election: %w", err)
	}
	identity := host + "_" + string(uuid.NewUUID())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Wait for the API server first. The elector waits for seconds before it retries, and that
	// would delay processes that start together with the API server.
	if err := awaitServer(ctx, client, clk); err != nil {
		return nil // ctx has ended
	}
	result := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: f.ResourceName,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  objectMeta(f.ResourceNamespace, f.ResourceName),
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: f.LeaseDuration, RenewDeadline: f.RenewDeadline, RetryPeriod: f.RetryPeriod,
		// Release the lease when ctx ends, so that the next leader need not wait until the lease
		// expires.
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				log.Info("Became the leader", "lease", f.ResourceName, "identity", identity)
				result <- work(ctx)
				cancel()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	elector.Run(ctx)
	if ctx.Err() == nil {
		return ErrLostLease
	}
	select {
	case err := <-result:
		return err
	default:
		return nil
	}
}

// awaitServer waits until the API server is ready, or ctx ends.
func awaitServer(ctx context.Context, client kubernetes.Interface, clk clock.Clock) error {
	for {
		if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err == nil {
			return nil
		}
		t := clk.NewTimer(serverPoll)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C():
		}
	}
}

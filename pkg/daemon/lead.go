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

// serverPoll is how often an API server that is not ready is asked again.
const serverPoll = 50 * time.Millisecond

// ErrLostLease is why Lead returns when another process may be leading now.
var ErrLostLease = errors.New("leader election lost")

// Lead runs work while this process holds the lease; with the election disabled
// it just runs it. It returns when work does, with its error, or with
// ErrLostLease: the process should then end, since what work had begun may
// still be under way.
func Lead(ctx context.Context, f ElectionFlags, client kubernetes.Interface, clk clock.Clock, log *slog.Logger, work func(context.Context) error) error {
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
	// The elector tries again after seconds; processes that start together with
	// the API server need not wait for that.
	if err := awaitServer(ctx, client, clk); err != nil {
		return nil // the end was asked for
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
		// Released on a clean end, so that the next one need not wait.
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				log.Info("leading", "lease", f.ResourceName, "identity", identity)
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

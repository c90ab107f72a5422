// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import "time"

const (
	// readHeaderTimeout limits the time that a client takes to send its request headers.
	readHeaderTimeout = 32 * time.Second
	// idleTimeout is how long a connection without requests is kept.
	idleTimeout = 90 * time.Second
	// maxStreams is the default maximum of concurrent streams of an HTTP/2 connection.
	maxStreams = 250
	// goawayTimeout is how long connections have to end after GOAWAY at shutdown. The last answers may be those to
	// requests that had arrived and were not yet counted as being in flight. Most clients close at once.
	goawayTimeout = 3 * time.Second
	// informerResync disables periodic resyncs of informers, because no handler of the server relies
	// on them.
	informerResync = 0
	// hookRetry is how long a start hook waits before another attempt.
	hookRetry = 500 * time.Millisecond
	// serviceCIDRInterval is how often the default ServiceCIDR is checked, as in Kubernetes.
	serviceCIDRInterval = 10 * time.Second
	// policySeen is how long bootstrapRoles waits for the authorizer to see the default policy
	// before it reconciles the policy again.
	policySeen = 10 * time.Second
	// announceInterval is the first interval at which a starting server checks its readiness.
	announceInterval = 5 * time.Millisecond
	// serverLease is how long a server that no longer renews its lease stays an endpoint of the
	// "kubernetes" service. serverRenew is the interval of renewals.
	serverLease = 15 * time.Second
	serverRenew = 10 * time.Second
)

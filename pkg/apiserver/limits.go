// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import "time"

const (
	// readHeaderTimeout is how long a client may take to say what it wants.
	readHeaderTimeout = 32 * time.Second
	// idleTimeout is how long a connection without requests is kept.
	idleTimeout = 90 * time.Second
	// maxStreams is how many streams an HTTP/2 connection has unless that is configured.
	maxStreams = 250
	// lastWords is how long idle connections are given to take leave.
	lastWords = 100 * time.Millisecond
	// informerResync: informers replay nothing; what they feed is level driven.
	informerResync = 0
	// hookRetry is how long a start hook waits before another attempt.
	hookRetry = 500 * time.Millisecond
	// policySeen is how long the authorizer may take to see the default policy
	// before it is looked for what of it is missing.
	policySeen = 10 * time.Second
	// announceInterval is how soon a starting server looks again whether it is
	// ready; it waits twice as long each time.
	announceInterval = 5 * time.Millisecond
	// serverLease is how long a server that went silent stays an endpoint of
	// the "kubernetes" service, and serverRenew how often it speaks.
	serverLease = 15 * time.Second
	serverRenew = 10 * time.Second
)

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clock is the only package of Keelson that reads the machine's clock or makes random
// numbers. All other code gets a Clock (or a *rand.Rand) from its caller, so that tests can run
// with virtual time and a fixed seed.
//
// The interfaces are those of k8s.io/utils/clock; fake clocks for tests are in
// k8s.io/utils/clock/testing.
package clock

import (
	cryptorand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"

	"k8s.io/utils/clock"
)

// Clock returns the time and makes timers and tickers. It is safe for concurrent use.
type Clock = clock.WithTickerAndDelayedExecution

// Real returns the machine's clock.
func Real() Clock { return clock.RealClock{} }

// NewRand returns a source of randomness seeded by the operating system.
// It is not safe for concurrent use.
func NewRand() *rand.Rand {
	var seed [16]byte
	_, _ = cryptorand.Read(seed[:]) // never fails (crypto/rand)
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(seed[:8]), binary.LittleEndian.Uint64(seed[8:])))
}

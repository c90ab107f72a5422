// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clock is the only place where Keelson reads the machine's time or
// makes randomness. Everything else is handed a Clock (or a *rand.Rand) by its
// caller, so that a whole cell can run under virtual time with a seed.
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

// Clock tells the time and makes timers and tickers. It is safe for concurrent use.
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

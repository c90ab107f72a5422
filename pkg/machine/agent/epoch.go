// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"slices"
	"sync"

	"keelson.dev/keelson/pkg/balancer"
	"keelson.dev/keelson/pkg/epoch"
)

// unknown stands for the epoch of a server that does not answer.
const unknown = -1

// epochs lets a balancer refuse servers that have the state of the cluster before a restore. It remembers
// the highest epoch that a server has shown in a file, because these servers can come back when the machine
// has restarted meanwhile.
type epochs struct {
	file    epoch.File
	log     *slog.Logger
	refused map[string]bool // by server; used by apply only

	mu   sync.Mutex
	most int64 // the highest epoch, which is in the file
}

// newEpochs reads the file. If the cluster was restored, b uses a server only when its epoch is known.
func newEpochs(file string, b *balancer.Balancer, log *slog.Logger) *epochs {
	e := &epochs{file: epoch.File(file), log: log}
	if e.most, _ = e.file.Read(); e.most > 0 {
		b.Select()
	}
	return e
}

// highest returns the highest epoch that the machine knows.
func (e *epochs) highest() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.most
}

// raise takes an epoch that a server has shown. It returns an error if that is the highest one, and cannot be stored.
// Servers with an epoch are used only after raise has returned nil: a machine that has used a restored server
// must never go back.
func (e *epochs) raise(shown int64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if shown <= e.most {
		return nil
	}
	if err := e.file.Write(shown); err != nil {
		e.log.Error("Failed to store the epoch of the cluster", "epoch", shown, "err", err)
		return err
	}
	e.log.Info("The cluster was restored", "epoch", shown, "before", e.most)
	e.most = shown
	return nil
}

// apply takes the epochs of servers, and lets b refuse those with another epoch than the highest one. A higher one
// could not be stored. apply returns false if the cluster was restored, but no server with the highest epoch answers.
func (e *epochs) apply(b *balancer.Balancer, servers []string, shown []int64) bool {
	best := slices.Max(append(shown, 0))
	_ = e.raise(best) // has logged the error; the next check tries again
	highest := e.highest()
	refused := map[string]bool{}
	for i, s := range servers {
		if shown[i] == unknown {
			refused[s] = e.refused[s]
			continue
		}
		refused[s] = shown[i] != highest
		if shown[i] < highest && !e.refused[s] {
			e.log.Warn("Refused an API server with the state before a restore", "server", s, "epoch", shown[i])
		}
		b.Admit(s, !refused[s])
	}
	e.refused = refused
	if highest == 0 && best == 0 {
		return true
	}
	b.Select()
	return best >= highest
}

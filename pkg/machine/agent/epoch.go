// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"os"
	"slices"
	"strings"

	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/balancer"
	"keelson.dev/keelson/pkg/epoch"
)

// unknown stands for the epoch of a server that does not answer.
const unknown = -1

// epochs lets a balancer refuse servers that have the state of the cluster before a restore. It remembers
// the highest epoch that a server has shown in a file, because these servers can come back when the machine
// has restarted meanwhile.
type epochs struct {
	file    string
	highest int64
	refused map[string]bool // by server
	log     *slog.Logger
}

// newEpochs reads the file. If the cluster was restored, b uses a server only when its epoch is known.
func newEpochs(file string, b *balancer.Balancer, log *slog.Logger) *epochs {
	e := &epochs{file: file, highest: ReadEpoch(file), log: log}
	if e.highest > 0 {
		b.Select()
	}
	return e
}

// apply takes the epochs of servers, and lets b refuse those with a lower epoch than the highest one. It
// returns false if b knows that the cluster was restored, but no server with the highest epoch answers.
func (e *epochs) apply(b *balancer.Balancer, servers []string, shown []int64) bool {
	highest := slices.Max(append(shown, 0))
	if highest > e.highest {
		// On the disk first: a machine that has used a restored server must never go back.
		if err := WriteEpoch(e.file, highest); err != nil {
			e.log.Error("Failed to store the epoch of the cluster", "epoch", highest, "err", err)
		} else {
			e.log.Info("The cluster was restored", "epoch", highest, "before", e.highest)
			e.highest = highest
		}
	}
	refused := map[string]bool{}
	for i, s := range servers {
		if shown[i] == unknown {
			refused[s] = e.refused[s]
			continue
		}
		if refused[s] = shown[i] < e.highest; refused[s] && !e.refused[s] {
			e.log.Warn("Refused an API server with the state before a restore", "server", s, "epoch", shown[i])
		}
		b.Admit(s, !refused[s])
	}
	e.refused = refused
	if e.highest == 0 {
		return true
	}
	b.Select()
	return highest >= e.highest
}

// ReadEpoch reads a file that WriteEpoch has written. It returns 0 if there is none, or if it has no epoch.
func ReadEpoch(file string) int64 {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	highest, err := epoch.Parse(strings.TrimSpace(string(data)))
	if err != nil {
		return 0 // the agent learns it again from the API servers
	}
	return highest
}

// WriteEpoch stores the highest epoch that this machine knows, and returns when it is on the disk.
func WriteEpoch(file string, highest int64) error {
	return atomicfile.WriteDurably(file, []byte(epoch.Format(highest)+"\n"), 0o600)
}

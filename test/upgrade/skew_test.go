// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"maps"
	"slices"
	"strings"

	"keelson.dev/keelson/pkg/cluster"
)

// olderClients replaces the controller managers, schedulers and kubelets by those of 1.36, while the
// API servers are of 1.37. The rules of Kubernetes for mixed versions allow this, but not programs
// that are newer than an API server.
func (u *upgrade) olderClients() {
	u.t.Helper()
	st, err := cluster.Inspect(u.t.Context(), u.cfg)
	if err != nil {
		u.t.Fatal(err)
	}
	for _, process := range slices.Sorted(maps.Keys(st.Pids)) {
		for _, program := range []string{"controller-manager-", "scheduler-", "kubelet-"} {
			if strings.HasPrefix(process, program) {
				u.restartWith(process, u.previousPrograms)
			}
		}
	}
	u.nodesRun("36")
	u.controllersWork()
}

// bothClients checks that the commands of kubectl in ctl of 1.36 and of 1.37 work.
func (u *upgrade) bothClients() {
	u.t.Helper()
	for _, programs := range []string{u.previousPrograms, u.presentPrograms} {
		u.runOf(programs, workload, "apply", "-f", "-")
		u.runOf(programs, workload, "apply", "-f", "-", "--dry-run=server", "--server-side", "--force-conflicts")
		for _, c := range []struct{ args, want string }{
			{"get all -A -o wide", "deployment.apps/web"},
			{"describe pods -n load", "Container ID:"},
			{"explain deployment.spec.replicas", "replicas"},
			{"rollout status deployment/web -n load", "successfully rolled out"},
			{"create configmap client -n load --from-literal=k=v", "created"},
			{"label configmap client -n load a=b", "labeled"},
			{"get configmaps -n load -l a=b", "client"},
			{"delete configmap client -n load", "deleted"},
			{"logs -n load db-0", ""},
			{"exec -n load db-0 -- ls -d /data", "/data"},
		} {
			if out := u.runOf(programs, "", strings.Fields(c.args)...); !strings.Contains(out, c.want) {
				u.t.Errorf("%v: %s/ctl %s: %q, want %q", u.at(), programs, c.args, out, c.want)
			}
		}
	}
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeauth

import (
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// TestWritesBeforeTheGraph checks that a node may write its Lease before the graph is loaded, but not
// before it is known that the node is not fenced, and that it may read nothing that needs the graph.
func TestWritesBeforeTheGraph(t *testing.T) {
	node := &user.DefaultInfo{Name: "system:node:n1", Groups: []string{"system:nodes"}}
	renew := authorizer.AttributesRecord{User: node, Verb: "update", APIGroup: "coordination.k8s.io",
		Resource: "leases", Namespace: "kube-node-lease", Name: "n1", ResourceRequest: true}
	read := authorizer.AttributesRecord{User: node, Verb: "get", Resource: "secrets", Namespace: "ns", Name: "s",
		ResourceRequest: true}
	for name, tc := range map[string]struct {
		fenced, known bool
		want          authorizer.Decision
	}{
		"marks unknown": {false, false, authorizer.DecisionNoOpinion},
		"marks known":   {false, true, authorizer.DecisionAllow},
		"fenced":        {true, true, authorizer.DecisionDeny},
	} {
		a := NewAuthorizer(NewGraph(), func(authorizer.Attributes) bool { return false },
			func(string) (bool, bool) { return tc.fenced, tc.known }, func() bool { return false })
		if got, why, _ := a.Authorize(t.Context(), renew); got != tc.want {
			t.Errorf("%s: renewal of a Lease: %v, %s", name, got, why)
		}
		if got, why, _ := a.Authorize(t.Context(), read); got != authorizer.DecisionNoOpinion {
			t.Errorf("%s: read of a Secret: %v, %s", name, got, why)
		}
	}
}

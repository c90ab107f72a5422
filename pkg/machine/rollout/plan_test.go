// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"keelson.dev/api/machines/v1alpha1"
	"keelson.dev/keelson/pkg/apiserver/admission/webhookhealth"
	"keelson.dev/keelson/pkg/machine/preflight"
)

var now = time.Unix(1_800_000_000, 0)

// versions has the versions of Kubernetes of the releases in tests.
var versions = map[string]string{"1": "v1.36.1", "2": "v1.37.2", "2.1": "v1.37.3", "3": "v1.38.0", "5": "v1.41.0"}

// exampleMachine returns a machine on which all releases are installed.
func exampleMachine(name, release, previous string, controlPlane bool) v1alpha1.Machine {
	m := v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
	m.Status = v1alpha1.MachineStatus{Release: release, Previous: previous, ControlPlane: controlPlane,
		Heartbeat: &metav1.Time{Time: now}}
	for name, version := range versions {
		m.Status.Releases = append(m.Status.Releases, v1alpha1.Release{Name: name, Kubernetes: version})
	}
	return m
}

func exampleNode(name, kubelet string) v1.Node {
	n := v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.NodeInfo.KubeletVersion = kubelet
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	return n
}

// exampleState returns a cluster with two control planes and two workers, which all run release 2.
func exampleState() *State {
	s := &State{Now: now, Backup: now.Add(-time.Hour)}
	for i, name := range []string{"w1", "c2", "w2", "c1"} {
		m := exampleMachine(name, "2", "1", strings.HasPrefix(name, "c"))
		m.CreationTimestamp = metav1.NewTime(now.Add(-time.Duration(i) * time.Hour)) // c1 is the oldest
		s.Machines = append(s.Machines, m)
		s.Nodes = append(s.Nodes, exampleNode(name, versions["2"]))
	}
	return s
}

// text returns the steps and the findings of a plan in a short form.
func text(p *Plan) string {
	var out []string
	for _, s := range p.Steps {
		out = append(out, s.Machine+">"+s.To)
	}
	for _, f := range p.Findings {
		out = append(out, f.Check)
	}
	for _, name := range p.Withdraw {
		out = append(out, "-"+name)
	}
	return strings.Join(out, " ")
}

func TestUpgradePlan(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*State)
		to     string
		want   string
	}{
		"to the next version": {func(*State) {}, "3", "c1>3 c2>3 w2>3 w1>3"},
		"to another patch":    {func(*State) {}, "2.1", "c1>2.1 c2>2.1 w2>2.1 w1>2.1"},
		"one control plane": {func(s *State) { s.Machines[1].Status.ControlPlane = false }, "3",
			"c1>3 w2>3 c2>3 w1>3"},
		"to what runs":         {func(*State) {}, "2", ""},
		"to an older version":  {func(*State) {}, "1", "c1>1 c2>1 w2>1 w1>1 Skew Skew"},
		"over a minor version": {func(*State) {}, "5", "c1>5 c2>5 w2>5 w1>5 Skew Skew Skew Skew Skew Skew"},
		"interrupted":          {func(s *State) { s.Machines[3].Status.Release = "3" }, "3", "c2>3 w2>3 w1>3"},
		"a silent agent": {func(s *State) { s.Machines[0].Status.Heartbeat.Time = now.Add(-time.Hour) }, "3",
			"c1>3 c2>3 w2>3 w1>3 Agent"},
		"an agent that has never reported": {func(s *State) { s.Machines[0].Status.Heartbeat = nil }, "3",
			"c1>3 c2>3 w2>3 w1>3 Agent"},
		"not installed": {func(s *State) { s.Machines[1].Status.Releases = nil }, "3",
			"c1>3 c2>3 w2>3 w1>3 Release"},
		"installed nowhere": {func(*State) {}, "4", "c1>4 c2>4 w2>4 w1>4 Release Release Release Release"},
		"a node that is not ready": {func(s *State) { s.Nodes[2].Status.Conditions[0].Status = v1.ConditionUnknown }, "3",
			"c1>3 c2>3 w2>3 w1>3 NodeReady"},
		"an old kubelet": {func(s *State) { s.Nodes = append(s.Nodes, exampleNode("x", "v1.34.0")) }, "3",
			"c1>3 c2>3 w2>3 w1>3 Skew"},
		"a kubelet at the limit": {func(s *State) { s.Nodes = append(s.Nodes, exampleNode("x", "v1.35.0")) }, "3",
			"c1>3 c2>3 w2>3 w1>3"},
		"an old backup": {func(s *State) { s.Backup = now.Add(-25 * time.Hour) }, "3", "c1>3 c2>3 w2>3 w1>3 Backup"},
		"no backup":     {func(s *State) { s.Backup = time.Time{} }, "3", "c1>3 c2>3 w2>3 w1>3 Backup"},
		"a newer kubelet": {func(s *State) { s.Nodes = append(s.Nodes, exampleNode("x", "v1.39.0")) }, "3",
			"c1>3 c2>3 w2>3 w1>3 Skew"},
	} {
		s := exampleState()
		tc.change(s)
		p, err := s.Upgrade(tc.to)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := text(p); got != tc.want {
			t.Errorf("%s: %s, want %s\n%v", name, got, tc.want, p.Findings)
		}
	}
	if _, err := (&State{}).Upgrade("2"); err == nil {
		t.Error("no error without machines")
	}
}

func TestRollbackPlan(t *testing.T) {
	set := func(release, previous string, machines ...string) func(*State) {
		return func(s *State) {
			for i := range s.Machines {
				if m := &s.Machines[i]; slices.Contains(machines, m.Name) {
					m.Status.Release, m.Status.Previous = release, previous
					s.Nodes[i].Status.NodeInfo.KubeletVersion = versions[release]
				}
			}
		}
	}
	for name, tc := range map[string]struct {
		change func(*State)
		want   string
		older  bool
	}{
		"after an upgrade":                      {func(*State) {}, "w1>1 w2>1 c2>1 c1>1", true},
		"after an upgrade that was interrupted": {set("3", "2", "c1"), "c1>2", true},
		"interrupted":                           {set("1", "", "w1", "w2"), "c2>1 c1>1", true},
		"done":                                  {set("1", "", "w1", "w2", "c1", "c2"), "error", false},
		"the same version of Kubernetes": {func(s *State) {
			for i := range s.Machines {
				s.Machines[i].Status.Releases = []v1alpha1.Release{
					{Name: "1", Kubernetes: "v1.37.1"}, {Name: "2", Kubernetes: "v1.37.2"},
				}
			}
		}, "w1>1 w2>1 c2>1 c1>1", false},
		"over a minor version": {func(s *State) {
			set("3", "1", "w1", "w2", "c1", "c2")(s)
		}, "w1>1 w2>1 c2>1 c1>1 Skew", true},
		"the first machine still changes": {func(s *State) { s.Machines[3].Spec.Release = "3" }, "c1>2", true},
		"the last machine still changes": {func(s *State) {
			set("3", "2", "c1", "c2", "w2")(s)
			s.Machines[0].Spec.Release = "3"
		}, "w1>2 w2>2 c2>2 c1>2", true},
		"the first machine has returned": {func(s *State) {
			s.Machines[3].Status.Conditions = []metav1.Condition{{Type: v1alpha1.Upgraded,
				Reason: v1alpha1.ReasonRolledBack}}
		}, "error", false},
		"a kubelet that stays newer": {func(s *State) { s.Nodes = append(s.Nodes, exampleNode("x", "v1.37.0")) },
			"w1>1 w2>1 c2>1 c1>1 Skew", true},
	} {
		s := exampleState()
		tc.change(s)
		p, err := s.Rollback()
		if err != nil {
			p = &Plan{Steps: nil, Findings: []preflight.Finding{{Check: "error"}}}
		}
		if got := text(p); got != tc.want || p.Older != tc.older {
			t.Errorf("%s: %s, %t, want %s\n%v %v", name, got, p.Older, tc.want, p.Findings, err)
		}
	}
}

// TestRollbackOfBroken checks that machines that do not work prevent an upgrade and the rollback of others, but
// not their own rollback.
func TestRollbackOfBroken(t *testing.T) {
	s := exampleState()
	s.Machines[0].Status.Heartbeat = nil
	s.Nodes[1].Status.Conditions = nil
	errors := func(p *Plan, err error) (n int) {
		t.Helper()
		if err != nil || len(p.Findings) != 2 {
			t.Fatal(p, err)
		}
		for _, f := range p.Findings {
			if f.Severity == preflight.Error {
				n++
			}
		}
		return n
	}
	if n := errors(s.Upgrade("2.1")); n != 2 {
		t.Errorf("%d errors in an upgrade, want 2", n)
	}
	if n := errors(s.Rollback()); n != 0 {
		t.Errorf("%d errors in a rollback, want none", n)
	}
	s.Machines[0].Status.Release, s.Nodes[0].Status.NodeInfo.KubeletVersion = "1", versions["1"] // not upgraded
	if n := errors(s.Rollback()); n != 1 {
		t.Errorf("%d errors in the rollback of other machines, want 1", n)
	}
}

func TestPrintPlan(t *testing.T) {
	for want, steps := range map[string][]Step{
		"MACHINE   RELEASE   WANTED\nm1        1         2\n": {{"m1", "1", "2"}},
		"All machines run this release.\n":                    nil,
	} {
		var out bytes.Buffer
		if err := (&Plan{Steps: steps}).Print(&out); err != nil || out.String() != want {
			t.Errorf("%q, %v", out.String(), err)
		}
	}
}

func TestRemovedAPIs(t *testing.T) {
	metrics := `# TYPE apiserver_requested_deprecated_apis gauge
apiserver_requested_deprecated_apis{group="apps",removed_release="1.38",resource="old",subresource="",version="v1beta1"} 1
apiserver_requested_deprecated_apis{group="",removed_release="",resource="componentstatuses",subresource="",version="v1"} 1
apiserver_requested_deprecated_apis{group="x",removed_release="1.38",resource="unused",subresource="",version="v1"} 0
`
	for target, want := range map[string]string{
		"1.37.9": "[]",
		"1.38.0": "[{RemovedAPIs error clients use apps/v1beta1 old, which Kubernetes 1.38 does not have ",
	} {
		got := fmt.Sprint(removedAPIs(metrics, version.MustParseSemantic(target)))
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", target, got)
		}
	}
}

func TestFailingWebhooks(t *testing.T) {
	list := []webhookhealth.Webhook{
		{Name: "works", FailurePolicy: "Fail", Health: webhookhealth.Health{State: "Closed"}},
		{Name: "blocks", FailurePolicy: "Fail", Health: webhookhealth.Health{State: webhookhealth.Open}},
		{Name: "harmless", FailurePolicy: "Ignore", Health: webhookhealth.Health{State: webhookhealth.HalfOpen}},
	}
	got := failingWebhooks(list)
	if len(got) != 2 || got[0].Severity != preflight.Error || !strings.Contains(got[0].What, "blocks") ||
		got[1].Severity != preflight.Warning || !strings.Contains(got[1].What, "harmless") {
		t.Errorf("%v", got)
	}
}

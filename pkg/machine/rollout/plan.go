// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/version"

	"keelson.dev/api/machines/v1alpha1"
	"keelson.dev/keelson/pkg/machine/nodes"
	"keelson.dev/keelson/pkg/machine/preflight"
	"keelson.dev/keelson/pkg/machine/upgrade"
)

// Names of the checks of a plan.
const (
	checkAgent    = "Agent"
	checkBackup   = "Backup"
	checkRelease  = "Release"
	checkSkew     = "Skew"
	checkNode     = "NodeReady"
	checkRemoved  = "RemovedAPIs"
	checkWebhooks = "Webhooks"
)

// silent is how long an agent may not have reported. It reports more often if it works.
const silent = 2*upgrade.Heartbeat + time.Minute

// backupAge is the age from which a backup is not recent any more.
const backupAge = 24 * time.Hour

// Limits of Kubernetes for the minor versions of programs that work together.
const (
	maxJump        = 1 // between API servers
	maxKubeletSkew = 3 // of a kubelet that is older than the API servers
)

// State is what a plan depends on.
type State struct {
	Machines []v1alpha1.Machine
	Nodes    []v1.Node
	Backup   time.Time // when the last backup was made, or the zero time
	Now      time.Time
}

// Step is the change of one machine.
type Step struct {
	Machine  string
	From, To string
}

// Plan is what is to be done, and what prevents it.
type Plan struct {
	Steps []Step // in this order
	// Withdraw has the other machines whose specification still asks for a release. An interrupted rollout
	// has left them.
	Withdraw []string
	Findings []preflight.Finding
	// Older is true if the API servers get an older minor version of Kubernetes.
	Older bool
	// Target is the version of Kubernetes of the API servers after the rollout, or nil if it is unknown.
	Target *version.Version
}

var (
	errNoMachines = errors.New("the cluster has no Machine objects: it was not made by \"ctl init\", or no agent has " +
		"reported yet. A control plane that was adopted from kubeadm changes its release by \"ctl unadopt\", and by \"ctl " +
		"adopt\" of the other release")
	errNoPrevious = errors.New("there is nothing to return to: the first machine knows no earlier release")
	errUnchanged  = errors.New("there is nothing to return to: the first machine has returned to its old release itself")
)

// Upgrade returns the plan by which all machines get a release.
func (s *State) Upgrade(release string) (*Plan, error) {
	order := s.order()
	if len(order) == 0 {
		return nil, errNoMachines
	}
	p := &Plan{Target: target(order, release)}
	for _, m := range order {
		if m.Status.Release != release {
			p.Steps = append(p.Steps, Step{m.Name, m.Status.Release, release})
		}
	}
	s.check(p, func(string) preflight.Severity { return preflight.Error })
	s.checkBackup(p)
	for _, m := range order {
		if have := running(m); m.Status.ControlPlane && have != nil && p.Target != nil {
			p.checkServers(m.Name, have)
		}
	}
	return p, nil
}

// Rollback returns the plan by which all machines get the release again that they had before the last
// upgrade. A rollout that was interrupted has always changed the first machines of the order of an
// upgrade, and a rollback ends with them. So the first machine shows which upgrade was the last one.
func (s *State) Rollback() (*Plan, error) {
	order := s.order()
	if len(order) == 0 {
		return nil, errNoMachines
	}
	from, to, err := lastUpgrade(order[0])
	if err != nil {
		return nil, err
	}
	p := &Plan{Target: target(order, to)}
	for _, m := range slices.Backward(order) {
		if m.Status.Release == from || m.Spec.Release == from {
			p.Steps = append(p.Steps, Step{m.Name, from, to})
		}
	}
	// A failed upgrade is the usual reason for a machine that does not work.
	s.check(p, func(machine string) preflight.Severity {
		if p.changes(machine) {
			return preflight.Warning
		}
		return preflight.Error
	})
	if have := target(order, from); have != nil && p.Target != nil {
		p.Older = p.Target.Minor() < have.Minor()
		if have.Minor() > p.Target.Minor()+maxJump {
			p.fail(checkSkew, fmt.Sprintf("the API servers would go back from Kubernetes %s to %s", have, p.Target),
				"restore a backup instead: API servers cannot read data that is newer by more than one minor version")
		}
	}
	return p, nil
}

// lastUpgrade returns the releases of the last upgrade of the first machine.
func lastUpgrade(m *v1alpha1.Machine) (from, to string, err error) {
	st := &m.Status
	c := meta.FindStatusCondition(st.Conditions, v1alpha1.Upgraded)
	switch {
	case c != nil && c.Reason == v1alpha1.ReasonRolledBack:
		return "", "", errUnchanged
	case m.Spec.Release != "" && m.Spec.Release != st.Release: // it was interrupted, and may go on
		return m.Spec.Release, st.Release, nil
	case st.Previous == "":
		return "", "", errNoPrevious
	default:
		return st.Release, st.Previous, nil
	}
}

// order returns the machines in the order of an upgrade. Older machines come first, so that a machine that
// joins later does not change the order of the others.
func (s *State) order() []*v1alpha1.Machine {
	var out []*v1alpha1.Machine
	for i := range s.Machines {
		out = append(out, &s.Machines[i])
	}
	rank := func(m *v1alpha1.Machine) int {
		if m.Status.ControlPlane {
			return 0
		}
		return 1
	}
	slices.SortFunc(out, func(a, b *v1alpha1.Machine) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			strings.Compare(a.Name, b.Name))
	})
	return out
}

// running returns the version of Kubernetes that a machine runs, or nil if it is unknown.
func running(m *v1alpha1.Machine) *version.Version { return installed(m, m.Status.Release) }

// installed returns the version of Kubernetes of a release that is installed on a machine, or nil if it
// is not installed or does not run there.
func installed(m *v1alpha1.Machine, release string) *version.Version {
	for _, r := range m.Status.Releases {
		if v, err := version.ParseSemantic(r.Kubernetes); r.Name == release && err == nil {
			return v
		}
	}
	return nil
}

// target returns the version of Kubernetes of a release, or nil if no machine knows it.
func target(machines []*v1alpha1.Machine, release string) *version.Version {
	for _, m := range machines {
		if v := installed(m, release); v != nil {
			return v
		}
	}
	return nil
}

func (p *Plan) fail(check, what, remedy string) {
	p.Findings = append(p.Findings, preflight.Finding{Check: check, Severity: preflight.Error, What: what, Remedy: remedy})
}

// changes reports whether a machine gets another release.
func (p *Plan) changes(machine string) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Machine == machine })
}

// check adds what prevents any change, and what remains of an earlier one. severity returns how bad it is that a
// machine does not work.
func (s *State) check(p *Plan, severity func(machine string) preflight.Severity) {
	machines := map[string]*v1alpha1.Machine{}
	for _, m := range s.order() {
		machines[m.Name] = m
		if h := m.Status.Heartbeat; h == nil || s.Now.Sub(h.Time) > silent {
			p.Findings = append(p.Findings, preflight.Finding{
				Check: checkAgent, Severity: severity(m.Name),
				What: fmt.Sprintf("the agent of %s has not reported for more than %s", m.Name, silent),
				Remedy: "look at \"journalctl -u keelson-agent\" there; if the machine is gone, run \"ctl node remove " +
					m.Name + "\"",
			})
		}
	}
	for _, m := range s.order() {
		if m.Spec.Release != "" && !p.changes(m.Name) {
			p.Withdraw = append(p.Withdraw, m.Name)
		}
	}
	for _, step := range p.Steps {
		if installed(machines[step.Machine], step.To) == nil {
			p.fail(checkRelease, fmt.Sprintf("release %s is not installed on %s, or does not run there", step.To, step.Machine),
				"install its package there; the agent reports it within two minutes")
		}
	}
	p.Findings = append(p.Findings, checkReady(s.Nodes, severity)...)
	p.Findings = append(p.Findings, checkKubelets(s.Nodes, p.Target, p.changes)...)
}

// checkBackup adds a warning if there is no recent backup. An upgrade can be rolled back without one.
func (s *State) checkBackup(p *Plan) {
	what := "no backup of the cluster is recorded"
	if !s.Backup.IsZero() {
		age := s.Now.Sub(s.Backup)
		if age < backupAge {
			return
		}
		what = fmt.Sprintf("the last backup of the cluster was made %s ago", age.Round(time.Hour))
	}
	if len(p.Steps) > 0 {
		p.Findings = append(p.Findings, preflight.Finding{
			Check: checkBackup, Severity: preflight.Warning, What: what,
			Remedy: "make one with \"ctl backup create\", or regularly with \"ctl backup schedule\"",
		})
	}
}

// CheckNodes returns what is wrong with the nodes of a cluster whose API servers are about to get a
// version of Kubernetes: nodes that are not ready, and kubelets that do not work with the version. changes
// reports whether the kubelet of a node changes too. If target is nil, versions are not checked.
func CheckNodes(nodes []v1.Node, target *version.Version, changes func(name string) bool) []preflight.Finding {
	out := checkReady(nodes, func(string) preflight.Severity { return preflight.Error })
	return append(out, checkKubelets(nodes, target, changes)...)
}

// checkReady returns which nodes are not ready. severity returns how bad that is.
func checkReady(list []v1.Node, severity func(node string) preflight.Severity) (out []preflight.Finding) {
	for i := range list {
		if n := &list[i]; !nodes.IsReady(n) {
			out = append(out, preflight.Finding{Check: checkNode, Severity: severity(n.Name),
				What: "node " + n.Name + " is not ready", Remedy: "see \"ctl describe node " + n.Name + "\""})
		}
	}
	return out
}

// checkKubelets returns which kubelets do not work with API servers of a version.
func checkKubelets(nodes []v1.Node, target *version.Version, changes func(name string) bool) (out []preflight.Finding) {
	fail := func(check, what, remedy string) {
		out = append(out, preflight.Finding{Check: check, Severity: preflight.Error, What: what, Remedy: remedy})
	}
	for i := range nodes {
		n := &nodes[i]
		kubelet, err := version.ParseSemantic(n.Status.NodeInfo.KubeletVersion)
		if err != nil || target == nil {
			continue
		}
		switch {
		case kubelet.Minor() > target.Minor() && !changes(n.Name):
			fail(checkSkew, fmt.Sprintf("the kubelet of %s has Kubernetes %s and would be newer than the API servers (%s)",
				n.Name, kubelet, target), "return to an older kubelet there first")
		case kubelet.Minor()+maxKubeletSkew < target.Minor():
			fail(checkSkew, fmt.Sprintf("the kubelet of %s has Kubernetes %s, too old for API servers with %s", n.Name,
				kubelet, target), "upgrade to a release in between first")
		}
	}
	return out
}

// checkServers adds what prevents an upgrade of the API server of a machine.
func (p *Plan) checkServers(name string, have *version.Version) {
	change := fmt.Sprintf("the API server of %s would go from Kubernetes %s to %s", name, have, p.Target)
	switch {
	case p.Target.Minor() < have.Minor():
		p.fail(checkSkew, change, "API servers must not be older than other programs: use \"ctl upgrade rollback\"")
	case p.Target.Minor() > have.Minor()+maxJump:
		p.fail(checkSkew, change, "upgrade to each minor version in between, one after the other")
	}
}

// Print prints what a plan does. It does not print findings; preflight.Report does.
func (p *Plan) Print(out io.Writer) error {
	if len(p.Steps) == 0 {
		_, err := fmt.Fprintln(out, "All machines run this release.")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "MACHINE\tRELEASE\tWANTED")
	for _, s := range p.Steps {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Machine, s.From, s.To)
	}
	return w.Flush()
}

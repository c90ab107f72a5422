// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Names of the API.
const (
	Group   = "machines.keelson.dev"
	Version = "v1alpha1"
	Kind    = "Machine"
	// Resource is the name of the resource in paths.
	Resource = "machines"
)

// Upgraded is the condition that reports whether the machine runs the release of its specification. It
// is true if it does. Its reason is one of the following constants.
const Upgraded = "Upgraded"

// Reasons of the condition Upgraded.
const (
	// ReasonCurrent means that the machine runs the release of its specification.
	ReasonCurrent = "Current"
	// ReasonSwitching means that the machine's programs are being restarted.
	ReasonSwitching = "Switching"
	// ReasonRefused means that the machine cannot run the release, and that nothing was changed. The
	// message says why.
	ReasonRefused = "Refused"
	// ReasonRolledBack means that a program of the release was not healthy in time, and that the machine
	// runs the earlier release again. The message says which program.
	ReasonRolledBack = "RolledBack"
)

// Rejoined is the condition that reports whether the control plane of the machine has joined the cluster again
// after a restore on another machine. Without a restore, there is no such condition. Its reason is
// ReasonMember, or the step that comes next. The message has the error of that step.
const Rejoined = "Rejoined"

// ReasonMember is the reason of the condition Rejoined if it is true.
const ReasonMember = "Member"

// Machine is a machine of a cluster. Its name is that of its node.
type Machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   MachineSpec   `json:"spec"`
	Status MachineStatus `json:"status"`
}

// MachineSpec is what an administrator wants of a machine.
type MachineSpec struct {
	// Release is the release that the machine should run: the name of a directory below /usr/lib/keelson.
	// If it is empty, the machine keeps its release.
	Release string `json:"release,omitempty"`
	// Request is any text. The agent tries a release that was refused or rolled back again if the text
	// has changed.
	Request string `json:"request,omitempty"`
}

// MachineStatus is what the machine's agent knows about the machine.
type MachineStatus struct {
	// ObservedGeneration is the generation of the specification that the agent has read last.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Release is the release that the machine runs.
	Release string `json:"release,omitempty"`
	// Previous is the release that the machine has run before, or empty if there is none.
	Previous string `json:"previous,omitempty"`
	// Releases are the releases that are installed on the machine, sorted by name.
	Releases []Release `json:"releases,omitempty"`
	// ControlPlane reports whether the machine has an API server.
	ControlPlane bool `json:"controlPlane"`
	// Heartbeat is when the agent has last reported. It reports at least every two minutes.
	Heartbeat *metav1.Time `json:"heartbeat,omitempty"`
	// Conditions has the conditions Upgraded and, after a restore on another machine, Rejoined.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Release is a release that is installed on a machine.
type Release struct {
	// Name is the name of the release's directory below /usr/lib/keelson.
	Name string `json:"name"`
	// Kubernetes is the version of Kubernetes with which the release is compatible, such as v1.37.2. It is
	// empty if the machine cannot run the release.
	Kubernetes string `json:"kubernetes,omitempty"`
}

// MachineList is a list of machines.
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Machine `json:"items"`
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"keelson.dev/keelson/pkg/controllers/controller"
)

func TestPlan(t *testing.T) {
	now := time.Unix(10000, 0)
	vol := target{"d", "h"}
	attachment := func(attached, going bool) map[string]*storagev1.VolumeAttachment {
		a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: vol.attachment("n"), ResourceVersion: "1"}}
		a.Status.Attached = attached
		if going {
			a.DeletionTimestamp = &metav1.Time{Time: now}
		}
		return map[string]*storagev1.VolumeAttachment{a.Name: a}
	}
	node := func(change ...func(*v1.Node)) *v1.Node {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{managed: "true"}}}
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		n.Status.VolumesAttached = []v1.AttachedVolume{{Name: vol.name()}}
		for _, c := range change {
			c(n)
		}
		return n
	}
	unwell := func(n *v1.Node) { n.Status.Conditions[0].Status = v1.ConditionUnknown }
	fenced := func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeOutOfService}} }
	inUse := []v1.UniqueVolumeName{vol.name()}
	use := []wanted{{target: vol}}
	long, short := map[v1.UniqueVolumeName]time.Time{vol.name(): now.Add(-patience)},
		map[v1.UniqueVolumeName]time.Time{vol.name(): now.Add(-time.Minute)}
	asked := func(ago time.Duration) map[string]*storagev1.VolumeAttachment {
		out := attachment(false, false)
		out[vol.attachment("n")].CreationTimestamp = metav1.NewTime(now.Add(-ago))
		return out
	}
	refused := attachment(false, false)
	refused[vol.attachment("n")].Status.AttachError = &storagev1.VolumeError{Message: "no"}
	tests := map[string]struct {
		facts                                                          nodeFacts
		attach, blocked, failed, unanswered, attached, detach, waiting int
		again                                                          time.Duration
	}{
		"wanted, and could not be attached": {facts: nodeFacts{node: node(), wanted: use, attachments: refused}, failed: 1},
		"wanted, not there":                 {facts: nodeFacts{node: node(), wanted: use}, attach: 1},
		"wanted, elsewhere": {
			facts: nodeFacts{node: node(), wanted: []wanted{{target: vol, elsewhere: []string{"m"}}}}, blocked: 1},
		"wanted, node does not exist": {facts: nodeFacts{wanted: use}},
		"wanted, being attached": {facts: nodeFacts{node: node(), wanted: use,
			attachments: asked(time.Minute)}, again: time.Minute},
		"wanted, attacher does not respond": {facts: nodeFacts{node: node(), wanted: use,
			attachments: asked(attacherPatience)}, unanswered: 1, again: attacherPatience},
		"wanted, attached": {facts: nodeFacts{node: node(), wanted: use,
			attachments: attachment(true, false)}, attached: 1},
		"wanted again while detaching": {facts: nodeFacts{node: node(), wanted: use,
			attachments: attachment(true, true)}},
		"not wanted, released": {
			facts: nodeFacts{node: node(), attachments: attachment(true, false)}, detach: 1},
		"not wanted, detaching": {facts: nodeFacts{node: node(), attachments: attachment(true, true)}},
		"not wanted, in use": {facts: nodeFacts{node: node(), inUse: inUse,
			attachments: attachment(true, false)}, attached: 1, waiting: 1, again: patience},
		"in use for long, healthy": {facts: nodeFacts{node: node(), inUse: inUse,
			attachments: attachment(true, false), since: long}, attached: 1, waiting: 1, again: patience},
		"in use for a while, unhealthy": {facts: nodeFacts{node: node(unwell), inUse: inUse,
			attachments: attachment(true, false), since: short}, attached: 1, waiting: 1, again: patience - time.Minute},
		"in use for long, unhealthy": {facts: nodeFacts{node: node(unwell), inUse: inUse,
			attachments: attachment(true, false), since: long}, detach: 1},
		"in use for long, to be kept": {facts: nodeFacts{node: node(unwell), inUse: inUse,
			attachments: attachment(true, false), since: long, keep: true}, attached: 1, waiting: 1, again: patience},
		"out of service, to be kept": {facts: nodeFacts{node: node(unwell, fenced), inUse: inUse,
			attachments: attachment(true, false), since: long, keep: true}, detach: 1},
		"in use, out of service": {facts: nodeFacts{node: node(unwell, fenced), inUse: inUse,
			attachments: attachment(true, false)}, detach: 1},
		"in use, node gone": {
			facts: nodeFacts{inUse: inUse, attachments: attachment(true, false)}, attached: 1, waiting: 1, again: patience},
		"in use, node gone for long": {
			facts: nodeFacts{inUse: inUse, attachments: attachment(true, false), since: long}, detach: 1},
		"released, node gone": {
			facts: nodeFacts{known: []target{vol}, attachments: attachment(true, false)}, detach: 1},
		"another client's attachment": {
			facts: nodeFacts{node: node(),
				attachments: map[string]*storagev1.VolumeAttachment{
					"mine": {ObjectMeta: metav1.ObjectMeta{Name: "mine", ResourceVersion: "1"}}}}},
		"wanted, requested, not confirmed": {facts: nodeFacts{node: node(), wanted: use,
			attachments: map[string]*storagev1.VolumeAttachment{vol.attachment("n"): {}}}, attach: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.facts.name = "n"
			p := planNode(tc.facts, now)
			got := []int{len(p.attach), len(p.blocked), len(p.failed), len(p.unanswered), len(p.attached),
				len(p.detach), len(p.waiting)}
			if want := []int{tc.attach, tc.blocked, tc.failed, tc.unanswered, tc.attached, tc.detach,
				tc.waiting}; !slices.Equal(got, want) || p.again != tc.again {
				t.Errorf(
					"attach, blocked, failed, unanswered, attached, detach, waiting %v, again %v; want %v, %v",
					got, p.again, want, tc.again)
			}
		})
	}
}

// TestReportUnanswered checks that every pod that waits for a volume gets the event that Kubernetes
// writes if no attacher responds.
func TestReportUnanswered(t *testing.T) {
	events := record.NewFakeRecorder(2)
	c := &Controller{Deps: controller.Deps{Events: events}}
	c.reportUnanswered(wanted{
		target: target{"d", "h"}, volume: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}},
		pods: []*v1.Pod{{}, {}},
	})
	for range 2 {
		const want = `Warning FailedAttachVolume AttachVolume.Attach failed for volume "pv" : timed out ` +
			`waiting for external-attacher of d CSI driver to attach volume h`
		if got := <-events.Events; got != want {
			t.Errorf("%q", got)
		}
	}
}

func TestParse(t *testing.T) {
	want := target{"d", "a^b/c"}
	if got, ok := parse(want.name()); !ok || got != want {
		t.Errorf("%v, %v", got, ok)
	}
	if _, ok := parse("kubernetes.io/aws-ebs/x"); ok {
		t.Error("another plugin's")
	}
}

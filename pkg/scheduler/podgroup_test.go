// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	apiserverconfig "keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/features"
	"keelson.dev/keelson/pkg/scheduler"
)

// setupGroups runs an API server that serves PodGroups, and a scheduler that follows them or, if follows
// is false, does not. The cluster has a node a with two CPUs and a priority class high.
func setupGroups(t *testing.T, follows bool) kubernetes.Interface {
	t.Helper()
	return setupGroupsAs(t, follows, func(rt http.RoundTripper) http.RoundTripper { return rt })
}

// setupGroupsAs does the same as setupGroups. The scheduler's requests go through the given transport.
func setupGroupsAs(t *testing.T, follows bool, through func(http.RoundTripper) http.RoundTripper) kubernetes.Interface {
	t.Helper()
	server := testserver.Start(t, testserver.Options{Configure: func(c *apiserverconfig.Config) {
		c.RuntimeConfig = map[string]bool{"scheduling.k8s.io/v1beta1": true}
		c.Features.Turned = features.Turned{features.GenericWorkload: true}
	}})
	c, config := server.Client, *server.Config
	config.Wrap(through)
	own, err := kubernetes.NewForConfig(&config)
	if err != nil {
		t.Fatal(err)
	}
	followAs(t, own, &configv1.KubeSchedulerConfiguration{}, func(cfg *scheduler.Config) { cfg.PodGroups = follows })
	addAccount(t, c)
	addNode(t, c, "a", nil)
	if _, err := c.SchedulingV1().PriorityClasses().Create(t.Context(),
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return c
}

// addGroup creates a PodGroup with the policy gang or, if minCount is 0, basic.
func addGroup(t *testing.T, c kubernetes.Interface, name string, minCount int32,
	change func(*schedulingv1beta1.PodGroup)) {
	t.Helper()
	g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if minCount > 0 {
		g.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: minCount}
	} else {
		g.Spec.SchedulingPolicy.Basic = &schedulingv1beta1.BasicSchedulingPolicy{}
	}
	if change != nil {
		change(g)
	}
	if _, err := c.SchedulingV1beta1().PodGroups("default").Create(t.Context(), g, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// inGroup puts a pod into a PodGroup, and lets it request CPU.
func inGroup(group, cpus string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		cpu(cpus)(p)
		p.Labels = map[string]string{"low": ""}
		p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
	}
}

func urgent(change func(*v1.Pod)) func(*v1.Pod) {
	return func(p *v1.Pod) { change(p); p.Labels, p.Spec.PriorityClassName = nil, "high" }
}

// awaitGroup waits until the PodGroup's condition PodGroupInitiallyScheduled has the given status, reason
// and message.
func awaitGroup(t *testing.T, c kubernetes.Interface, name, want string) {
	t.Helper()
	w, err := c.SchedulingV1beta1().PodGroups("default").Watch(t.Context(), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(), ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	last := ""
	for e := range w.ResultChan() {
		g, ok := e.Object.(*schedulingv1beta1.PodGroup)
		if !ok {
			continue
		}
		cond := meta.FindStatusCondition(g.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled)
		if cond == nil {
			continue
		}
		if last = strings.Join([]string{string(cond.Status), cond.Reason, cond.Message}, "|"); last == want {
			if cond.ObservedGeneration != g.Generation || cond.LastTransitionTime.IsZero() {
				t.Errorf("condition %+v of generation %d", cond, g.Generation)
			}
			return
		}
	}
	t.Fatalf("condition of PodGroup %s: %q, want %q", name, last, want)
}

const scheduled = "True|Scheduled|"

// settled creates a pod in no PodGroup and waits until it is bound: then the earlier pods have been tried.
func settled(t *testing.T, c kubernetes.Interface, name string) {
	t.Helper()
	create(t, c, pod(name, nil))
	await(t, c, name, "bound", bound)
}

// TestPodGroupWaits checks that pods wait until their PodGroup exists, and until it has minCount pods.
// Pods that come later are placed on their own.
func TestPodGroupWaits(t *testing.T) {
	c := setupGroups(t, true)
	create(t, c, pod("p0", inGroup("g", "100m")))
	settled(t, c, "other")
	mustBeUnbound(t, c, "p0")
	addGroup(t, c, "g", 2, nil)
	settled(t, c, "another")
	mustBeUnbound(t, c, "p0")
	create(t, c, pod("p1", inGroup("g", "100m")))
	for _, name := range []string{"p0", "p1"} {
		await(t, c, name, "bound", bound)
	}
	awaitGroup(t, c, "g", scheduled)
	create(t, c, pod("late", inGroup("g", "100m")))
	await(t, c, "late", "bound", bound)
	create(t, c, pod("large", inGroup("g", "64")))
	await(t, c, "large", "refused", refused("0/1 nodes are available: 1 Insufficient cpu."))
	awaitGroup(t, c, "g", scheduled)
}

// TestPodGroupAndItsMinCount checks that a PodGroup waits for minCount pods again after pods have left, and
// that pods are tried again when minCount is lowered.
func TestPodGroupAndItsMinCount(t *testing.T) {
	c := setupGroups(t, true)
	addGroup(t, c, "g", 2, nil)
	create(t, c, pod("p0", inGroup("g", "100m")))
	create(t, c, pod("p1", inGroup("g", "100m")))
	for _, name := range []string{"p0", "p1"} {
		await(t, c, name, "bound", bound)
		end(t, c, name)
	}
	create(t, c, pod("p2", inGroup("g", "100m")))
	settled(t, c, "other")
	mustBeUnbound(t, c, "p2")
	if _, err := c.SchedulingV1beta1().PodGroups("default").Patch(t.Context(), "g", types.MergePatchType,
		[]byte(`{"spec":{"schedulingPolicy":{"gang":{"minCount":1}}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, c, "p2", "bound", bound)
}

// TestBasicPodGroup checks that pods of a PodGroup with the policy basic are placed one by one, once the
// PodGroup exists.
func TestBasicPodGroup(t *testing.T) {
	c := setupGroups(t, true)
	create(t, c, pod("large", inGroup("g", "64")))
	settled(t, c, "other")
	addGroup(t, c, "g", 0, nil)
	await(t, c, "large", "refused", refused("0/1 nodes are available: 1 Insufficient cpu."))
	awaitGroup(t, c, "g", "False|Unschedulable|minCount (1) cannot be satisfied: 0 scheduled, 0 remaining")
	create(t, c, pod("small", inGroup("g", "100m")))
	await(t, c, "small", "bound", bound)
	awaitGroup(t, c, "g", scheduled)
	mustBeUnbound(t, c, "large")
}

// TestPodGroupDoesNotFit checks that no pod of a gang gets a node if minCount pods do not fit, and what the
// pods and the PodGroup say then.
func TestPodGroupDoesNotFit(t *testing.T) {
	c := setupGroups(t, true)
	addGroup(t, c, "g", 3, nil)
	names := []string{"p0", "p1", "p2"}
	for _, name := range names {
		create(t, c, pod(name, inGroup("g", "1")))
	}
	const why = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining, " +
		"pod group preemption: No preemption victims found for incoming preemptor"
	awaitGroup(t, c, "g", "False|Unschedulable|"+why)
	fits, fitsNot := 0, 0
	for _, name := range names {
		await(t, c, name, "refused", func(p *v1.Pod) bool {
			if refused(why)(p) {
				fits++
				return true
			}
			if refused("0/1 nodes are available: 1 Insufficient cpu.")(p) {
				fitsNot++
				return true
			}
			return false
		})
	}
	if fits != 2 || fitsNot != 1 {
		t.Errorf("%d pods fit without the others, and %d do not", fits, fitsNot)
	}
	mustBeUnbound(t, c, names...)
	settled(t, c, "other")
	addNode(t, c, "b", nil)
	for _, name := range names {
		await(t, c, name, "bound", bound)
	}
	awaitGroup(t, c, "g", scheduled)
}

// TestPodGroupContradicted checks that pods whose priority differs from that of their PodGroup are not
// placed.
func TestPodGroupContradicted(t *testing.T) {
	const why = "all pods in a single pod group should have the same priority as the pod group's priority, " +
		"got 1000 and 0"
	for name, minCount := range map[string]int32{"gang": 1, "basic": 0} {
		t.Run(name, func(t *testing.T) {
			c := setupGroups(t, true)
			addGroup(t, c, "g", minCount, nil)
			create(t, c, pod("p", urgent(inGroup("g", "100m"))))
			await(t, c, "p", why, func(p *v1.Pod) bool {
				for _, cond := range p.Status.Conditions {
					if cond.Type == v1.PodScheduled {
						return cond.Reason == "SchedulerError" && cond.Message == why
					}
				}
				return false
			})
			awaitGroup(t, c, "g", "False|SchedulerError|"+why)
			mustBeUnbound(t, c, "p")
		})
	}
}

// TestPodGroupsWithoutFeature checks that a scheduler without the feature places pods of PodGroups one by
// one.
func TestPodGroupsWithoutFeature(t *testing.T) {
	c := setupGroups(t, false)
	addGroup(t, c, "g", 2, nil)
	create(t, c, pod("p0", inGroup("g", "100m")))
	create(t, c, pod("p1", inGroup("missing", "100m")))
	await(t, c, "p0", "bound", bound)
	await(t, c, "p1", "bound", bound)
	g, err := c.SchedulingV1beta1().PodGroups("default").Get(t.Context(), "g", metav1.GetOptions{})
	if err != nil || len(g.Status.Conditions) > 0 {
		t.Errorf("conditions %v, %v", g.Status.Conditions, err)
	}
}

// TestPodGroupsAreEvicted checks which pods of a PodGroup are evicted for a pod, and for a PodGroup, of
// higher priority: all of them, or only as many as necessary.
func TestPodGroupsAreEvicted(t *testing.T) {
	single := &schedulingv1beta1.DisruptionMode{Single: &schedulingv1beta1.SingleDisruptionMode{}}
	all := &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}
	for name, c := range map[string]struct {
		mode     *schedulingv1beta1.DisruptionMode
		group    string
		want     int
		unserved bool // the server does not support batches
	}{
		"single by a pod":      {mode: single, want: 1},
		"no mode by a pod":     {want: 1},
		"all by a pod":         {mode: all, want: 3},
		"single by a PodGroup": {mode: single, group: "urgent", want: 1},
		"all by a PodGroup":    {mode: all, group: "urgent", want: 3},
		"without batches":      {mode: all, group: "urgent", want: 3, unserved: true},
	} {
		t.Run(name, func(t *testing.T) {
			client := setupGroupsAs(t, true, func(rt http.RoundTripper) http.RoundTripper {
				if c.unserved {
					return withoutBatches{rt}
				}
				return rt
			})
			addNode(t, client, "b", nil) // two nodes with two CPUs each
			addGroup(t, client, "low", 3, func(g *schedulingv1beta1.PodGroup) { g.Spec.DisruptionMode = c.mode })
			names := []string{"p0", "p1", "p2"}
			for _, name := range names {
				create(t, client, pod(name, inGroup("low", "1")))
			}
			for _, name := range names {
				await(t, client, name, "bound", bound)
			}
			create(t, client, pod("fills", urgent(cpu("1"))))
			await(t, client, "fills", "bound", bound)
			preemptor := cpu("1")
			if c.group != "" {
				addGroup(t, client, c.group, 1, func(g *schedulingv1beta1.PodGroup) { g.Spec.PriorityClassName = "high" })
				preemptor = inGroup(c.group, "1")
			}
			create(t, client, pod("high", urgent(preemptor)))
			await(t, client, "high", "nominated", func(p *v1.Pod) bool { return p.Status.NominatedNodeName != "" })
			evicted := ending(t, client, c.want)
			kind := "pod"
			if c.group != "" {
				kind = "podgroup"
			}
			mustBePreemptedBy(t, client, evicted[0], kind)
			for _, name := range evicted {
				end(t, client, name)
			}
			await(t, client, "high", "bound", bound)
			if left := ending(t, client, 0); len(evicted) != c.want || len(left) > 0 {
				t.Errorf("%v and later %v are evicted, want %d pods", evicted, left, c.want)
			}
			if c.group != "" {
				awaitGroup(t, client, c.group, scheduled)
			}
		})
	}
}

// mustBePreemptedBy checks what the condition of a victim and its event say about the kind of the preemptor.
func mustBePreemptedBy(t *testing.T, c kubernetes.Interface, victim, kind string) {
	t.Helper()
	p, err := c.CoreV1().Pods("default").Get(t.Context(), victim, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := "default-scheduler: preempting to accommodate a higher priority " + kind
	if !slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Message == want
	}) {
		t.Errorf("conditions of the victim: %+v, want message %q", p.Status.Conditions, want)
	}
	w, err := c.EventsV1().Events("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0",
		FieldSelector: "reason=Preempted,regarding.name=" + victim})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		event, ok := e.Object.(*eventsv1.Event)
		if !ok || event.Related == nil {
			continue
		}
		node := " on node cluster"
		if kind == "pod" {
			node = " on node "
		}
		if want := "Preempted by " + kind + " " + string(event.Related.UID) + node; !strings.HasPrefix(event.Note, want) ||
			!strings.EqualFold(event.Related.Kind, kind) {
			t.Errorf("event %q about %s, want %q", event.Note, event.Related.Kind, want)
		}
		return
	}
}

// TestPodGroupExample checks that the pods of the example in docs/howto/schedule-gangs.md wait for each other.
func TestPodGroupExample(t *testing.T) {
	page, err := os.ReadFile("../../docs/howto/schedule-gangs.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```yaml podgroup.yaml\n")
	example, _, _ = strings.Cut(example, "```")
	first, second, _ := strings.Cut(example, "---\n")
	var g schedulingv1beta1.PodGroup
	var job batchv1.Job
	if err := errors.Join(yaml.UnmarshalStrict([]byte(first), &g),
		yaml.UnmarshalStrict([]byte(second), &job)); err != nil {
		t.Fatal(err)
	}
	c := setupGroups(t, true)
	if _, err := c.SchedulingV1beta1().PodGroups("default").Create(t.Context(), &g, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	of := func(p *v1.Pod) { p.Spec = *job.Spec.Template.Spec.DeepCopy() }
	for _, name := range []string{"p0", "p1"} {
		create(t, c, pod(name, of))
	}
	settled(t, c, "other")
	mustBeUnbound(t, c, "p0", "p1")
	create(t, c, pod("p2", of))
	awaitGroup(t, c, "train", scheduled)
}

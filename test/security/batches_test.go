// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/keelson/pkg/apiserver/config"
)

// recorded returns a configuration that audits all requests, and a function that returns the audit
// events so far.
func recorded(t *testing.T) (change func(*config.Config), events func() []auditv1.Event) {
	t.Helper()
	// t.TempDir is not suitable: a request that ends after the server may write its audit event
	// while the directory is being removed, and the test would fail.
	dir, err := os.MkdirTemp("", "audit")
	check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	check(t, os.WriteFile(policy,
		[]byte(
			"apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"), 0o600))
	return func(c *config.Config) { c.Audit.PolicyFile, c.Audit.Log.Path = policy, log }, func() (out []auditv1.Event) {
		t.Helper()
		data, err := os.ReadFile(log)
		check(t, err)
		for line := range bytes.Lines(data) {
			if !bytes.HasSuffix(line, []byte("\n")) {
				break // the server is still writing the last line
			}
			var e auditv1.Event
			check(t, json.Unmarshal(line, &e))
			out = append(out, e)
		}
		return out
	}
}

// waiting creates a pending pod.
func (l *lab) waiting(t *testing.T, namespace, name string) {
	t.Helper()
	account(t, l.Client, namespace)
	_, err := l.Client.CoreV1().Pods(namespace).Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
	check(t, err)
}

// post sends a batch. It returns the status codes of its parts, or the status code of the response
// if the whole batch is rejected.
func post(t *testing.T, c kubernetes.Interface, path string, batch any) (codes []int) {
	t.Helper()
	body, err := json.Marshal(batch)
	check(t, err)
	var code int
	path, query, _ := strings.Cut(path, "?")
	r := c.CoreV1().RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(body)
	if key, value, ok := strings.Cut(query, "="); ok {
		r.Param(key, value)
	}
	raw, err := r.Do(t.Context()).StatusCode(&code).Raw()
	if err != nil {
		return []int{code}
	}
	var answer struct{ Results []v1alpha1.VerdictResult }
	check(t, json.Unmarshal(raw, &answer))
	for _, r := range answer.Results {
		codes = append(codes, int(r.Code))
		for _, victim := range r.Victims {
			codes = append(codes, int(victim.Code))
		}
	}
	return codes
}

func bindings(whole bool, refs ...v1alpha1.PodRef) v1alpha1.BindingBatch {
	out := v1alpha1.BindingBatch{AllOrNothing: whole, ReportingController: "test", ReportingInstance: "test-1"}
	for _, r := range refs {
		out.Bindings = append(out.Bindings, v1alpha1.Binding{Namespace: r.Namespace, Name: r.Name, Node: "n0"})
	}
	return out
}

func preempting(waits, victim v1alpha1.PodRef) v1alpha1.VerdictBatch {
	return v1alpha1.VerdictBatch{ReportingController: "test", ReportingInstance: "test-1", Verdicts: []v1alpha1.Verdict{
		{PodRef: waits, Reason: "Evil", NominatedNode: "n0", Event: true, Victims: []v1alpha1.PodRef{victim}},
	}}
}

// unchanged fails the test if one of the pods has changed. The message contains what, a description
// of the batch.
func (l *lab) unchanged(t *testing.T, what, namespace string, names ...string) {
	t.Helper()
	for _, name := range names {
		pod, err := l.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		switch {
		case err != nil:
			t.Errorf("%s: %v", what, err)
		case pod.DeletionTimestamp != nil, pod.Status.NominatedNodeName != "", pod.Spec.NodeName != "" &&
			pod.Status.Phase == v1.PodPending,
			slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Reason == "Evil" }):
			t.Errorf("%s: %s is on %q, ends at %v, says %+v", what, name, pod.Spec.NodeName, pod.DeletionTimestamp, pod.Status)
		}
	}
}

// TestRightsOfBatches checks that the right to create batches, or to create all kinds of objects,
// does not allow a user to bind pods, write their status or delete them.
func TestRightsOfBatches(t *testing.T) {
	lab := newLab(t, nil)
	for _, ns := range []string{"a", "b"} {
		lab.namespace(t, ns)
		lab.waiting(t, ns, "waits")
		lab.pod(t, ns, "victim", "n0")
	}
	ref := func(ns, name string) v1alpha1.PodRef { return v1alpha1.PodRef{Namespace: ns, Name: name} }
	creator := lab.user(t, "creator", "", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"},
		Verbs: []string{"create"}})
	batches := rbacv1.PolicyRule{APIGroups: []string{v1alpha1.Group},
		Resources: []string{"bindingbatches", "verdictbatches"}, Verbs: []string{"create"}}
	sender := lab.user(t, "sender", "", batches)
	half := lab.user(t, "half", "", batches)
	// The user half has the rights in namespace a only.
	_, err := lab.Client.RbacV1().Roles("a").Create(t.Context(),
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "half"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods/binding"}, Verbs: []string{"create"}},
			{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}},
		}}, metav1.CreateOptions{})
	check(t, err)
	_, err = lab.Client.RbacV1().RoleBindings("a").Create(t.Context(),
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "half"},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "half"}},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "half"}}, metav1.CreateOptions{})
	check(t, err)
	for name, c := range map[string]kubernetes.Interface{"creator": creator, "sender": sender, "half": half} {
		eventually(t, "the batches that "+name+" may send", func(context.Context) bool {
			return !slices.Equal(post(t, c, v1alpha1.VerdictPath, v1alpha1.VerdictBatch{}), []int{http.StatusForbidden})
		})
	}
	verdict := preempting(ref("b", "waits"), ref("b", "victim"))
	for name, c := range map[string]kubernetes.Interface{"creator": creator, "sender": sender, "half": half} {
		if got := post(t, c, v1alpha1.VerdictPath, verdict); fmt.Sprint(got) != "[403 403]" {
			t.Errorf("verdicts of %s: %v", name, got)
		}
	}
	for _, whole := range []bool{false, true} {
		if got := post(t, sender, v1alpha1.BatchPath, bindings(whole, ref("b", "waits"))); fmt.Sprint(got) != "[403]" {
			t.Errorf("binding, whole %t: %v", whole, got)
		}
	}
	// If the user may not bind one pod of a gang, the server rejects the whole gang.
	eventually(t, "the rights of half", func(context.Context) bool {
		got := post(t, half, v1alpha1.BatchPath, bindings(true, ref("a", "none"), ref("b", "none")))
		return fmt.Sprint(got) == "[409 403]"
	})
	if got := post(t, half, v1alpha1.BatchPath,
		bindings(true, ref("a", "waits"), ref("b", "waits"))); fmt.Sprint(got) != "[409 403]" {
		t.Errorf("a gang of two namespaces: %v", got)
	}
	lab.unchanged(t, "with rights to batches", "a", "waits", "victim")
	lab.unchanged(t, "with rights to batches", "b", "waits", "victim")
	// The right to write a pod's status does not include the right to delete victims.
	if got := post(t, half, v1alpha1.VerdictPath,
		preempting(ref("a", "waits"), ref("a", "victim"))); fmt.Sprint(got) != "[200 403]" {
		t.Errorf("verdicts of a user who may not delete: %v", got)
	}
	lab.unchanged(t, "with the right to a status", "a", "victim")
	if got := post(t, half, v1alpha1.BatchPath,
		bindings(false, ref("a", "waits"), ref("b", "waits"))); fmt.Sprint(got) != "[201 403]" {
		t.Errorf("bindings in two namespaces: %v", got)
	}
	lab.unchanged(t, "with rights in another namespace", "b", "waits", "victim")
	if events, err := lab.Client.EventsV1().Events("").List(t.Context(), metav1.ListOptions{}); err != nil ||
		len(events.Items) > 0 {
		t.Errorf("events of a user who may not create events: %v, %v", events, err)
	}
}

// TestTrialsOfBatches checks that a batch with the parameter dryRun is rejected and has no effect.
func TestTrialsOfBatches(t *testing.T) {
	lab := newLab(t, nil)
	lab.namespace(t, "a")
	lab.waiting(t, "a", "waits")
	lab.pod(t, "a", "victim", "n0")
	waits, victim := v1alpha1.PodRef{Namespace: "a", Name: "waits"}, v1alpha1.PodRef{Namespace: "a", Name: "victim"}
	for _, option := range []string{"dryRun=All", "fieldValidation=Strict", "fieldManager=x"} {
		for _, whole := range []bool{false, true} {
			if got := post(t, lab.Client, v1alpha1.BatchPath+"?"+option, bindings(whole, waits)); fmt.Sprint(got) != "[400]" {
				t.Errorf("bindings with %s: %v", option, got)
			}
		}
		if got := post(t, lab.Client, v1alpha1.VerdictPath+"?"+option, preempting(waits, victim)); fmt.Sprint(
			got) != "[400]" {
			t.Errorf("verdicts with %s: %v", option, got)
		}
		lab.unchanged(t, option, "a", "waits", "victim")
	}
}

// TestRecordsOfBatches checks that the audit log contains the pods of a batch and the result for
// each pod.
func TestRecordsOfBatches(t *testing.T) {
	change, events := recorded(t)
	lab := newLab(t, change)
	lab.namespace(t, "a")
	for _, name := range []string{"one", "two", "waits"} {
		lab.waiting(t, "a", name)
	}
	lab.pod(t, "a", "victim", "n0")
	ref := func(name string) v1alpha1.PodRef { return v1alpha1.PodRef{Namespace: "a", Name: name} }
	post(t, lab.Client, v1alpha1.BatchPath, bindings(false, ref("one"), ref("none")))
	post(t, lab.Client, v1alpha1.BatchPath, bindings(true, ref("two")))
	post(t, lab.Client, v1alpha1.VerdictPath, preempting(ref("waits"), ref("victim")))
	eve := lab.user(t, "eve", "", rbacv1.PolicyRule{APIGroups: []string{v1alpha1.Group},
		Resources: []string{"*"}, Verbs: []string{"create"}})
	eventually(t, "the batches that eve may send", func(context.Context) bool {
		return !slices.Equal(post(t, eve, v1alpha1.VerdictPath, preempting(ref("eve"), ref("eve"))),
			[]int{http.StatusForbidden})
	})
	seen := map[string]int{}
	for _, e := range events() {
		if r, batch := e.ObjectRef, e.Annotations["scheduling.keelson.dev/batch"]; r != nil && batch != "" {
			seen[fmt.Sprintf("%s %s/%s %s %s %d %s %s", e.User.Username, r.Resource, r.Subresource, r.Namespace,
				r.Name, e.ResponseStatus.Code, e.Annotations["authorization.k8s.io/decision"], e.RequestURI)]++
			if len(e.SourceIPs) != 1 || e.UserAgent == "" || e.Stage != auditv1.StageResponseComplete ||
				e.RequestReceivedTimestamp.IsZero() {
				t.Errorf("event %+v", e)
			}
		}
	}
	for _, want := range []string{
		"admin pods/binding a one 201 allow /api/v1/namespaces/a/pods/one/binding",
		"admin pods/binding a none 404 allow /api/v1/namespaces/a/pods/none/binding",
		"admin pods/binding a two 201 allow /api/v1/namespaces/a/pods/two/binding",
		"admin pods/status a waits 200 allow /api/v1/namespaces/a/pods/waits/status",
		"admin pods/status a victim 200 allow /api/v1/namespaces/a/pods/victim/status",
		"admin pods/ a victim 200 allow /api/v1/namespaces/a/pods/victim",
		"eve pods/status a eve 403 forbid /api/v1/namespaces/a/pods/eve/status",
	} {
		if seen[want] != 1 {
			t.Errorf("%d events %q", seen[want], want)
		}
	}
	if n := seen["admin events/ a  201 allow /apis/events.k8s.io/v1/namespaces/a/events"]; n != 4 {
		t.Errorf("%d events about events", n)
	}
	if t.Failed() {
		t.Logf("there are %v", seen)
	}
}

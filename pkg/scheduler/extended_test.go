// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	configv1 "k8s.io/kube-scheduler/config/v1"

	"keelson.dev/keelson/pkg/scheduler/extender"
	"keelson.dev/scheduling"
)

// TestExtenderVictims checks how responses of extenders about victims are handled. An extender may
// leave out nodes and victims. If it adds a node or victim, the call fails, or is skipped if the
// extender is ignorable.
func TestExtenderVictims(t *testing.T) {
	of := func(uids ...string) []*scheduling.Pod {
		var out []*scheduling.Pod
		for _, uid := range uids {
			out = append(out, &scheduling.Pod{Pod: gangPod(uid, 1, 0)})
		}
		return out
	}
	for name, c := range map[string]struct {
		answer string
		want   string // expected candidates as text, or a part of the error
		skips  string // expected candidates if the extender is ignorable
	}{
		"fewer nodes":   {`{"NodeNameToMetaVictims":{"b":{"Pods":[{"UID":"b1"}]}}}`, "b:b1", "b:b1"},
		"fewer victims": {`{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"a2"}]}}}`, "a:a2", "a:a2"},
		"no node":       {`{}`, "", ""},
		"unknown node": {`{"NodeNameToMetaVictims":{"c":{"Pods":[{"UID":"a1"}]}}}`, "not asked about",
			"a:a1,a2 b:b1"},
		"victim of another node": {`{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"b1"}]}}}`, "not asked about",
			"a:a1,a2 b:b1"},
		"no victim on a node": {`{"NodeNameToMetaVictims":{"a":{"Pods":[]},"b":{"Pods":[{"UID":"b1"}]}}}`,
			"names no victim", "b:b1"},
		"no answer for a node": {`{"NodeNameToMetaVictims":{"a":null}}`, "not asked about", "a:a1,a2 b:b1"},
		"not JSON":             {`<html>`, "answer to preempt", "a:a1,a2 b:b1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(c.answer))
			}))
			defer s.Close()
			for _, ignorable := range []bool{false, true} {
				ext, err := extender.New(configv1.Extender{URLPrefix: s.URL, PreemptVerb: "preempt", Ignorable: ignorable})
				if err != nil {
					t.Fatal(err)
				}
				found, err := preemptAlso(t.Context(), gangPod("p", 1, 9), []*extender.Extender{ext}, []candidate{
					{node: "a", victims: of("a1", "a2")}, {node: "b", victims: of("b1")},
				})
				said, want := format(found), c.want
				if ignorable {
					want = c.skips
				}
				if err != nil {
					said = err.Error()
				}
				if !strings.Contains(said, want) || want == "" && said != "" {
					t.Errorf("ignorable %t: %q, want %q", ignorable, said, want)
				}
			}
		})
	}
}

// format returns candidates as text.
func format(found []candidate) string {
	var nodes []string
	for _, c := range found {
		var names []string
		for _, v := range c.victims {
			names = append(names, v.Name)
		}
		nodes = append(nodes, c.node+":"+strings.Join(names, ","))
	}
	return strings.Join(nodes, " ")
}

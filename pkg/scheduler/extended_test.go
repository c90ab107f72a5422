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

// TestVictimsOfStrangers: an extender may leave out nodes and victims. One that
// makes up others is not believed, and passed over if that is allowed.
func TestVictimsOfStrangers(t *testing.T) {
	of := func(uids ...string) []*scheduling.Pod {
		var out []*scheduling.Pod
		for _, uid := range uids {
			out = append(out, &scheduling.Pod{Pod: gangPod(uid, 1, 0)})
		}
		return out
	}
	for name, c := range map[string]struct {
		answer string
		want   string // candidates, or what the error says
		skips  string // candidates when the extender may be ignored
	}{
		"fewer nodes":      {`{"NodeNameToMetaVictims":{"b":{"Pods":[{"UID":"b1"}]}}}`, "b:b1", "b:b1"},
		"fewer victims":    {`{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"a2"}]}}}`, "a:a2", "a:a2"},
		"no node":          {`{}`, "", ""},
		"unknown node":     {`{"NodeNameToMetaVictims":{"c":{"Pods":[{"UID":"a1"}]}}}`, "not asked about", "a:a1,a2 b:b1"},
		"another's victim": {`{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"b1"}]}}}`, "not asked about", "a:a1,a2 b:b1"},
		"nobody goes":      {`{"NodeNameToMetaVictims":{"a":{"Pods":[]},"b":{"Pods":[{"UID":"b1"}]}}}`, "names no victim", "b:b1"},
		"nothing at all":   {`{"NodeNameToMetaVictims":{"a":null}}`, "not asked about", "a:a1,a2 b:b1"},
		"nonsense":         {`<html>`, "answer to preempt", "a:a1,a2 b:b1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(c.answer)) }))
			defer s.Close()
			for _, ignorable := range []bool{false, true} {
				ext, err := extender.New(configv1.Extender{URLPrefix: s.URL, PreemptVerb: "preempt", Ignorable: ignorable})
				if err != nil {
					t.Fatal(err)
				}
				found, err := preemptAlso(t.Context(), gangPod("p", 1, 9), []*extender.Extender{ext}, []candidate{
					{node: "a", victims: of("a1", "a2")}, {node: "b", victims: of("b1")},
				})
				said, want := told(found), c.want
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

// told are candidates in words.
func told(found []candidate) string {
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

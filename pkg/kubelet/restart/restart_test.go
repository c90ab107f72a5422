// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package restart_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/restart"
)

func on(action v1.ContainerRestartRuleAction, op v1.ContainerRestartRuleOnExitCodesOperator,
	codes ...int32) v1.ContainerRestartRule {
	return v1.ContainerRestartRule{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op,
		Values: codes}}
}

func TestShould(t *testing.T) {
	const (
		in    = v1.ContainerRestartRuleOnExitCodesOpIn
		notIn = v1.ContainerRestartRuleOnExitCodesOpNotIn
		again = v1.ContainerRestartRuleActionRestart
		all   = v1.ContainerRestartRuleActionRestartAllContainers
	)
	own := func(p v1.ContainerRestartPolicy, rules ...v1.ContainerRestartRule) v1.Container {
		return v1.Container{RestartPolicy: &p, RestartPolicyRules: rules}
	}
	for name, tc := range map[string]struct {
		policy v1.RestartPolicy
		c      v1.Container
		code   int32
		init   bool
		want   bool
	}{
		"always":                         {policy: "Always", want: true},
		"OnFailure, exit 0":              {policy: "OnFailure"},
		"OnFailure, exit 1":              {policy: "OnFailure", code: 1, want: true},
		"never":                          {policy: "Never", code: 1},
		"init, exit 0":                   {policy: "Always", init: true},
		"init, exit 1":                   {policy: "Always", init: true, code: 1, want: true},
		"sidecar":                        {policy: "Never", init: true, c: own("Always"), want: true},
		"container's policy":             {policy: "Always", c: own("Never"), code: 1},
		"container's policy OnFailure":   {policy: "Never", c: own("OnFailure"), code: 1, want: true},
		"a rule":                         {policy: "Never", c: own("Never", on(again, in, 42)), code: 42, want: true},
		"rule for other codes":           {policy: "Never", c: own("Never", on(again, in, 42)), code: 41},
		"rule with NotIn matches":        {policy: "Never", c: own("Never", on(again, notIn, 42)), code: 41, want: true},
		"rule with NotIn does not match": {policy: "Never", c: own("Never", on(again, notIn, 42)), code: 42},
		"rule that restarts all":         {policy: "Never", c: own("Never", on(all, in, 42)), code: 42, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: tc.policy}}
			if got := restart.ShouldStart(pod, &tc.c, tc.code, tc.init); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestEpoch(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{
		{Name: "a", RestartPolicyRules: []v1.ContainerRestartRule{
			on(v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleOnExitCodesOpIn, 1),
			on(v1.ContainerRestartRuleActionRestartAllContainers, v1.ContainerRestartRuleOnExitCodesOpNotIn, 0),
		}},
		{Name: "b"},
	}}}
	running := func(name string, epoch int64) cri.Container {
		return cri.Container{Name: name, State: cri.Running, Epoch: epoch}
	}
	ended := func(name string, epoch int64, code int32, finished int64) cri.Container {
		return cri.Container{Name: name, State: cri.Exited, Epoch: epoch, ExitCode: code, FinishedAt: at(finished)}
	}
	for name, tc := range map[string]struct {
		runs   []cri.Container // newest run first
		want   int64
		before []bool
	}{
		"no epoch ended": {[]cri.Container{running("a", 0), running("b", 0)}, 0,
			[]bool{false, false}},
		"one container ended the epoch": {[]cri.Container{ended("a", 0, 42, 10), running("b", 0)}, 1,
			[]bool{true, true}},
		"first matching rule applies": {[]cri.Container{ended("a", 0, 1, 30), running("b", 0)}, 0,
			[]bool{false, false}},
		"container without a rule": {[]cri.Container{running("a", 0), ended("b", 0, 42, 10)}, 0,
			[]bool{false, false}},
		"container started in the new epoch": {[]cri.Container{running("a", 1), ended("a", 0, 42, 10),
			running("b", 0)}, 1, []bool{false, true, true}},
		"ending run removed": {[]cri.Container{running("a", 1), ended("b", 0, 137, 11),
			running("b", 1)}, 1, []bool{false, true, false}},
		"ended again after the clock was set back": {
			[]cri.Container{ended("a", 1, 42, 10), ended("a", 0, 42, 4000), running("b", 1)}, 2, []bool{true, true, true}},
		"epoch of an older kubelet ended again": {[]cri.Container{ended("a", 1893456000000000000, 42, 10),
			running("b", 1893456000000000000)}, 1893456000000000001, []bool{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			seen := &cri.Pod{Containers: tc.runs}
			epoch := restart.Epoch(pod, seen)
			if epoch != tc.want {
				t.Errorf("epoch %d, want %d", epoch, tc.want)
			}
			for i, want := range tc.before {
				if got := restart.Before(&seen.Containers[i], epoch); got != want {
					t.Errorf("run %d: before %t", i, got)
				}
			}
		})
	}
	seen := &cri.Pod{Containers: []cri.Container{ended("a", 0, 42, 10)}}
	if !restart.Began(pod, &seen.Containers[0], 1) || restart.Began(pod, &seen.Containers[0], 2) {
		t.Error("Began is false for the run that began the epoch")
	}
	if pod.Spec.Containers[0].RestartPolicyRules = nil; restart.Epoch(pod, seen) != 0 {
		t.Error("a pod without rules has an epoch")
	}
}

func TestBackoff(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	b := &restart.Backoff{}
	if !b.Until(now, now).Equal(now) {
		t.Error("the first restart is delayed")
	}
	for _, seconds := range []int{10, 20, 40, 80, 160, 300, 300} {
		want := time.Duration(seconds) * time.Second
		b.Next(now, now)
		if b.Delay() != want || !b.Until(now, now).Equal(now.Add(want)) {
			t.Errorf("delay %v until %v, want %v", b.Delay(), b.Until(now, now), want)
		}
	}
	later := now.Add(2*restart.DefaultMax + time.Second)
	if !b.Until(later, later).Equal(later) {
		t.Error("it is not forgotten")
	}
	if b.Next(later, later); b.Delay() != restart.DefaultBase {
		t.Errorf("delay %v after it was forgotten", b.Delay())
	}
}

// TestBackoffWhenTheClockIsSetBack checks that a container whose end time is one hour in the future
// waits for its delay, and not for one hour.
func TestBackoffWhenTheClockIsSetBack(t *testing.T) {
	ended := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	b := &restart.Backoff{}
	b.Next(ended, ended)
	now := ended.Add(-time.Hour)
	for range 2 { // a repeated call must return the same time
		if got, want := b.Until(ended, now), ended.Add(-time.Hour+restart.DefaultBase); !got.Equal(want) {
			t.Errorf("until %v, want %v", got, want)
		}
	}
	if got, want := b.Until(ended, now.Add(5*time.Second)), now.Add(restart.DefaultBase); !got.Equal(want) {
		t.Errorf("5 s later: until %v, want %v", got, want)
	}
	if next := now.Add(time.Minute); !b.Until(next, next).Equal(next.Add(restart.DefaultBase)) {
		t.Error("the next end does not count by its own time")
	}
}

// TestBackoffWhenTheClockIsBehind checks that a container whose end time is before its start,
// because the runtime's clock is behind, waits for its delay. It also checks that the delay is
// reset after the container has run for long.
func TestBackoffWhenTheClockIsBehind(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	b := &restart.Backoff{}
	for _, delay := range []time.Duration{restart.DefaultBase, 2 * restart.DefaultBase} {
		b.Next(now.Add(-time.Hour), now)
		for range 2 { // a repeated call must return the same time
			if got, want := b.Until(now.Add(-time.Hour+time.Second), now.Add(time.Second)),
				now.Add(time.Second+delay); !got.Equal(want) {
				t.Errorf("until %v, want %v", got, want)
			}
		}
		now = now.Add(time.Minute)
	}
	later := now.Add(time.Hour)
	if got := b.Until(later.Add(-2*time.Hour), later); !got.Equal(later) {
		t.Errorf("after an hour: until %v, want %v", got, later)
	}
}

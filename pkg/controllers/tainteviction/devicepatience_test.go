// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package tainteviction

import (
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEndOf(t *testing.T) {
	now := time.Unix(1000, 0)
	taint := func(key string, effect resourcev1.DeviceTaintEffect, added int64) resourcev1.DeviceTaint {
		at := metav1.Unix(added, 0)
		return resourcev1.DeviceTaint{Key: key, Effect: effect, TimeAdded: &at}
	}
	tolerates := func(key string, seconds ...int64) resourcev1.DeviceToleration {
		tol := resourcev1.DeviceToleration{Key: key, Operator: resourcev1.DeviceTolerationOpExists,
			Effect: resourcev1.DeviceTaintEffectNoExecute}
		if len(seconds) > 0 {
			tol.TolerationSeconds = &seconds[0]
		}
		return tol
	}
	const noExecute, noSchedule = resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule
	for name, test := range map[string]struct {
		taints      []resourcev1.DeviceTaint
		tolerations []resourcev1.DeviceToleration
		want        int64 // Unix time in seconds at which the pod must be deleted; 0 if it may stay
	}{
		"no taint":          {},
		"effect NoSchedule": {taints: []resourcev1.DeviceTaint{taint("a", noSchedule, 900)}},
		"not tolerated":     {taints: []resourcev1.DeviceTaint{taint("a", noExecute, 900)}, want: 900},
		"tolerated": {taints: []resourcev1.DeviceTaint{taint("a", noExecute, 900)},
			tolerations: []resourcev1.DeviceToleration{tolerates("a")}},
		"tolerated for a while": {taints: []resourcev1.DeviceTaint{taint("a", noExecute, 900)},
			tolerations: []resourcev1.DeviceToleration{tolerates("a", 50), tolerates("a", 30)}, want: 930},
		"tolerated for 0 s": {taints: []resourcev1.DeviceTaint{taint("a", noExecute, 900)},
			tolerations: []resourcev1.DeviceToleration{tolerates("a", -5)}, want: 900},
		"another taint is tolerated": {taints: []resourcev1.DeviceTaint{taint("a", noExecute, 900)},
			tolerations: []resourcev1.DeviceToleration{tolerates("b")}, want: 900},
		"the first of two": {taints: []resourcev1.DeviceTaint{taint("a", noExecute, 950),
			taint("b", noExecute, 920)}, want: 920},
		"taint without a time": {taints: []resourcev1.DeviceTaint{{Key: "a", Effect: noExecute}}, want: 1000},
	} {
		end, ends := endOf(test.taints, test.tolerations, now)
		if ends != (test.want != 0) || ends && end.Unix() != test.want {
			t.Errorf("%s: %v, %v; want %d", name, end.Unix(), ends, test.want)
		}
	}
}

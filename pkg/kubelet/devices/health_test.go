// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"keelson.dev/keelson/pkg/kubelet/numa"
)

// TestHealth checks the reported health of a container's devices: after the plugin has reported a
// change, after the plugin has ended, and after the kubelet has restarted.
func TestHealth(t *testing.T) {
	at := dir(t)
	n, f := start(t, at), &fakePlugin{}
	if err := n.plug(t, at, f, gadget); err != nil {
		t.Fatal(err)
	}
	list := func(health string) {
		f.lists <- []*api.Device{{ID: "a", Health: health}, {ID: "b", Health: api.Healthy}}
		<-n.changed
	}
	list(api.Healthy)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: v1.PodSpec{Containers: []v1.Container{{
		Name: "c", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{gadget: resource.MustParse("2")}},
	}}}}
	if err := n.Allocate(t.Context(), pod, &pod.Spec.Containers[0], numa.Hint{}); err != nil {
		t.Fatal(err)
	}
	expect := func(when, want string, told bool) {
		t.Helper()
		if got := fmt.Sprint(n.Health("u", "c")); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
		select {
		case uid := <-n.affected:
			if !told || uid != "u" {
				t.Errorf("%s: unexpected change of %s", when, uid)
			}
		default:
			if told {
				t.Errorf("%s: no change reported", when)
			}
		}
	}
	const good, bad, none = "[{example.com/gadget [{a Healthy <nil>} {b Healthy <nil>}]}]",
		"[{example.com/gadget [{a Unhealthy <nil>} {b Healthy <nil>}]}]",
		"[{example.com/gadget [{a Unhealthy <nil>} {b Unhealthy <nil>}]}]"
	expect("at first", good, false)
	list(api.Unhealthy)
	expect("one is broken", bad, true)
	list(api.Unhealthy)
	expect("the same again", bad, false)
	f.server.Stop()
	<-n.changed
	expect("after the plugin has ended", none, true)
	if got := n.Health("u", "other"); len(got) != 0 {
		t.Errorf("another container: %v", got)
	}
	n.stop()
	n = start(t, at)
	expect("the next kubelet has not heard of it yet", good, false)
}

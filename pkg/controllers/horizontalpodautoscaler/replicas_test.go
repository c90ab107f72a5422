// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package horizontalpodautoscaler

import (
	"fmt"
	"math"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/controllers/controller"
)

func moment() time.Time { return time.Unix(1_000_000, 0) }

// pod returns a pod that has been ready for an hour and requests one CPU, modified by the given
// functions.
func pod(name string, changes ...func(*v1.Pod)) *v1.Pod {
	since := metav1.NewTime(moment().Add(-time.Hour))
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
		}}}},
		Status: v1.PodStatus{Phase: v1.PodRunning, StartTime: &since, Conditions: []v1.PodCondition{{
			Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: since,
		}}},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func pending(p *v1.Pod)  { p.Status.Phase = v1.PodPending }
func failed(p *v1.Pod)   { p.Status.Phase = v1.PodFailed }
func notReady(p *v1.Pod) { p.Status.Conditions[0].Status = v1.ConditionFalse }
func young(p *v1.Pod) {
	p.Status.StartTime = ptr.To(metav1.NewTime(moment().Add(-time.Minute)))
	p.Status.Conditions[0].LastTransitionTime = *p.Status.StartTime
}

// used returns samples for the pods p0, p1 and so on; the value -1 means that the pod has no
// sample.
func used(milli ...int64) samples {
	s := samples{}
	for i, m := range milli {
		if m >= 0 {
			s[fmt.Sprint("p", i)] = sample{m, moment(), 30 * time.Second}
		}
	}
	return s
}

func TestPropose(t *testing.T) {
	p0, p1, p2 := pod("p0"), pod("p1"), pod("p2")
	for name, tc := range map[string]struct {
		pods    []*v1.Pod
		samples samples
		target  int32
		want    int32
		percent int32
		err     bool
	}{
		"on target": {pods: []*v1.Pod{p0, p1, p2}, samples: used(500, 500, 500),
			target: 50, want: 3, percent: 50},
		"within tolerance": {pods: []*v1.Pod{p0, p1, p2}, samples: used(540, 540, 540),
			target: 50, want: 3, percent: 54},
		"too much": {pods: []*v1.Pod{p0, p1, p2}, samples: used(900, 900, 900),
			target: 50, want: 6, percent: 90},
		"too little": {pods: []*v1.Pod{p0, p1, p2}, samples: used(100, 100, 100),
			target: 50, want: 1, percent: 10},
		"too much, one without sample": {pods: []*v1.Pod{p0, p1, p2}, samples: used(900, 900, -1),
			target: 50, want: 4, percent: 90},
		"too little, one without sample": {pods: []*v1.Pod{p0, p1, p2}, samples: used(100, 100, -1),
			target: 50, want: 3, percent: 10},
		"too much, one pending": {pods: []*v1.Pod{p0, p1, pod("p2", pending)},
			samples: used(900, 900, -1), target: 50, want: 4, percent: 90},
		"too little, one pending": {pods: []*v1.Pod{p0, p1, pod("p2", pending)},
			samples: used(100, 100, -1), target: 50, want: 1, percent: 10},
		"barely too much, one pending": {pods: []*v1.Pod{p0, pod("p1", pending), pod("p2", pending)},
			samples: used(600, -1, -1), target: 50, want: 3, percent: 60},
		"failed ones do not count": {pods: []*v1.Pod{p0, p1, pod("p2", failed)},
			samples: used(900, 900, 9000), target: 50, want: 4, percent: 90},
		"starting pods do not count": {pods: []*v1.Pod{p0, p1, pod("p2", young, notReady)},
			samples: used(500, 500, 9000), target: 50, want: 3, percent: 50},
		"young, with samples from after start": {pods: []*v1.Pod{p0, p1, pod("p2", young)},
			samples: used(900, 900, 900), target: 50, want: 6, percent: 90},
		"no samples": {pods: []*v1.Pod{p0, p1, p2}, samples: used(), target: 50, err: true},
		"no pods":    {samples: used(1), target: 50, err: true},
	} {
		t.Run(name, func(t *testing.T) {
			requests, err := requestsOf(tc.pods, "", v1.ResourceCPU)
			if err != nil {
				t.Fatal(err)
			}
			starts := func(pod *v1.Pod, x sample) bool { return starting(pod, x, controller.DefaultAutoscaling(), moment()) }
			got, u, err := propose(3, tc.pods, tc.samples, ofRequests(requests, tc.target), tolerance{0.1, 0.1}, starts)
			if got != tc.want || u.percent != tc.percent || (err != nil) != tc.err {
				t.Errorf("got %d at %d%%, %v; want %d at %d%%", got, u.percent, err, tc.want, tc.percent)
			}
		})
	}
}

func TestRequests(t *testing.T) {
	bare := pod("p", func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = nil })
	sidecar := pod("p", func(p *v1.Pod) {
		side := p.Spec.Containers[0]
		side.Name, side.RestartPolicy = "side", ptr.To(v1.ContainerRestartPolicyAlways)
		p.Spec.InitContainers = []v1.Container{side}
	})
	whole := pod("p", func(p *v1.Pod) {
		p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}}
		p.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")}
	})
	huge := pod("p", func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("10P")
	})
	for name, tc := range map[string]struct {
		pod       *v1.Pod
		container string
		want      int64
		err       string
	}{
		"pod as a whole": {whole, "", 3000, ""},
		"all":            {sidecar, "", 2000, ""},
		"one":            {sidecar, "side", 1000, ""},
		"too much":       {huge, "", math.MaxInt64, ""},
		"not found":      {sidecar, "other", 0, "container other not found in Pod p"},
		"no request":     {bare, "", 0, "missing request for cpu in container c of Pod p"},
		"container only": {bare, "c", 0, "missing request for cpu in container c of Pod p"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := requestOf(tc.pod, tc.container, v1.ResourceCPU)
			if got != tc.want || err != nil && err.Error() != tc.err || err == nil && tc.err != "" {
				t.Errorf("got %d, %v", got, err)
			}
		})
	}
}

// TestUtilization checks that percentOf computes the right percentage, which is at most the maximum
// of int32.
func TestUtilization(t *testing.T) {
	for name, tc := range map[string]struct {
		used, asked int64
		want        int32
	}{
		"less than one":     {9, 1000, 0},
		"rounded down":      {1999, 1000, 199},
		"more than a field": {math.MaxInt32, 1, math.MaxInt32},
		"more than a word":  {math.MaxInt64, 1, math.MaxInt32},
		"words":             {math.MaxInt64, math.MaxInt64, 100},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ofRequests(map[string]int64{"p": tc.asked}, 50).of(samples{"p": {value: tc.used}})
			if err != nil || got.percent != tc.want {
				t.Errorf("got %d, %v, want %d", got.percent, err, tc.want)
			}
		})
	}
}

func TestTotals(t *testing.T) {
	tolerance := tolerance{0.1, 0.1}
	if n, err := byRatio(0, 2.5, nil, tolerance); n != 3 || err != nil {
		t.Errorf("from none: %d, %v", n, err)
	}
	if n, err := byRatio(2, 1.5, []*v1.Pod{pod("a"), pod("b", notReady)}, tolerance); n != 2 || err != nil {
		t.Errorf("of those ready: %d, %v", n, err)
	}
}

// TestOfTotal checks ofTotal with different numbers of wanted, existing and ready pods. In the
// cases, spec is the wanted and status the existing number.
func TestOfTotal(t *testing.T) {
	const average, value = true, false
	pods := func(ready, unready int) (out []*v1.Pod) {
		for i := range ready + unready {
			if i < ready {
				out = append(out, pod(fmt.Sprint(i)))
			} else {
				out = append(out, pod(fmt.Sprint(i), notReady))
			}
		}
		return out
	}
	for name, tc := range map[string]struct {
		average      bool
		spec, status int32
		pods         []*v1.Pod
		total        int64 // total value of the metric; its target is 1000
		down, up     float64
		want         int32
		shown        int64
		fails        bool
	}{
		"more":                                {average, 4, 4, pods(4, 0), 9000, .1, .1, 9, 2250, false},
		"less":                                {average, 4, 4, pods(4, 0), 1500, .1, .1, 2, 375, false},
		"within tolerance":                    {average, 4, 4, pods(4, 0), 4100, .1, .1, 4, 1025, false},
		"at the edge below":                   {average, 4, 4, pods(4, 0), 3600, .1, .1, 4, 900, false},
		"within own tolerance":                {average, 4, 4, pods(4, 0), 7000, .1, .8, 4, 1750, false},
		"surging, within tolerance":           {average, 2, 3, pods(2, 1), 2000, .4, .1, 2, 667, false},
		"surging, within, more than wanted":   {average, 10, 12, pods(10, 2), 12500, .1, .1, 10, 1042, false},
		"surging, more":                       {average, 2, 3, pods(2, 1), 8000, .1, .1, 8, 2667, false},
		"fewer than wanted, within tolerance": {average, 5, 4, pods(4, 0), 4000, .1, .1, 5, 1000, false},
		"no pods":                             {average, 1, 0, nil, 5000, .1, .1, 5, 5000, false},
		"no pods, small total":                {average, 1, 0, nil, 500, .1, .1, 1, 500, false},
		"no pods, no load":                    {average, 1, 0, nil, 0, .1, .1, 0, 0, false},
		"no pods wanted":                      {average, 0, 0, nil, 2500, .1, .1, 3, 2500, false},
		"no pods, infinite load": {average, 1, 0, nil, math.MaxInt64, .1, .1, math.MaxInt32,
			math.MaxInt64, false},
		"infinite load": {average, 1, 2, pods(2, 0), math.MaxInt64, .1, .1, math.MaxInt32,
			math.MaxInt64, false},
		"value, more":                      {value, 4, 4, pods(4, 0), 1500, .1, .1, 6, 1500, false},
		"value, within tolerance":          {value, 4, 4, pods(4, 0), 1050, .1, .1, 4, 1050, false},
		"value, surging, within tolerance": {value, 2, 3, pods(2, 1), 950, .1, .1, 2, 950, false},
		"value, surging, more":             {value, 2, 3, pods(2, 1), 2000, .1, .1, 4, 2000, false},
		"value, none wanted":               {value, 0, 0, nil, 2500, .1, .1, 3, 2500, false},
		"value, none there":                {value, 2, 0, nil, 2500, .1, .1, 0, 2500, true},
		"value, none ready":                {value, 2, 2, pods(0, 2), 2500, .1, .1, 0, 2500, false},
		"value, no load":                   {value, 2, 2, pods(2, 0), 0, .1, .1, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			quantity := func(f float64) *resource.Quantity {
				return resource.NewMilliQuantity(int64(f*1000), resource.DecimalSI)
			}
			p := &pass{
				Controller: &Controller{}, pods: tc.pods,
				hpa: &autoscalingv2.HorizontalPodAutoscaler{
					Spec: autoscalingv2.HorizontalPodAutoscalerSpec{Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{
						ScaleDown: &autoscalingv2.HPAScalingRules{Tolerance: quantity(tc.down)},
						ScaleUp:   &autoscalingv2.HPAScalingRules{Tolerance: quantity(tc.up)},
					}}},
				scale: &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: tc.spec},
					Status: autoscalingv1.ScaleStatus{Replicas: tc.status}},
			}
			target := autoscalingv2.MetricTarget{Value: milli(1000)}
			if tc.average {
				target = autoscalingv2.MetricTarget{AverageValue: milli(1000)}
			}
			n, current, err := p.ofTotal(target, tc.total)
			if (err != nil) != tc.fails || n != tc.want {
				t.Errorf("got %d, %v, want %d", n, err, tc.want)
			}
			shown := current.Value
			if tc.average {
				shown = current.AverageValue
			}
			if want := milli(tc.shown); shown.Cmp(*want) != 0 {
				t.Errorf("shows %v, want %v", shown, want)
			}
		})
	}
}

func rules(window int32, choice autoscalingv2.ScalingPolicySelect,
	policies ...autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
	return &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &window, SelectPolicy: &choice, Policies: policies}
}

func TestStabilize(t *testing.T) {
	behavior := &autoscalingv2.HorizontalPodAutoscalerBehavior{
		ScaleUp: rules(60, autoscalingv2.MaxChangePolicySelect), ScaleDown: rules(120, autoscalingv2.MaxChangePolicySelect),
	}
	ago := func(n int32, age time.Duration) at { return at{n, moment().Add(-age)} }
	for name, tc := range map[string]struct {
		behavior          *autoscalingv2.HorizontalPodAutoscalerBehavior
		proposed          []at
		current, proposal int32
		want              int32
		reason            string
	}{
		"nothing before":                {nil, nil, 3, 2, 2, "ReadyForNewScale"},
		"higher before":                 {nil, []at{ago(5, time.Minute)}, 5, 2, 5, "ScaleDownStabilized"},
		"higher long before":            {nil, []at{ago(5, time.Hour)}, 5, 2, 2, "ReadyForNewScale"},
		"up at once":                    {nil, []at{ago(1, time.Minute)}, 1, 9, 9, "ReadyForNewScale"},
		"rules: up, lower before":       {behavior, []at{ago(4, 30*time.Second)}, 3, 9, 4, "ScaleUpStabilized"},
		"rules: up, lower long before":  {behavior, []at{ago(4, 90*time.Second)}, 3, 9, 9, "ReadyForNewScale"},
		"rules: down, higher before":    {behavior, []at{ago(6, 90*time.Second)}, 7, 2, 6, "ScaleDownStabilized"},
		"rules: down, highest is above": {behavior, []at{ago(9, 90*time.Second)}, 7, 2, 7, "ScaleDownStabilized"},
	} {
		t.Run(name, func(t *testing.T) {
			h := history{downWindow: 5 * time.Minute, proposed: tc.proposed}
			got := h.stabilize(tc.behavior, tc.current, tc.proposal, moment())
			if got.n != tc.want || got.reason != tc.reason {
				t.Errorf("got %+v, want %d %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestLimit(t *testing.T) {
	pods := func(n int32) autoscalingv2.HPAScalingPolicy {
		return autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: n, PeriodSeconds: 60}
	}
	percent := func(n int32) autoscalingv2.HPAScalingPolicy {
		return autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: n, PeriodSeconds: 60}
	}
	behavior := func(choice autoscalingv2.ScalingPolicySelect) *autoscalingv2.HorizontalPodAutoscalerBehavior {
		r := rules(0, choice, pods(4), percent(10))
		return &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: r, ScaleDown: r}
	}
	most, least := behavior(autoscalingv2.MaxChangePolicySelect), behavior(autoscalingv2.MinChangePolicySelect)
	never := behavior(autoscalingv2.DisabledPolicySelect)
	just := at{3, moment().Add(-time.Second)}
	for name, tc := range map[string]struct {
		behavior          *autoscalingv2.HorizontalPodAutoscalerBehavior
		history           history
		current, proposal int32
		want              int32
		reason            string
	}{
		"fine":                         {nil, history{}, 10, 12, 12, "DesiredWithinRange"},
		"twice as many":                {nil, history{}, 10, 50, 20, "ScaleUpLimit"},
		"too many":                     {nil, history{}, 60, 150, 100, "TooManyReplicas"},
		"too few":                      {nil, history{}, 10, 1, 2, "TooFewReplicas"},
		"the larger step up":           {most, history{}, 20, 50, 24, "ScaleUpLimit"},
		"the smaller step up":          {least, history{}, 20, 50, 22, "ScaleUpLimit"},
		"partly done":                  {most, history{added: []at{just}}, 20, 50, 21, "ScaleUpLimit"},
		"the larger step down":         {most, history{}, 20, 3, 16, "ScaleDownLimit"},
		"the smaller step down":        {least, history{}, 20, 3, 18, "ScaleDownLimit"},
		"more than allowed done":       {least, history{removed: []at{just}}, 20, 3, 20, "ScaleDownLimit"},
		"disabled":                     {never, history{}, 20, 50, 20, "ScaleUpLimit"},
		"rules, and it stays as it is": {most, history{}, 20, 20, 20, "DesiredWithinRange"},
	} {
		t.Run(name, func(t *testing.T) {
			hpa := &autoscalingv2.HorizontalPodAutoscaler{
				Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 100, Behavior: tc.behavior}}
			got := tc.history.limit(hpa, 2, tc.current, tc.proposal, moment())
			if got.n != tc.want || got.reason != tc.reason {
				t.Errorf("got %+v, want %d %s", got, tc.want, tc.reason)
			}
		})
	}
}

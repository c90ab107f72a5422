// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	got, err := Parse(&kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"nodefs.available": "10%", "memory.available": "100Mi",
			"imagefs.available": "0%", "pid.available": "100%"},
		EvictionSoft:            map[string]string{"memory.available": "1Gi"},
		EvictionSoftGracePeriod: map[string]string{"memory.available": "1m30s"},
		EvictionMinimumReclaim:  map[string]string{"nodefs.available": "500Mi"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, th := range got {
		words = append(words,
			strings.Join([]string{string(th.Signal), th.quantity(1000).String(), th.Grace.String(), th.Reclaim.String()}, " "))
	}
	want := []string{"memory.available 100Mi 0s 0", "memory.available 1Gi 1m30s 0", "nodefs.available 100 0s 500Mi"}
	if !slices.Equal(words, want) {
		t.Errorf("thresholds %q, want %q", words, want)
	}
	got, err = Parse(&kubeletconfig.KubeletConfiguration{
		EvictionHard:            map[string]string{"memory.available": "5%", "nodefs.available": "10%"},
		EvictionSoft:            map[string]string{"memory.available": "1Gi"},
		EvictionSoftGracePeriod: map[string]string{"memory.available": "1m"},
		EvictionMinimumReclaim:  map[string]string{"memory.available": "10Mi"},
		EnforceNodeAllocatable:  []string{"pods"},
	})
	if err != nil {
		t.Fatal(err)
	}
	words = nil
	for _, th := range got {
		words = append(words,
			strings.Join([]string{string(th.Signal), th.quantity(1000).String(), th.Reclaim.String(),
				string(condition(th.Signal)), string(resourceOf(th.Signal))}, " "))
	}
	want = []string{"allocatableMemory.available 50 10Mi MemoryPressure memory",
		"memory.available 50 10Mi MemoryPressure memory",
		"memory.available 1Gi 10Mi MemoryPressure memory", "nodefs.available 100 0 DiskPressure ephemeral-storage"}
	if !slices.Equal(words, want) {
		t.Errorf("thresholds %q, want %q", words, want)
	}
	for name, c := range map[string]*kubeletconfig.KubeletConfiguration{
		"signal":   {EvictionHard: map[string]string{"cpu.available": "1"}},
		"percent":  {EvictionHard: map[string]string{"memory.available": "101%"}},
		"negative": {EvictionHard: map[string]string{"memory.available": "-1"}},
		"quantity": {EvictionHard: map[string]string{"memory.available": "much"}},
		"no grace": {EvictionSoft: map[string]string{"memory.available": "1Gi"}},
		"grace": {EvictionSoft: map[string]string{"memory.available": "1Gi"},
			EvictionSoftGracePeriod: map[string]string{"memory.available": "-1s"}},
		"reclaim": {EvictionHard: map[string]string{"memory.available": "1"},
			EvictionMinimumReclaim: map[string]string{"memory.available": "x"}},
	} {
		if _, err := Parse(c); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestStep(t *testing.T) {
	thresholds := []Threshold{
		{Signal: MemoryAvailable, Value: resource.MustParse("100"), Reclaim: resource.MustParse("50")},
		{Signal: MemoryAvailable, Value: resource.MustParse("300"), Soft: true, Grace: 20 * time.Second},
		{Signal: NodeFsAvailable, Percent: 10},
	}
	s := state{seen: map[v1.NodeConditionType]time.Time{}}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	step := func(after int, memory, disk int64, due []int, holds ...v1.NodeConditionType) {
		t.Helper()
		at = at.Add(time.Duration(after) * time.Second)
		o := Observation{NodeFsAvailable: {disk, 1000}}
		if memory >= 0 {
			o[MemoryAvailable] = Amount{memory, 1000}
		}
		got, gotDue := s.step(at, thresholds, o, 30*time.Second)
		if !slices.Equal(gotDue, due) || !slices.Equal(slices.Sorted(maps.Keys(got)), holds) {
			t.Fatalf("due %v, conditions %v; want %v, %v", gotDue, slices.Sorted(maps.Keys(got)), due, holds)
		}
	}
	step(0, 300, 100, nil)
	step(10, 299, 100, nil, v1.NodeMemoryPressure)
	step(10, 250, 99, []int{2}, v1.NodeDiskPressure, v1.NodeMemoryPressure)
	step(10, 250, 100, []int{1}, v1.NodeDiskPressure, v1.NodeMemoryPressure)
	step(10, 300, 100, nil, v1.NodeDiskPressure, v1.NodeMemoryPressure)
	step(10, 300, 100, nil, v1.NodeMemoryPressure) // the condition stays true for 30 s
	step(10, 299, 100, nil, v1.NodeMemoryPressure) // the soft threshold is crossed again, so its grace period starts again
	step(10, 99, 100, []int{0}, v1.NodeMemoryPressure)
	// The threshold of 100 was crossed, and its Reclaim is 50. So it stays crossed until 150 is
	// available.
	step(10, 149, 100, []int{0, 1}, v1.NodeMemoryPressure)
	step(10, 150, 100, []int{1}, v1.NodeMemoryPressure)
	step(10, 149, 100, []int{1}, v1.NodeMemoryPressure)
	step(10, -1, 100, nil, v1.NodeMemoryPressure) // a threshold is not crossed if its resource cannot be measured
	step(30, 999, 100, nil)
}

func podOf(name string, priority int32, request string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{Priority: &priority, Containers: []v1.Container{{Name: "c"}}}}
	if request != "" {
		q := resource.MustParse(request)
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: q, v1.ResourceEphemeralStorage: q}
	}
	return p
}

func usageOf(memory, disk, files, processes uint64) *statsapi.PodStats {
	return &statsapi.PodStats{
		Memory:           &statsapi.MemoryStats{WorkingSetBytes: &memory},
		EphemeralStorage: &statsapi.FsStats{UsedBytes: &disk, InodesUsed: &files},
		ProcessStats:     &statsapi.ProcessStats{ProcessCount: &processes},
	}
}

func TestRank(t *testing.T) {
	all := []Candidate{
		{podOf("modest", 0, "100"), usageOf(50, 50, 9, 1)},
		{podOf("important and greedy", 100, "10"), usageOf(500, 500, 5, 9)},
		{podOf("greedy", 0, "10"), usageOf(100, 100, 1, 2)},
		{podOf("greedier", 0, ""), usageOf(200, 200, 2, 3)},
		{podOf("unknown", 5, ""), nil},
	}
	for r, want := range map[v1.ResourceName][]string{
		v1.ResourceMemory:           {"unknown", "greedier", "greedy", "important and greedy", "modest"},
		v1.ResourceEphemeralStorage: {"unknown", "greedier", "greedy", "important and greedy", "modest"},
		inodes:                      {"unknown", "modest", "greedier", "greedy", "important and greedy"},
		pids:                        {"greedier", "greedy", "modest", "unknown", "important and greedy"},
	} {
		list := slices.Clone(all)
		rank(list, r)
		var got []string
		for _, c := range list {
			got = append(got, c.Pod.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", r, got, want)
		}
	}
}

// TestRankIsAnOrder checks that rank does not depend on the order of its input, and that no pod
// that uses at most its request is ranked before a pod that exceeds its request.
func TestRankIsAnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []Candidate
		for i := range rapid.IntRange(1, 6).Draw(t, "pods") {
			request := rapid.SampledFrom([]string{"", "10", "20"}).Draw(t, "request")
			c := Candidate{Pod: podOf(string(rune('a'+i)), int32(rapid.IntRange(0, 2).Draw(t, "priority")), request)}
			if rapid.IntRange(0, 5).Draw(t, "known") > 0 {
				n := uint64(rapid.IntRange(0, 30).Draw(t, "used")*10 + i) // a different usage for each pod
				c.Usage = usageOf(n, n, n, n)
			}
			list = append(list, c)
		}
		r := rapid.SampledFrom([]v1.ResourceName{v1.ResourceMemory, v1.ResourceEphemeralStorage, inodes,
			pids}).Draw(t, "resource")
		one, other := slices.Clone(list), slices.Clone(list)
		slices.Reverse(other)
		rank(one, r)
		rank(other, r)
		if a, b := one[0], other[0]; a.Pod != b.Pod && a.Usage != nil && b.Usage != nil {
			t.Fatalf("%s first, or %s", a.Pod.Name, b.Pod.Name)
		}
		if r != v1.ResourceMemory {
			return
		}
		used, asked, known := one[0].consumes(r)
		for _, c := range one[1:] {
			if u, q, ok := c.consumes(r); known && used <= asked && (!ok || u > q) {
				t.Fatalf("%s is evicted although %s exceeds its request", one[0].Pod.Name, c.Pod.Name)
			}
		}
	})
}

func TestCritical(t *testing.T) {
	static, mirrored, api := podOf("static", 0, ""), podOf("mirror", 0, ""), podOf("api", 0, "")
	static.Annotations = map[string]string{source: "file"}
	mirrored.Annotations = map[string]string{mirror: "x"}
	api.Annotations = map[string]string{source: "api"}
	for pod, want := range map[*v1.Pod]bool{static: true, mirrored: true, api: false,
		podOf("system", 2_000_000_000, ""): true, podOf("high", 1_999_999_999, ""): false} {
		if IsCritical(pod) != want {
			t.Errorf("%s: %t", pod.Name, !want)
		}
	}
}

func TestMessage(t *testing.T) {
	pod := podOf("p", 0, "100Mi")
	used, small := uint64(300<<20), uint64(1<<20)
	s := usageOf(used, used, 7, 7)
	s.Containers = []statsapi.ContainerStats{
		{Name: "c", Memory: &statsapi.MemoryStats{WorkingSetBytes: &used},
			Rootfs: &statsapi.FsStats{UsedBytes: &used}, Logs: &statsapi.FsStats{UsedBytes: &small}},
		{Name: "debugger", Memory: &statsapi.MemoryStats{WorkingSetBytes: &used}},
	}
	for want, th := range map[string]Threshold{
		"The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. " +
			"Container c was using 300Mi, request is 100Mi, has larger consumption of memory. ": {
			Signal: MemoryAvailable, Value: resource.MustParse("100Mi")},
		"The node was low on resource: ephemeral-storage. Threshold quantity: 100Mi, available: 50Mi. " +
			"Container c was using 301Mi, request is 100Mi, has larger consumption of ephemeral-storage. ": {
			Signal: NodeFsAvailable, Percent: 10},
		"The node was low on resource: inodes. Threshold quantity: 5k, available: 52428800. ": {
			Signal: NodeFsInodesFree, Value: resource.MustParse("5k")},
	} {
		if got := message(Candidate{pod, s}, &th, Amount{50 << 20, 1000 << 20}); got != want {
			t.Errorf("message %q, want %q", got, want)
		}
	}
}

func TestOverLimit(t *testing.T) {
	limit, big, little := resource.MustParse("10Mi"), uint64(11<<20), uint64(1)
	volumes := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}},
		Volumes: []v1.Volume{
			{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}}}}
	storage := podOf("p", 0, "")
	storage.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: limit}
	logs := statsapi.ContainerStats{Name: "c", Logs: &statsapi.FsStats{UsedBytes: &big}}
	hugeLimit := resource.MustParse("16E") // so large that a sum with it exceeds 64 bits
	huge, hugeVolume := storage.DeepCopy(), volumes.DeepCopy()
	huge.Spec.Containers[0].Resources.Limits[v1.ResourceEphemeralStorage] = hugeLimit
	hugeVolume.Spec.Volumes[0].EmptyDir.SizeLimit = &hugeLimit
	// Both pods have an init container "c" with a storage limit. It is a sidecar in the pod
	// sidecar, and an ordinary init container in the pod starting.
	sidecar, always := podOf("p", 0, ""), v1.ContainerRestartPolicyAlways
	sidecar.Spec.Containers[0].Name = "main"
	sidecar.Spec.InitContainers = []v1.Container{{Name: "c", Resources: storage.Spec.Containers[0].Resources}}
	starting := sidecar.DeepCopy()
	sidecar.Spec.InitContainers[0].RestartPolicy = &always
	for name, c := range map[string]struct {
		pod  *v1.Pod
		s    statsapi.PodStats
		want string
	}{
		"volume": {volumes,
			statsapi.PodStats{VolumeStats: []statsapi.VolumeStats{
				{Name: "v", FsStats: statsapi.FsStats{UsedBytes: &big}}}},
			`Usage of EmptyDir volume "v" exceeds the limit "10Mi". `},
		"small volume": {volumes,
			statsapi.PodStats{VolumeStats: []statsapi.VolumeStats{
				{Name: "v", FsStats: statsapi.FsStats{UsedBytes: &little}}}}, ""},
		"pod": {storage,
			statsapi.PodStats{EphemeralStorage: &statsapi.FsStats{UsedBytes: &big}},
			"Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. "},
		"container": {storage, statsapi.PodStats{Containers: []statsapi.ContainerStats{logs}},
			`Container c exceeded its local ephemeral storage limit "10Mi". `},
		"sidecar": {sidecar, statsapi.PodStats{Containers: []statsapi.ContainerStats{logs}},
			`Container c exceeded its local ephemeral storage limit "10Mi". `},
		"init container": {starting, statsapi.PodStats{Containers: []statsapi.ContainerStats{logs}}, ""},
		"huge volume": {hugeVolume,
			statsapi.PodStats{VolumeStats: []statsapi.VolumeStats{{Name: "v", FsStats: statsapi.FsStats{UsedBytes: &big}}}}, ""},
		"huge pod":                {huge, statsapi.PodStats{EphemeralStorage: &statsapi.FsStats{UsedBytes: &big}}, ""},
		"huge container":          {huge, statsapi.PodStats{Containers: []statsapi.ContainerStats{logs}}, ""},
		"not measured":            {storage, statsapi.PodStats{}, ""},
		"limit of another volume": {podOf("p", 0, ""), statsapi.PodStats{Containers: []statsapi.ContainerStats{logs}}, ""},
	} {
		signals := map[string]Signal{"volume": emptyDirLimit, "pod": podLimit, "container": containerLimit,
			"sidecar": containerLimit}
		if got, signal := overLimit(c.pod, &c.s); got != c.want || signal != signals[name] {
			t.Errorf("%s: %q for %q, want %q", name, got, signal, c.want)
		}
		if HasStorageLimit(c.pod) != (name != "limit of another volume") {
			t.Errorf("%s: limited %t", name, HasStorageLimit(c.pod))
		}
	}
}

func TestObserve(t *testing.T) {
	dir := t.TempDir()
	o, err := Observe(dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []Signal{MemoryAvailable, NodeFsAvailable, ImageFsAvailable, PIDAvailable} {
		if a, ok := o[s]; !ok || a.Available <= 0 || a.Available > a.Capacity {
			t.Errorf("%s is %+v", s, a)
		}
	}
	if _, err := Observe(dir, dir+"/none"); err == nil {
		t.Error("no error for a missing directory")
	}
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/volume"
)

// fakeRuntime is a container runtime for one pod. In wrong, it records actions of the worker that
// violate the rules.
type fakeRuntime struct {
	clock   clock.Clock
	pod     *v1.Pod
	changed func() // called after every change, as the event stream of a real runtime would

	mu       sync.Mutex
	seq      int
	boxes    []cri.Sandbox
	runs     []cri.Container
	failures map[string]int // how many of the next calls fail, by name of the call
	calls    map[string]int
	started  map[string]int // number of starts, by container
	wrong    []string
	order    []string                 // IDs of the updated containers, in order of the updates
	used     int64                    // memory usage of every container in bytes
	skew     time.Duration            // difference between the runtime's clock and the real one
	code     int32                    // exit code of containers that are asked to end
	slow     map[string]time.Duration // how long a container takes to end after its signal
	full     error                    // the error that preparing volumes returns
	mark     time.Time                // the time at which the timeline starts
	asked    []string                 // the times at which containers were asked to end, by handlers and by signals
}

func newFakeRuntime(pod *v1.Pod) *fakeRuntime {
	return &fakeRuntime{
		clock: clock.Real(), pod: pod, changed: func() {}, failures: map[string]int{}, calls: map[string]int{},
		code: 143, started: map[string]int{}, slow: map[string]time.Duration{},
	}
}

// manyCalls is a number of calls that no correct test reaches.
const manyCalls = 10000

var errFake = errors.New("the runtime refuses")

// enter counts a call with this name and returns errFake if the call must fail. The caller holds
// the lock.
func (f *fakeRuntime) enter(call string) error {
	f.calls[call]++
	if f.calls[call] > manyCalls {
		// The worker calls the runtime in a loop without pausing, so virtual time would never
		// advance.
		panic(fmt.Sprintf("%s is called again and again", call))
	}
	if f.failures[call] > 0 {
		f.failures[call]--
		return errFake
	}
	return nil
}

// called returns the number of calls with this name.
func (f *fakeRuntime) called(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

func (f *fakeRuntime) complainf(format string, args ...any) {
	f.wrong = append(f.wrong, fmt.Sprintf(format, args...))
}

// now returns the current time. It never returns the same time twice, so that containers can be
// sorted by time of creation.
func (f *fakeRuntime) now() time.Time {
	f.seq++
	return f.clock.Now().Add(f.skew + time.Duration(f.seq))
}

func (f *fakeRuntime) Pod(_ context.Context, uid types.UID) (*cri.Pod, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.enter("Pod"); err != nil {
		return nil, err
	}
	p := &cri.Pod{UID: uid, Namespace: f.pod.Namespace, Name: f.pod.Name, Sandboxes: slices.Clone(f.boxes),
		Containers: slices.Clone(f.runs)}
	slices.Reverse(p.Sandboxes)
	slices.Reverse(p.Containers)
	return p, nil
}

func (f *fakeRuntime) RunSandbox(_ context.Context, cfg *runtimeapi.PodSandboxConfig, _ string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.enter("RunSandbox"); err != nil {
		return "", err
	}
	if slices.ContainsFunc(f.boxes, func(b cri.Sandbox) bool { return b.Ready }) {
		f.complainf("a second sandbox beside one that is up")
	}
	at := f.now()
	id := fmt.Sprint("box", f.seq)
	f.boxes = append(f.boxes, cri.Sandbox{ID: id, Attempt: cfg.GetMetadata().GetAttempt(), Ready: true,
		CreatedAt: at, IPs: []string{"192.0.2.7"}})
	return id, nil
}

func (f *fakeRuntime) StopSandbox(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.enter("StopSandbox"); err != nil {
		return err
	}
	for i := range f.runs {
		if f.runs[i].SandboxID == id {
			f.exit(&f.runs[i], 137)
		}
	}
	for i := range f.boxes {
		if f.boxes[i].ID == id {
			f.boxes[i].Ready = false
		}
	}
	f.changed()
	return nil
}

func (f *fakeRuntime) RemoveSandbox(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.enter("RemoveSandbox"); err != nil {
		return err
	}
	if slices.ContainsFunc(f.boxes, func(b cri.Sandbox) bool { return b.ID == id && b.Ready }) {
		f.complainf("a sandbox is removed that is up")
	}
	f.boxes = slices.DeleteFunc(f.boxes, func(b cri.Sandbox) bool { return b.ID == id })
	f.runs = slices.DeleteFunc(f.runs, func(c cri.Container) bool { return c.SandboxID == id })
	return nil
}

func (f *fakeRuntime) CreateContainer(_ context.Context, box string, cfg *runtimeapi.ContainerConfig,
	_ *runtimeapi.PodSandboxConfig) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.enter("CreateContainer"); err != nil {
		return "", err
	}
	if !slices.ContainsFunc(f.boxes, func(b cri.Sandbox) bool { return b.ID == box && b.Ready }) {
		return "", errors.New("the sandbox is down")
	}
	at := f.now()
	name := cfg.GetMetadata().GetName()
	c := cri.Container{ID: fmt.Sprint(name, "-", f.seq), Name: name, SandboxID: box,
		Restarts: int(cfg.GetMetadata().GetAttempt()), CreatedAt: at}
	c.Epoch = cri.Epoch(cfg.GetAnnotations())
	c.Hash, c.Resources = cri.Hash(specOf(f.pod, name)), cfg.GetLinux().GetResources()
	f.runs = append(f.runs, c)
	return c.ID, nil
}

func (f *fakeRuntime) StartContainer(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.find(id)
	if c == nil {
		return errors.New("no such container")
	}
	f.checkStart(c)
	if err := f.enter("StartContainer"); err != nil {
		f.exit(c, 128) // the exit code that containerd reports in this case
		return err
	}
	f.started[c.Name]++
	c.State, c.StartedAt = cri.Running, f.now()
	f.changed()
	return nil
}

// checkStart records an error if a container starts in the wrong order, while an earlier run of it
// is still running, or although the restart policy forbids it.
func (f *fakeRuntime) checkStart(c *cri.Container) {
	for _, other := range f.runs {
		if other.ID != c.ID && other.Name == c.Name && other.State == cri.Running {
			f.complainf("%s is started while a run of it is alive", c.Name)
		}
	}
	spec := specOf(f.pod, c.Name)
	index := initIndex(f.pod, c.Name)
	if last := f.lastRun(c); last != nil && (index < 0 || cri.Sidecar(spec)) {
		switch {
		case cri.Sidecar(spec):
		case f.pod.Spec.RestartPolicy == v1.RestartPolicyNever:
			f.complainf("%s is started again, and restartPolicy is Never", c.Name)
		case f.pod.Spec.RestartPolicy == v1.RestartPolicyOnFailure && last.ExitCode == 0 && len(spec.ResizePolicy) == 0:
			f.complainf("%s is started again after it succeeded", c.Name)
		}
	}
	if f.mainStarted(c) && index >= 0 && !cri.Sidecar(spec) {
		f.complainf("init container %s is started after a container", c.Name)
	}
	before := f.pod.Spec.InitContainers
	if index >= 0 {
		before = before[:index]
	} else if f.mainStarted(c) {
		return // the pod was initialized before; a sidecar may have exited since then
	}
	for i := range before {
		if !f.done(&before[i], c) {
			f.complainf("%s is started before %s is done", c.Name, before[i].Name)
		}
	}
}

func (f *fakeRuntime) lastRun(c *cri.Container) *cri.Container {
	for i := len(f.runs) - 1; i >= 0; i-- {
		if o := &f.runs[i]; o.ID != c.ID && o.Name == c.Name && o.State == cri.Exited && o.Epoch >= c.Epoch {
			return o
		}
	}
	return nil
}

// mainStarted reports whether a main container was started in the sandbox of c and in the epoch of
// c or a later one.
func (f *fakeRuntime) mainStarted(c *cri.Container) bool {
	return slices.ContainsFunc(f.runs, func(o cri.Container) bool {
		return o.SandboxID == c.SandboxID && o.State != cri.Created && initIndex(f.pod, o.Name) < 0 && o.Epoch >= c.Epoch
	})
}

// done reports whether the init container spec has succeeded in the sandbox of c and in the epoch
// of c or a later one. A sidecar counts as done once it has started, even if it has exited since
// then.
func (f *fakeRuntime) done(spec *v1.Container, c *cri.Container) bool {
	return slices.ContainsFunc(f.runs, func(o cri.Container) bool {
		return o.Name == spec.Name && o.SandboxID == c.SandboxID && o.Epoch >= c.Epoch &&
			(o.State == cri.Exited && o.ExitCode == 0 || cri.Sidecar(spec) && !o.StartedAt.IsZero())
	})
}

func (f *fakeRuntime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	f.mu.Lock()
	err := f.enter("StopContainer")
	c := f.find(id)
	if err != nil || c == nil || c.State != cri.Running {
		f.mu.Unlock()
		return err
	}
	wait := min(grace, f.slow[c.Name])
	f.note("term "+c.Name, grace)
	f.mu.Unlock()
	t := f.clock.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C():
	}
	f.mu.Lock()
	code := f.code
	f.mu.Unlock()
	f.die(id, code)
	return nil
}

// note adds a request to end a container, with its time and grace period, to the timeline. The
// caller holds the lock.
func (f *fakeRuntime) note(what string, grace time.Duration) {
	f.asked = append(f.asked, fmt.Sprintf("%v %s %v", f.clock.Since(f.mark).Round(time.Second), what,
		grace.Round(time.Second)))
}

// timeline returns the requests to end containers, sorted by their time since mark.
func (f *fakeRuntime) timeline() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.SortStableFunc(f.asked, func(a, b string) int {
		x, _ := time.ParseDuration(strings.Fields(a)[0])
		y, _ := time.ParseDuration(strings.Fields(b)[0])
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(a, b))
	})
	return strings.Join(f.asked, ", ")
}

func (f *fakeRuntime) RemoveContainer(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.enter("RemoveContainer"); err != nil {
		return err
	}
	if c := f.find(id); c != nil && c.State == cri.Running {
		f.complainf("%s is removed while it runs", c.Name)
	}
	f.runs = slices.DeleteFunc(f.runs, func(c cri.Container) bool { return c.ID == id })
	return nil
}

func (f *fakeRuntime) UpdateResources(_ context.Context, id string, r *runtimeapi.LinuxContainerResources) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.enter("UpdateResources"); err != nil {
		return err
	}
	if c := f.find(id); c == nil || c.State != cri.Running {
		return errors.New("the container does not run")
	} else {
		c.Resources = r
	}
	f.order = append(f.order, id)
	return nil
}

func (f *fakeRuntime) MemoryUsage(context.Context, string) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used, nil
}

func (f *fakeRuntime) find(id string) *cri.Container {
	for i := range f.runs {
		if f.runs[i].ID == id {
			return &f.runs[i]
		}
	}
	return nil
}

// exit marks a run as exited with the given code. The caller holds the lock.
func (f *fakeRuntime) exit(c *cri.Container, code int32) {
	if c.State != cri.Exited {
		c.State, c.ExitCode, c.FinishedAt = cri.Exited, code, f.now()
	}
}

// die makes the running container with this ID exit with the given code.
func (f *fakeRuntime) die(id string, code int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.find(id); c != nil && c.State == cri.Running {
		f.exit(c, code)
		f.changed()
	}
}

// running returns the ID of the container with this name if it runs, and otherwise "".
func (f *fakeRuntime) running(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.runs {
		if c.Name == name && c.State == cri.Running {
			return c.ID
		}
	}
	return ""
}

// alive reports whether any container of the pod runs.
func (f *fakeRuntime) alive() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.runs, func(c cri.Container) bool { return c.State == cri.Running })
}

// fakeParts stands for the other parts of the kubelet that a worker uses. It records an error if
// something is removed while a container that uses it still runs.
type fakeParts struct{ *fakeRuntime }

func (p fakeParts) Update(_ *v1.Pod, runs bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if runs {
		p.calls["Update of volumes in use"]++
	}
}

func (p fakeParts) Prepare(context.Context, *v1.Pod) (volume.Mounts, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return volume.Mounts{}, errors.Join(p.enter("Prepare"), p.full)
}

func (p fakeParts) Teardown(context.Context, types.UID) error { return p.giveBack("Teardown") }

func (p fakeParts) giveBack(call string) error {
	alive := p.alive()
	p.mu.Lock()
	defer p.mu.Unlock()
	if alive {
		p.complainf("%s while a container runs", call)
	}
	return p.enter(call)
}

func (fakeParts) Parent(*v1.Pod) string { return "/pods" }

func (fakeParts) Ensure(*v1.Pod) error { return nil }

func (fakeParts) Widen(*v1.Pod, *v1.Pod) error { return nil }

func (p fakeParts) Remove(context.Context, types.UID) error { return p.giveBack("Remove") }

// fakeDevices manages no devices.
type fakeDevices struct{}

func (fakeDevices) Prepare(context.Context, *v1.Pod) error { return nil }

func (fakeDevices) Container(context.Context, *v1.Pod, *v1.Container) ([]*deviceapi.ContainerAllocateResponse, error) {
	return nil, nil
}

func (fakeDevices) Health(*v1.Pod, *v1.Container) []v1.ResourceStatus { return nil }

func (fakeParts) RegisterPod(*v1.Pod) {}

func (fakeParts) UnregisterPod(*v1.Pod) {}

func (fakeParts) ConfigMap(context.Context, string, string) (*v1.ConfigMap, error) {
	return nil, errFake
}

func (fakeParts) Secret(context.Context, string, string) (*v1.Secret, error) { return nil, errFake }

// fakeImages returns every image immediately, unless the test makes a pull slow.
type fakeImages struct{ *fakeRuntime }

func (i fakeImages) Ensure(ctx context.Context, _ *v1.Pod, c *v1.Container, _ *runtimeapi.PodSandboxConfig,
	_ string) (*runtimeapi.Image, error) {
	t := i.clock.NewTimer(i.slow["pull "+c.Name])
	defer t.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-t.C():
	}
	return &runtimeapi.Image{Id: c.Image}, nil
}

func (fakeImages) Forget(types.UID) {}

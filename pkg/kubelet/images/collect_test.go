// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

// store is a runtime with a list of images in memory.
type store struct {
	runtimeapi.ImageServiceClient
	images []*runtimeapi.Image
}

func (s *store) ListImages(context.Context, *runtimeapi.ListImagesRequest,
	...grpc.CallOption) (*runtimeapi.ListImagesResponse, error) {
	return &runtimeapi.ListImagesResponse{Images: s.images}, nil
}

func (s *store) RemoveImage(_ context.Context, r *runtimeapi.RemoveImageRequest,
	_ ...grpc.CallOption) (*runtimeapi.RemoveImageResponse, error) {
	s.images = slices.DeleteFunc(s.images, func(i *runtimeapi.Image) bool { return i.Id == r.GetImage().GetImage() })
	return &runtimeapi.RemoveImageResponse{}, nil
}

func (s *store) ids() []string {
	var out []string
	for _, i := range s.images {
		out = append(out, i.Id)
	}
	return out
}

func TestCollect(t *testing.T) {
	gib := uint64(1 << 30)
	s := &store{images: []*runtimeapi.Image{
		{Id: "pinned", Size: 9 * gib, Pinned: true}, {Id: "running", Size: gib, RepoTags: []string{"app:1"}},
		{Id: "old", Size: gib}, {Id: "older", Size: gib},
	}}
	inUse := map[string]bool{"app:1": true, "old": true}
	available := 50 * gib
	var events []string
	c := testclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	k := NewCollector(CollectorConfig{
		Images: s, Clock: c, Log: slog.New(slog.DiscardHandler), High: 85, Low: 80, MinAge: 2 * time.Minute,
		Disk:  func(context.Context) (uint64, uint64, error) { return 100 * gib, available, nil },
		InUse: func(context.Context) (map[string]bool, error) { return inUse, nil },
		Event: func(reason, _ string) { events = append(events, reason) },
	})
	step := func(name string, want ...string) {
		t.Helper()
		err := k.Collect(t.Context())
		if got := s.ids(); !slices.Equal(got, want) {
			t.Fatalf("%s: images %v, want %v (%v)", name, got, want, err)
		}
	}
	step("there is room", "pinned", "running", "old", "older")
	available = 10 * gib
	step("too young", "pinned", "running", "old", "older")
	if !slices.Equal(events, []string{"FreeDiskSpaceFailed"}) {
		t.Errorf("events %v", events)
	}
	c.Step(time.Hour)
	delete(inUse, "old")
	available = 15 * gib // 85 % of the disk is used: 5 GiB must be freed, but only 2 GiB can be freed
	step("full", "pinned", "running")

	s.images = append(s.images, &runtimeapi.Image{Id: "new", Size: 10 * gib}, &runtimeapi.Image{Id: "newer", Size: gib})
	inUse["newer"] = true
	step("new ones come", "pinned", "running", "new", "newer")
	delete(inUse, "newer")
	c.Step(time.Hour)
	available = 14 * gib
	step("as much as needed, unused for longest first", "pinned", "running", "newer")
	if err := k.RemoveUnused(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.ids(); !slices.Equal(got, []string{"pinned", "running"}) {
		t.Errorf("images %v", got)
	}
}

// TestCollectTelemetry checks the span of each disk check, and the metric that counts removed
// images by reason.
func TestCollectTelemetry(t *testing.T) {
	recorder, metrics := tracetest.NewSpanRecorder(), prometheus.NewPedanticRegistry()
	s := &store{images: []*runtimeapi.Image{{Id: "running", Size: 50}, {Id: "unused", Size: 30}, {Id: "late", Size: 1}}}
	available := uint64(100)
	c := testclock.NewFakeClock(time.Unix(0, 0))
	k := NewCollector(CollectorConfig{
		Images: s, Clock: c, Log: slog.New(slog.DiscardHandler), High: 50, Low: 0, MaxAge: time.Hour,
		Disk:  func(context.Context) (uint64, uint64, error) { return 100, available, nil },
		InUse: func(context.Context) (map[string]bool, error) { return map[string]bool{"running": true}, nil },
		Event: func(string, string) {}, Metrics: metrics,
		Tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test"),
	})
	for range 2 {
		if err := k.Collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Step(2 * time.Hour)
	}
	s.images = append(s.images, &runtimeapi.Image{Id: "new", Size: 10})
	available = 10
	if err := k.Collect(t.Context()); err == nil {
		t.Error("no error although too little was freed")
	}
	var failed []bool
	for _, span := range recorder.Ended() {
		if span.Name() != "Images/GarbageCollect" {
			t.Errorf("span %q", span.Name())
		}
		failed = append(failed, span.Status().Code == codes.Error)
	}
	if want := []bool{false, false, true}; !slices.Equal(failed, want) {
		t.Errorf("spans that failed %v, want %v", failed, want)
	}
	want := `
# HELP kubelet_image_garbage_collected_total [ALPHA] Total number of images garbage collected by the kubelet, whether through disk usage or image age.
# TYPE kubelet_image_garbage_collected_total counter
kubelet_image_garbage_collected_total{reason="age"} 2
kubelet_image_garbage_collected_total{reason="space"} 1
`
	if err := testutil.GatherAndCompare(metrics, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// ticking is a clock that returns a later time on each call.
type ticking struct{ *testclock.FakeClock }

func (c ticking) Now() time.Time {
	c.Step(time.Nanosecond)
	return c.FakeClock.Now()
}

// TestImagesInUseAreKept checks that an image in use is not removed, even if the clock advances
// between listing the images and choosing those to remove.
func TestImagesInUseAreKept(t *testing.T) {
	s := &store{images: []*runtimeapi.Image{{Id: "running", Size: 1}, {Id: "unused", Size: 1}}}
	k := NewCollector(CollectorConfig{
		Images: s, Clock: ticking{testclock.NewFakeClock(time.Unix(0, 0))}, Log: slog.New(slog.DiscardHandler),
		High: 50, Low: 0,
		Disk:  func(context.Context) (uint64, uint64, error) { return 100, 10, nil },
		InUse: func(context.Context) (map[string]bool, error) { return map[string]bool{"running": true}, nil },
		Event: func(string, string) {},
	})
	for name, collect := range map[string]func(context.Context) error{"collect": k.Collect, "full": k.RemoveUnused} {
		_ = collect(t.Context()) // an error is expected because the unused image is too small to free enough space
		if got := s.ids(); !slices.Equal(got, []string{"running"}) {
			t.Errorf("%s: images %v", name, got)
		}
	}
}

func TestExpired(t *testing.T) {
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(h int) time.Time { return begun.Add(time.Duration(h) * time.Hour) }
	records := []record{
		{id: "never used", detected: begun}, {id: "used lately", detected: begun, used: at(9)},
		{id: "used once", detected: begun, used: at(1)},
		{id: "new", detected: at(9)}, {id: "pinned", detected: begun, pinned: true},
		{id: "in use", detected: begun, used: at(10)},
	}
	ids := func(now time.Time) []string {
		var out []string
		for _, r := range expired(records, now, begun, 5*time.Hour) {
			out = append(out, r.id)
		}
		return out
	}
	if got := ids(at(10)); !slices.Equal(got, []string{"never used", "used once"}) {
		t.Errorf("expired %v", got)
	}
	if got := ids(at(5)); got != nil {
		t.Errorf("expired before the process has seen so much time: %v", got)
	}
}

// TestChooseIsMinimal checks that the chosen images are unused and not pinned, and that without the
// last of them, too few bytes would be freed.
func TestChooseIsMinimal(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		var records []record
		var all uint64
		for i := range rapid.IntRange(0, 12).Draw(t, "images") {
			r := record{
				id: string(rune('a' + i)), size: uint64(rapid.IntRange(1, 50).Draw(t, "size")),
				pinned:   rapid.Bool().Draw(t, "pinned"),
				detected: now.Add(-time.Duration(rapid.IntRange(0, 9).Draw(t, "age")) * time.Minute),
			}
			if rapid.Bool().Draw(t, "used") {
				r.used = r.detected.Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "later")) * time.Minute)
				if r.used.After(now) {
					r.used = now
				}
			}
			records = append(records, r)
			if !r.pinned && r.used.Before(now) && now.Sub(r.detected) >= 2*time.Minute {
				all += r.size
			}
		}
		need := uint64(rapid.IntRange(0, 200).Draw(t, "need"))
		var sum uint64
		chosen := choose(records, now, 2*time.Minute, need)
		for i, r := range chosen {
			if r.pinned || !r.used.Before(now) || now.Sub(r.detected) < 2*time.Minute {
				t.Fatalf("%+v must stay", r)
			}
			if i > 0 && chosen[i-1].used.After(r.used) {
				t.Fatalf("%+v before %+v", chosen[i-1], r)
			}
			if sum >= need {
				t.Fatalf("%+v more than needed", r)
			}
			sum += r.size
		}
		if sum < min(need, all) {
			t.Fatalf("freed %d of %d, there were %d", sum, need, all)
		}
	})
}

func TestSize(t *testing.T) {
	for bytes, want := range map[uint64]string{1023: "1023 B", 1024: "1.0 KiB", 3 << 19: "1.5 MiB",
		252 << 30: "252.0 GiB", 5 << 40: "5.0 TiB", 1 << 55: "32768.0 TiB"} {
		if got := size(bytes); got != want {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
	}
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/metrics/metricstest"
)

// registry is a runtime whose pulls take 1 s or fail.
type registry struct {
	mu     sync.Mutex
	fails  error
	here   map[string]bool
	now    int // number of pulls in progress
	most   int
	pulled []string
}

func (r *registry) ImageStatus(_ context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.here[spec.Image] {
		return &runtimeapi.Image{Id: spec.Image, Size: 7}, nil
	}
	return nil, nil
}

func (r *registry) PullImage(_ context.Context, req *runtimeapi.PullImageRequest) (string, error) {
	r.mu.Lock()
	r.now++
	r.most = max(r.most, r.now)
	fails := r.fails
	r.mu.Unlock()
	<-clock.Real().NewTimer(time.Second).C()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now--
	if fails != nil {
		return "", fails
	}
	r.here[req.Image.Image] = true
	r.pulled = append(r.pulled, req.Image.Image)
	return req.Image.Image, nil
}

// Secret implements Config.Secrets. There are no secrets.
func (r *registry) Secret(context.Context, string, string) (*v1.Secret, error) {
	return nil, errors.New("none")
}

type recordedEvents struct {
	mu   sync.Mutex
	list []string
}

func (e *recordedEvents) event(_ *v1.Pod, _, _, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, reason+": "+message)
}

func pod(uid string) *v1.Pod { return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}} }

func (p *Puller) get(ctx context.Context, uid, image string) (*runtimeapi.Image, error) {
	return p.Ensure(ctx, pod(uid), &v1.Container{Name: "c", Image: image, ImagePullPolicy: v1.PullIfNotPresent}, nil, "")
}

func TestParallelPulls(t *testing.T) {
	for _, tc := range []struct{ parallel, want int }{{1, 1}, {2, 2}, {0, 4}} {
		t.Run(fmt.Sprint(tc.parallel), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, e := &registry{here: map[string]bool{}}, &recordedEvents{}
				p := New(Config{Runtime: r, Secrets: r, Clock: clock.Real(), Event: e.event, Parallel: tc.parallel})
				var wg sync.WaitGroup
				for i := range 4 {
					wg.Go(func() {
						if image, err := p.get(t.Context(), "u", fmt.Sprint("img:", i)); err != nil || image == nil {
							t.Errorf("%v, %v", image, err)
						}
					})
				}
				wg.Wait()
				if r.most != tc.want || len(r.pulled) != 4 || len(p.pulls) != 0 {
					t.Errorf("%d pulls at a time, want %d; pulled %q; %d are kept", r.most, tc.want, r.pulled, len(p.pulls))
				}
				if want := "Pulled: Successfully pulled image \"img:0\" in 1s "; !slices.ContainsFunc(e.list,
					func(s string) bool { return strings.HasPrefix(s, want) }) {
					t.Errorf("events %q", e.list)
				}
			})
		})
	}
}

// TestPullsAreTimed checks that the pull metric includes the time of waiting for other pulls, and
// that it counts only successful pulls.
func TestPullsAreTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e, m := &registry{here: map[string]bool{}}, &recordedEvents{}, prometheus.NewRegistry()
		p := New(Config{Runtime: r, Secrets: r, Clock: clock.Real(), Event: e.event, Parallel: 1,
			Metrics: metrics.NewNode(m)})
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() { _, _ = p.get(t.Context(), "u", fmt.Sprint("img:", i)) })
		}
		wg.Wait()
		r.fails = errors.New("no")
		_, _ = p.get(t.Context(), "u", "img:2")
		_, _ = p.get(t.Context(), "u", "img:0")
		const ensured = `kubelet_image_manager_ensure_image_requests_total{present_locally="`
		metricstest.Expect(t, metricstest.Scrape(t, m), map[string]float64{
			`kubelet_image_pull_duration_seconds_count{image_size_in_bytes="0-10MB"}`: 2,
			`kubelet_image_pull_duration_seconds_sum{image_size_in_bytes="0-10MB"}`:   3,
			ensured + `false",pull_policy="ifnotpresent",pull_required="true"}`:       3,
			ensured + `true",pull_policy="ifnotpresent",pull_required="false"}`:       1,
		})
	})
}

// TestPullsOfPods checks that the time of a pod's pull begins with the first attempt, and that it
// ends when the pod gets the image, even if another pod has pulled it.
func TestPullsOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e, took := &registry{here: map[string]bool{}}, &recordedEvents{}, map[types.UID]time.Duration{}
		p := New(Config{Runtime: r, Secrets: r, Clock: clock.Real(), Event: e.event,
			Pulled: func(pod types.UID, d time.Duration) { took[pod] += d }})
		r.fails = errors.New("no")
		_, _ = p.get(t.Context(), "a", "img")
		_, _ = p.get(t.Context(), "b", "img")
		if len(took) > 0 {
			t.Errorf("failed pulls were reported: %v", took)
		}
		r.fails = nil
		<-clock.Real().NewTimer(time.Minute).C()
		for _, uid := range []string{"a", "b", "c", "a"} {
			if _, err := p.get(t.Context(), uid, "img"); err != nil {
				t.Fatal(err)
			}
		}
		want := map[types.UID]time.Duration{"a": 63 * time.Second, "b": 62 * time.Second}
		if !maps.Equal(took, want) {
			t.Errorf("got %v, want %v", took, want)
		}
	})
}

// TestEnsuredImages checks the labels of the metric of requests for images: for each pull policy, with an image
// that is missing, that is present but needs credentials which the pod lacks, and that the pod may use.
func TestEnsuredImages(t *testing.T) {
	for _, c := range []struct {
		policy            v1.PullPolicy
		present, usable   bool
		wantPresent, pull string
	}{
		{v1.PullAlways, false, false, "unknown", "true"},
		{v1.PullAlways, true, false, "unknown", "true"},
		{v1.PullAlways, true, true, "unknown", "true"},
		{v1.PullIfNotPresent, false, false, "false", "true"},
		{v1.PullIfNotPresent, true, false, "true", "true"},
		{v1.PullIfNotPresent, true, true, "true", "false"},
		{v1.PullNever, false, false, "false", "unknown"},
		{v1.PullNever, true, false, "true", "true"},
		{v1.PullNever, true, true, "true", "false"},
	} {
		t.Run(fmt.Sprintf("%s,present=%t,usable=%t", c.policy, c.present, c.usable), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, e, m := &registry{here: map[string]bool{"img:1": c.present}}, &recordedEvents{}, prometheus.NewRegistry()
				cfg := Config{Runtime: r, Secrets: r, Clock: clock.Real(), Event: e.event, Metrics: metrics.NewNode(m)}
				if !c.usable {
					var err error
					cfg.Records, err = NewRecords(t.TempDir(), &kubeletconfig.KubeletConfiguration{
						ImagePullCredentialsVerificationPolicy: kubeletconfig.AlwaysVerify,
					}, clock.Real(), slog.New(slog.DiscardHandler))
					if err != nil {
						t.Fatal(err)
					}
				}
				_, err := New(cfg).Ensure(t.Context(), pod("u"),
					&v1.Container{Name: "c", Image: "img:1", ImagePullPolicy: c.policy}, nil, "")
				if fails := c.policy == v1.PullNever && !c.usable; fails != (err != nil) {
					t.Errorf("error %v", err)
				}
				metricstest.Expect(t, metricstest.Scrape(t, m), map[string]float64{fmt.Sprintf(
					`kubelet_image_manager_ensure_image_requests_total{present_locally=%q,pull_policy=%q,pull_required=%q}`,
					c.wantPresent, strings.ToLower(string(c.policy)), c.pull): 1})
			})
		})
	}
}

// TestWaitingPullEndsWithContext checks that a caller that waits for another pull returns when its
// context ends.
func TestWaitingPullEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e := &registry{here: map[string]bool{}}, &recordedEvents{}
		p := New(Config{Runtime: r, Secrets: r, Clock: clock.Real(), Event: e.event, Parallel: 1})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = p.get(t.Context(), "u", "img:0") })
		synctest.Wait()
		wg.Go(func() {
			if _, err := p.get(ctx, "v", "img:1"); err == nil {
				t.Error("pulled without a waiting caller")
			}
		})
		synctest.Wait()
		cancel()
		wg.Wait()
		if len(p.pulls) != 0 || len(p.slots) != 0 {
			t.Errorf("%d pulls and %d tokens are kept", len(p.pulls), len(p.slots))
		}
	})
}

func TestMessagesOfFailedPulls(t *testing.T) {
	for name, tc := range map[string]struct {
		err             error
		reason, message string
	}{
		"missing image": {
			status.Error(codes.NotFound, "failed to resolve image"),
			"ErrImagePull", "rpc error: code = NotFound desc = failed to resolve image",
		},
		"registry": {
			status.Error(codes.Unknown, "RegistryUnavailable: no route"),
			"RegistryUnavailable", "image pull failed for img:1 because the registry is unavailable: no route",
		},
		"signature": {
			status.Error(codes.Unknown, "SignatureValidationFailed: bad"),
			"SignatureValidationFailed", "image pull failed for img:1 because the signature validation failed: bad",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, e := &registry{fails: tc.err}, &recordedEvents{}
				p := New(Config{Runtime: r, Secrets: r, Clock: clock.Real(), Event: e.event})
				try := func(reason, message string) *Error {
					t.Helper()
					_, err := p.get(t.Context(), "u", "img:1")
					var got *Error
					if !errors.As(err, &got) || got.Reason != reason || got.Message != message {
						t.Fatalf("got %v, want %s: %s", err, reason, message)
					}
					return got
				}
				failed := try(tc.reason, tc.message)
				if in := clock.Real().Now().Add(10 * time.Second); !failed.Retry.Equal(in) {
					t.Errorf("retry at %v, want %v", failed.Retry, in)
				}
				try("ImagePullBackOff", fmt.Sprintf(`Back-off pulling image "img:1": %s: %s`, tc.reason, tc.message))
				want := []string{
					`Pulling: Pulling image "img:1"`, fmt.Sprintf(`Failed: Failed to pull image "img:1": %v`, tc.err),
					"Failed: Error: " + tc.reason, `BackOff: Back-off pulling image "img:1"`,
				}
				if !slices.Equal(e.list, want) {
					t.Errorf("events %q, want %q", e.list, want)
				}
			})
		})
	}
}

func TestPullRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e := &registry{here: map[string]bool{}}, &recordedEvents{}
		p := New(Config{Runtime: r, Secrets: r, Clock: clock.Real(), Event: e.event, Allow: func() bool { return false }})
		if _, err := p.get(t.Context(), "u", "img:1"); err == nil ||
			err.Error() != "ErrImagePull: pull QPS exceeded" || len(r.pulled) != 0 {
			t.Errorf("%v, pulled %q", err, r.pulled)
		}
	})
}

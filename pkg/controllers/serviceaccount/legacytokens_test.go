// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"log/slog"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

const year = 365 * day

func date(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.DateOnly, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestLegacyPlan checks when a legacy token is marked, and when it is deleted.
func TestLegacyPlan(t *testing.T) {
	now := date(t, "2026-06-15")
	for name, tc := range map[string]struct {
		created string
		labels  map[string]string
		want    action
	}{
		"never used":               {"2020-01-01", nil, mark},
		"new":                      {"2026-01-01", nil, keep},
		"used lately":              {"2020-01-01", map[string]string{lastUsed: "2026-01-01"}, keep},
		"used a year and less ago": {"2020-01-01", map[string]string{lastUsed: "2025-06-15"}, keep},
		"used long ago":            {"2020-01-01", map[string]string{lastUsed: "2025-06-14"}, mark},
		"invalid date of use":      {"2020-01-01", map[string]string{lastUsed: "x"}, mark},
		"marked lately":            {"2020-01-01", map[string]string{invalidSince: "2026-06-01"}, keep},
		"marked a year ago":        {"2020-01-01", map[string]string{invalidSince: "2025-06-14"}, remove},
		"marked and used since": {"2020-01-01",
			map[string]string{invalidSince: "2025-01-01", lastUsed: "2026-06-01"}, keep},
		"invalid date of mark": {"2020-01-01", map[string]string{invalidSince: "x"}, mark},
	} {
		t.Run(name, func(t *testing.T) {
			s := &v1.Secret{ObjectMeta: metav1.ObjectMeta{
				CreationTimestamp: metav1.NewTime(date(t, tc.created)), Labels: tc.labels}}
			if got := plan(s, date(t, "2024-01-01"), now, year); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// later is a clock that is ahead of the real time by a fixed duration.
type later struct {
	clock.Clock
	by time.Duration
}

func (l later) Now() time.Time { return l.Clock.Now().Add(l.by) }

// TestLegacyTokens checks that over several years only the token that was generated and is unused is
// marked and then deleted.
func TestLegacyTokens(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	ctx, api := t.Context(), s.Client.CoreV1()
	account, err := api.ServiceAccounts("default").Create(ctx, &v1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "default"}, Secrets: []v1.ObjectReference{{Name: "unasked"}, {Name: "mounted"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"unasked", "mounted", "asked-for"} {
		if _, err := api.Secrets("default").Create(ctx,
			&v1.Secret{Type: v1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{
				Name: name, Annotations: map[string]string{v1.ServiceAccountNameKey: account.Name,
					v1.ServiceAccountUIDKey: string(account.UID)},
			}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := api.Pods("default").Create(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1.PodSpec{
		Containers: []v1.Container{{Name: "c", Image: "i"}},
		Volumes: []v1.Volume{
			{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "mounted"}}}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	own, err := kubernetes.NewForConfig(
		s.UserConfig(t, "system:serviceaccount:kube-system:legacy-service-account-token-cleaner"))
	if err != nil {
		t.Fatal(err)
	}
	// after runs one sweep of a new controller whose clock is ahead by the given number of years
	// and ten days.
	after := func(years int) error {
		t.Helper()
		d := controller.Deps{
			Client: own, Informers: controller.NewInformers(s.Client, 0),
			Clock: later{clock.Real(), time.Duration(years)*year + 10*day}, Log: slog.New(slog.DiscardHandler),
			Options: controller.Options{Periods: controller.DefaultPeriods()},
		}
		made, err := NewLegacyTokens(d)
		if err != nil {
			t.Fatal(err)
		}
		informers, stop := context.WithCancel(ctx)
		d.Informers.Start(informers.Done())
		d.Informers.WaitForCacheSync(informers.Done())
		defer func() {
			stop()
			d.Informers.Shutdown()
		}()
		return made.(*legacyTokens).clean(ctx)
	}
	marked := func(name string) bool {
		t.Helper()
		s, err := api.Secrets("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(name, err)
		}
		return s.Labels[invalidSince] != ""
	}
	controllertest.Eventually(t, "uses are noted, and the controller has its rights", func(context.Context) (any, bool) {
		err := after(0)
		return err, err == nil
	})
	if marked("unasked") {
		t.Error("marked before uses are recorded")
	}
	if err := after(1); err != nil || !marked("unasked") {
		t.Errorf("not marked after a year: %v", err)
	}
	if err := after(2); err != nil || !marked("unasked") {
		t.Errorf("a year and less after it was marked: %v", err)
	}
	if err := after(3); err != nil {
		t.Error(err)
	}
	if _, err := api.Secrets("default").Get(ctx, "unasked", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("not deleted: %v", err)
	}
	if marked("mounted") || marked("asked-for") {
		t.Error("a token that is used or was requested is marked")
	}
}

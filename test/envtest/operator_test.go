// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// assets is the directory with the programs for envtest if KUBEBUILDER_ASSETS is not set. "make
// envtest" builds them there.
const assets = "../../.build/envtest"

// TestStart logs how long an empty control plane takes to start, and how much memory it uses.
func TestStart(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	env := &envtest.Environment{BinaryAssetsDirectory: assets}
	began := time.Now()
	if _, err := env.Start(); err != nil {
		t.Fatalf("start (have you run make envtest?): %v", err)
	}
	t.Logf("the control plane started in %v", time.Since(began).Round(time.Millisecond))
	logMemory(t)
	if err := env.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// TestOperator runs an operator with a control plane of envtest. Its subtests share the control
// plane, as is usual in tests of operators.
func TestOperator(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	addGreetings(scheme)
	env := &envtest.Environment{
		Scheme: scheme, BinaryAssetsDirectory: assets,
		CRDDirectoryPaths: []string{"testdata/crd.yaml"}, ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: envtest.WebhookInstallOptions{Paths: []string{"testdata/webhooks.yaml"}},
	}
	began := time.Now()
	cfg, err := env.Start()
	if err != nil {
		t.Fatalf("start (have you run make envtest?): %v", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	t.Logf("the control plane, with CRD and webhooks, started in %v", time.Since(began).Round(time.Millisecond))
	runOperator(t, env, scheme)
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("greetings", func(t *testing.T) { greetings(t, c) })
	t.Run("rejected", func(t *testing.T) { rejected(t, c) })
	t.Run("users", func(t *testing.T) { users(t, env, scheme) })
	logMemory(t)
}

// runOperator runs the operator until the test ends.
func runOperator(t *testing.T, env *envtest.Environment, scheme *runtime.Scheme) {
	t.Helper()
	hook := env.WebhookInstallOptions
	mgr, err := ctrl.NewManager(env.Config, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: hook.LocalServingHost, Port: hook.LocalServingPort, CertDir: hook.LocalServingCertDir,
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := ctrl.NewControllerManagedBy(mgr).For(&Greeting{}).Owns(&corev1.ConfigMap{}).Complete(
		&reconciler{mgr.GetClient(), scheme}); err != nil {
		t.Fatal(err)
	}
	if err := ctrl.NewWebhookManagedBy(mgr, &Greeting{}).WithDefaulter(hooks{}).WithValidator(
		hooks{}).Complete(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("operator: %v", err)
		}
	})
	eventually(t, "the webhooks are served", func() bool { return mgr.GetWebhookServer().StartedChecker()(nil) == nil })
}

// greetings checks that a Greeting gets its default text, and that the ConfigMap is created and
// follows changes of the Greeting.
func greetings(t *testing.T, c client.Client) {
	ctx, key := t.Context(), client.ObjectKey{Namespace: "default", Name: "a"}
	empty := &Greeting{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := c.Create(ctx, empty); err != nil {
		t.Fatal(err)
	}
	g, m := &Greeting{}, &corev1.ConfigMap{}
	published := func(text string) {
		t.Helper()
		eventually(t, text+" is published", func() bool {
			return c.Get(ctx, key, m) == nil && m.Data["text"] == text && c.Get(ctx, key, g) == nil &&
				g.Status.Published == text
		})
	}
	published("hello")
	if !metav1.IsControlledBy(m, g) {
		t.Errorf("owners of the ConfigMap: %v", m.OwnerReferences)
	}
	g.Spec.Text = "good morning"
	if err := c.Update(ctx, g); err != nil {
		t.Fatal(err)
	}
	published("good morning")
	first := m.UID
	if err := c.Delete(ctx, m); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the ConfigMap is created again", func() bool { return c.Get(ctx, key, m) == nil && m.UID != first })
}

// rejected checks the error messages for invalid Greetings.
func rejected(t *testing.T, c client.Client) {
	for name, tc := range map[string]struct {
		text, want string
		is         func(error) bool
	}{
		"by the webhook": {"go away", `admission webhook "validate.envtest.example.com" denied the request: ` +
			errRude.Error(), apierrors.IsForbidden},
		"by the schema": {strings.Repeat("x", 21), "Too long: may not be more than 20 bytes", apierrors.IsInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.Create(t.Context(), &Greeting{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"},
				Spec: GreetingSpec{Text: tc.text}})
			if err == nil || !tc.is(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}

// users checks a user that envtest has added: the user's rights, and kubectl with the user's
// credentials.
func users(t *testing.T, env *envtest.Environment, scheme *runtime.Scheme) {
	user, err := env.AddUser(envtest.User{Name: "reader", Groups: []string{"readers"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(user.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.List(t.Context(), &GreetingList{}); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), `User "reader" cannot list resource "greetings"`) {
		t.Errorf("a user without rights got %v", err)
	}
	kubectl := env.ControlPlane.KubeCtl()
	stdout, stderr, err := kubectl.Run("get", "greetings", "a", "-o", "jsonpath={.status.published}")
	if err != nil {
		t.Fatal(err, text(stderr))
	}
	if got := text(stdout); got != "good morning" {
		t.Errorf("kubectl printed %q", got)
	}
}

// text reads r to its end and returns the text.
func text(r io.Reader) string {
	all, err := io.ReadAll(r)
	if err != nil {
		return err.Error()
	}
	return string(all)
}

// eventually waits until holds returns true. If that takes too long, the test fails with a message
// that contains what.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) { return holds(), nil }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

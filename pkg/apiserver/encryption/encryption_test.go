// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	kms "k8s.io/kms/apis/v2"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/kvtest"
	"keelson.dev/apiserver/store/kv/memory"
)

func key() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b)
	return base64.StdEncoding.EncodeToString(b)
}

// write writes to file an EncryptionConfiguration with the given providers for all resources.
func write(t *testing.T, file string, providers ...string) {
	t.Helper()
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- " +
		"resources: ['*.*']\n  providers:\n"
	for _, p := range providers {
		text += "  - " + p + "\n"
	}
	next := file + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
}

func local(kind, name, secret string) string {
	return fmt.Sprintf("%s: {keys: [{name: %s, secret: %s}]}", kind, name, secret)
}

// sealed is an Encryption and a store that uses it.
type sealed struct {
	*Encryption
	Store *Store
}

func openAll(t *testing.T, file string, reload bool, inner kv.Store) sealed {
	t.Helper()
	e, err := Open(t.Context(), Config{File: file, Reload: reload, Root: "/registry"})
	if err != nil {
		t.Fatal(err)
	}
	e.resource = func(string) (schema.GroupResource, bool) { return schema.GroupResource{Resource: "secrets"}, true }
	return sealed{e, e.Over(inner)}
}

// TestStore runs the test suite of kv.Store over encrypted values.
func TestStore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, local("secretbox", "a", key()))
	kvtest.Run(t, func(t *testing.T) kv.Store { return openAll(t, file, false, memory.New(clock.Real())).Store })
}

// TestProviders checks that each provider uses Kubernetes' prefix and can decrypt its own values.
// It also checks that the providers aesgcm and kms reject a value that was copied to another key.
func TestProviders(t *testing.T) {
	plugin := startPlugin(t)
	for prefix, provider := range map[string]string{
		"k8s:enc:aescbc:v1:a:":    local("aescbc", "a", key()),
		"k8s:enc:aesgcm:v1:a:":    local("aesgcm", "a", key()),
		"k8s:enc:secretbox:v1:a:": local("secretbox", "a", key()),
		"k8s:enc:kms:v2:a:":       plugin.provider("a"),
		"plain":                   "identity: {}",
	} {
		t.Run(prefix, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			write(t, file, provider)
			inner := memory.New(clock.Real())
			s := openAll(t, file, false, inner).Store
			res, err := s.Put(t.Context(), "/registry/secrets/a/b", []byte("plain text"), 0, 0)
			if err != nil || !res.OK {
				t.Fatal(res, err)
			}
			raw, _, err := inner.Get(t.Context(), "/registry/secrets/a/b")
			if err != nil || !strings.HasPrefix(string(raw.Value), prefix) {
				t.Fatalf("stored %q, %v", raw.Value, err)
			}
			it, _, err := s.Get(t.Context(), "/registry/secrets/a/b")
			if err != nil || string(it.Value) != "plain text" {
				t.Fatal(it, err)
			}
			if prefix == "plain" || strings.HasPrefix(prefix, "k8s:enc:aescbc") ||
				strings.HasPrefix(prefix, "k8s:enc:secretbox") {
				return // these providers do not authenticate the key of a value
			}
			if _, err := inner.Put(t.Context(), "/registry/secrets/a/c", raw.Value, 0, 0); err != nil {
				t.Fatal(err)
			}
			it, _, err = s.Get(t.Context(), "/registry/secrets/a/c")
			if err != nil || !errors.Is(it.Err, kv.ErrUnreadable) {
				t.Errorf("a value in another's place: %v, %v", it, err)
			}
		})
	}
}

// TestRotation changes the list of providers step by step. It checks that older values can be read
// at each step, and which of them are outdated.
func TestRotation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	older, newer := local("aescbc", "a", key()), local("aesgcm", "b", key())
	inner := memory.New(clock.Real())
	steps := []struct {
		reason    string
		providers []string
		outdated  bool
	}{
		{"plain text, first", []string{"identity: {}"}, false},
		{"encryption begins", []string{older, "identity: {}"}, true},
		{"the new key is known", []string{older, newer}, false},
		{"the new key writes", []string{newer, older}, true},
		{"the old key goes", []string{newer}, false},
		{"encryption ends", []string{"identity: {}", newer}, true},
	}
	var at int64
	for _, step := range steps {
		write(t, file, step.providers...)
		s := openAll(t, file, false, inner).Store
		if at != 0 {
			it, _, err := s.Get(t.Context(), "/registry/k")
			if err != nil || string(it.Value) != "v" {
				t.Fatalf("%s: %v, %v", step.reason, it, err)
			}
			if old, err := s.Outdated(t.Context(), "/registry/k"); err != nil || old != step.outdated {
				t.Errorf("%s: outdated %t, %v", step.reason, old, err)
			}
		}
		res, err := s.Put(t.Context(), "/registry/k", []byte("v"), at, 0)
		if err != nil || !res.OK {
			t.Fatal(res, err)
		}
		at = res.Revision
	}
}

// TestUnreadable checks that a value that cannot be decrypted has an error in the results of all
// requests, and that the other values of the same request or watch can be read.
func TestUnreadable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, local("secretbox", "a", key()))
	inner := memory.New(clock.Real())
	s := openAll(t, file, false, inner).Store
	w, err := s.Watch(t.Context(), "/registry/", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if _, err := inner.Put(t.Context(), "/registry/a", []byte("k8s:enc:secretbox:v1:other:xxx"), 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "/registry/b", []byte("v"), 0, 0); err != nil {
		t.Fatal(err)
	}
	var events []kv.Event
	for len(events) < 2 {
		b, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, b.Events...)
	}
	if !errors.Is(events[0].Err, kv.ErrUnreadable) || events[0].Value != nil || events[1].Err != nil ||
		string(events[1].Value) != "v" {
		t.Errorf("%+v", events)
	}
	const reason = "no matching key was found for the provided Secretbox transformer"
	unreadable := func(what string, it *kv.Item, err error) {
		t.Helper()
		if err != nil || it == nil || it.Key != "/registry/a" || it.ModRevision != events[0].ModRevision ||
			it.Value != nil || !errors.Is(it.Err, kv.ErrUnreadable) || it.Err.Error() != reason {
			t.Errorf("%s: %+v, %v", what, it, err)
		}
	}
	all, err := s.Range(t.Context(), kv.RangeOptions{Prefix: "/registry/"})
	if err != nil || len(all.Items) != 2 || all.Items[1].Err != nil || string(all.Items[1].Value) != "v" {
		t.Fatalf("range: %+v, %v", all, err)
	}
	unreadable("range", &all.Items[0], err)
	it, _, err := s.Get(t.Context(), "/registry/a")
	unreadable("get", it, err)
	res, err := s.Put(t.Context(), "/registry/a", []byte("v"), 0, 0)
	unreadable("create", res.Current, err)
	res, err = s.Put(t.Context(), "/registry/a", []byte("v"), 99, 0)
	unreadable("update", res.Current, err)
	res, err = s.Delete(t.Context(), "/registry/a", 99)
	unreadable("delete", res.Current, err)
}

// TestReload checks that a new key in the file is used, and that an invalid file is ignored.
func TestReload(t *testing.T) {
	old := controller.EncryptionConfigFileChangePollDuration
	controller.EncryptionConfigFileChangePollDuration = 10 * time.Millisecond
	t.Cleanup(func() { controller.EncryptionConfigFileChangePollDuration = old })
	file := filepath.Join(t.TempDir(), "config.yaml")
	older, newer := local("aescbc", "a", key()), local("secretbox", "b", key())
	write(t, file, older)
	inner := memory.New(clock.Real())
	e := openAll(t, file, true, inner)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.Run(ctx)
	}()
	defer func() {
		stop()
		<-done
	}()
	put := func() string {
		t.Helper()
		it, _, err := inner.Get(t.Context(), "/registry/k")
		if err != nil {
			t.Fatal(err)
		}
		var at int64
		if it != nil {
			at = it.ModRevision
		}
		if res, err := e.Store.Put(t.Context(), "/registry/k", []byte("v"), at, 0); err != nil || !res.OK {
			t.Fatal(res, err)
		}
		it, _, err = inner.Get(t.Context(), "/registry/k")
		if err != nil {
			t.Fatal(err)
		}
		return string(it.Value)
	}
	if v := put(); !strings.HasPrefix(v, "k8s:enc:aescbc:v1:a:") {
		t.Fatalf("stored %q", v)
	}
	write(t, file, "nonsense: {}")
	if v := put(); !strings.HasPrefix(v, "k8s:enc:aescbc:v1:a:") || e.Reloaded() {
		t.Fatalf("with a broken file: stored %q, reloaded %t", v, e.Reloaded())
	}
	write(t, file, newer, older)
	for deadline := time.Now().Add(3 * time.Minute); !strings.HasPrefix(put(), "k8s:enc:secretbox:v1:b:"); {
		if time.Now().After(deadline) {
			t.Fatal("the new key is not used")
		}
		time.Sleep(10 * time.Millisecond)
	}
	for deadline := time.Now().Add(3 * time.Minute); !e.Reloaded(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the reload was not reported")
		}
	}
	for _, c := range e.Checks() {
		if err := c.Run(t.Context()); err != nil || c.Name != "kms-providers" {
			t.Errorf("check %q: %v", c.Name, err)
		}
	}
}

// TestKeyServer checks that a value that was encrypted before can be read while the key server is
// down, and that after a restart, the health check and new values fail.
func TestKeyServer(t *testing.T) {
	plugin := startPlugin(t)
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, plugin.provider("a"))
	e := openAll(t, file, false, memory.New(clock.Real()))
	if len(e.Checks()) != 1 {
		t.Fatalf("%d checks", len(e.Checks()))
	}
	if err := e.Checks()[0].Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Store.Put(t.Context(), "/registry/k", []byte("v"), 0, 0); err != nil {
		t.Fatal(err)
	}
	plugin.ill.Store(true)
	if it, _, err := e.Store.Get(t.Context(), "/registry/k"); err != nil || string(it.Value) != "v" {
		t.Errorf("with an ill key server: %v, %v", it, err)
	}
	e = openAll(t, file, false, memory.New(clock.Real()))
	if err := e.Checks()[0].Run(t.Context()); err == nil {
		t.Error("an ill key server is taken for well")
	}
	if _, err := e.Store.Put(t.Context(), "/registry/k", []byte("v"), 0, 0); err == nil {
		t.Error("a value was stored that nobody encrypted")
	}
}

// TestSilentKeyServer checks that a key server that does not answer is asked once for each range of
// values, and not once for each value.
func TestSilentKeyServer(t *testing.T) {
	plugin := startPlugin(t)
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, plugin.provider("a"))
	inner := memory.New(clock.Real())
	e := openAll(t, file, false, inner)
	for i := range 10 {
		if _, err := e.Store.Put(t.Context(), fmt.Sprint("/registry/k", i), []byte("v"), 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		err  error
		asks int64
	}{
		"silent": {status.Error(codes.DeadlineExceeded, "timeout"), 1},
		"gone":   {status.Error(codes.Unavailable, "connection refused"), 1},
		"ill":    {errors.New("ill"), 10},
	} {
		t.Run(name, func(t *testing.T) {
			plugin.decrypting.Store(&tc.err)
			restarted := openAll(t, file, false, inner)
			before := plugin.decryptions.Load()
			res, err := restarted.Store.Range(t.Context(), kv.RangeOptions{Prefix: "/registry/"})
			if err != nil || len(res.Items) != 10 {
				t.Fatalf("%v, %v", res, err)
			}
			for _, it := range res.Items {
				if it.Value != nil || !errors.Is(it.Err, kv.ErrUnreadable) {
					t.Errorf("%s: value %q, error %v", it.Key, it.Value, it.Err)
				}
			}
			if asks := plugin.decryptions.Load() - before; asks != tc.asks {
				t.Errorf("the key server was asked %d times, want %d", asks, tc.asks)
			}
		})
	}
}

// TestSpans checks that encryption adds its events to the span of a read or write, and that the
// library adds the span of a key server below it.
func TestSpans(t *testing.T) {
	plugin := startPlugin(t)
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, plugin.provider("a"))
	s := openAll(t, file, false, memory.New(clock.Real())).Store
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	const key = "/registry/secrets/a/b"

	ctx, span := tracer.Start(t.Context(), "write")
	if _, err := s.Put(ctx, key, []byte("plain text"), 0, 0); err != nil {
		t.Fatal(err)
	}
	span.End()
	ctx, span = tracer.Start(t.Context(), "read")
	if _, _, err := s.Get(ctx, key); err != nil {
		t.Fatal(err)
	}
	span.End()

	var got []string
	for _, span := range recorder.Ended() {
		line := span.Name()
		if !span.Parent().IsValid() {
			line += ": " + span.Events()[0].Name
		}
		got = append(got, line)
	}
	want := []string{"TransformToStorage with envelopeTransformer", "write: TransformToStorage succeeded",
		"TransformFromStorage with envelopeTransformer", "read: TransformFromStorage succeeded"}
	if !slices.Equal(got, want) {
		t.Errorf("spans %q, want %q", got, want)
	}
}

// plugin is a key server on a unix socket. It encrypts a value by reversing its bytes.
type plugin struct {
	kms.UnimplementedKeyManagementServiceServer
	socket      string
	ill         atomic.Bool
	decrypting  atomic.Pointer[error] // if set, the error of each decryption
	decryptions atomic.Int64          // how often a decryption was requested
}

func startPlugin(t *testing.T) *plugin {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms") // not t.TempDir(), because the path of a unix socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &plugin{socket: filepath.Join(dir, "s")}
	l, err := net.Listen("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	kms.RegisterKeyManagementServiceServer(server, p)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return p
}

func (p *plugin) provider(name string) string {
	return fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: 'unix://%s', timeout: 3m}", name, p.socket)
}

func (p *plugin) Status(context.Context, *kms.StatusRequest) (*kms.StatusResponse, error) {
	if p.ill.Load() {
		return nil, errors.New("ill")
	}
	return &kms.StatusResponse{Version: "v2", Healthz: "ok", KeyId: "1"}, nil
}

func turned(b []byte) []byte {
	out := bytes.Clone(b)
	for i := range out {
		out[i] ^= 0xff
	}
	return out
}

func (p *plugin) Encrypt(_ context.Context, r *kms.EncryptRequest) (*kms.EncryptResponse, error) {
	if p.ill.Load() {
		return nil, errors.New("ill")
	}
	return &kms.EncryptResponse{Ciphertext: turned(r.Plaintext), KeyId: "1"}, nil
}

func (p *plugin) Decrypt(_ context.Context, r *kms.DecryptRequest) (*kms.DecryptResponse, error) {
	if p.ill.Load() {
		return nil, errors.New("ill")
	}
	p.decryptions.Add(1)
	if err := p.decrypting.Load(); err != nil {
		return nil, *err
	}
	return &kms.DecryptResponse{Plaintext: turned(r.Ciphertext)}, nil
}

func TestResources(t *testing.T) {
	rows := []*resource.Row{
		{Resource: "secrets", StoragePrefix: "secrets"},
		{Resource: "services", StoragePrefix: "services/specs"},
		{Resource: "endpoints", StoragePrefix: "services/endpoints"},
		{Resource: "apiservices", Group: "apiregistration.k8s.io", StoragePrefix: "apiregistration.k8s.io/apiservices"},
	}
	r := newResources("/registry", rows)
	for key, want := range map[string]string{
		"/registry/secrets/default/a":                       "secrets",
		"/registry/services/specs/default/a":                "services",
		"/registry/services/endpoints/default/a":            "endpoints",
		"/registry/apiregistration.k8s.io/apiservices/v1.a": "apiservices.apiregistration.k8s.io",
		"/registry/stable.example.com/crontabs/default/a":   "crontabs.stable.example.com",
		"/registry/masterleases/192.0.2.1":                  "",
		"/registry/ranges/servicenodeports":                 "",
		"/registry/unknown/a":                               "",
		"compact_rev_key":                                   "",
		"/registry/secrets":                                 "",
	} {
		if gr, ok := r.of(key); gr.String() != want || ok != (want != "") {
			t.Errorf("%s: %q", key, gr)
		}
	}
}

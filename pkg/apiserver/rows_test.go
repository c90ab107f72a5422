// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store/kv/memory"
	"keelson.dev/keelson/pkg/api"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/features"
)

// TestRowsStayAsBuilt runs a server, writes through it, builds its kind table a second time and
// compares the two, to check that rows are complete when built and not changed later.
func TestRowsStayAsBuilt(t *testing.T) {
	for name, configure := range map[string]func(*config.Config){
		"all APIs":   func(c *config.Config) { c.RuntimeConfig = map[string]bool{"api/all": true} },
		"privileged": func(c *config.Config) { c.AllowPrivileged = true },
	} {
		t.Run(name, func(t *testing.T) {
			a := live(t, configure)
			fresh, err := a.newRows()
			if err != nil {
				t.Fatal(err)
			}
			if len(fresh) != len(a.rows) {
				t.Fatalf("%d rows, want %d", len(a.rows), len(fresh))
			}
			for i, row := range a.rows {
				c := comparison{seen: map[[2]uintptr]bool{}}
				c.compare(row.GroupResource().String(), reflect.ValueOf(row), reflect.ValueOf(fresh[i]))
				for _, path := range c.differ {
					t.Errorf("%s was changed after the row was built", path)
				}
			}
		})
	}
}

// TestGates checks that the kind table names only feature gates that exist.
func TestGates(t *testing.T) {
	registry := prometheus.NewRegistry()
	if err := features.Register(registry, &features.Options{}); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{"": true}
	for _, m := range families[0].GetMetric() {
		for _, label := range m.GetLabel() {
			exists[label.GetValue()] = true
		}
	}
	for _, row := range api.Rows(api.Deps{}) {
		gates := []string{row.Feature}
		for _, gated := range row.Gated {
			gates = append(gates, gated.Feature)
		}
		for _, gate := range gates {
			if !exists[gate] {
				t.Errorf("%s: there is no feature gate %q", row.GroupResource(), gate)
			}
		}
	}
}

// TestComparison checks that the comparison finds all kinds of changes.
func TestComparison(t *testing.T) {
	a := live(t, func(*config.Config) {})
	for name, change := range map[string]func(*resource.Row){
		"a rule is wrapped":       func(r *resource.Row) { f := r.Default; r.Default = func(o resource.Object) { f(o) } },
		"a hook is added":         func(r *resource.Row) { r.Hooks.AfterCreate = func(context.Context, resource.Object) {} },
		"a verb goes":             func(r *resource.Row) { r.Verbs = []string{"get"} },
		"a subresource's rule":    func(r *resource.Row) { r.Subresources[0].ValidateUpdate = nil },
		"a subresource's handler": func(r *resource.Row) { r.Subresources[0].Connect, r.Subresources[0].Create = nil, nil },
		"a version is deprecated": func(r *resource.Row) { r.Versions[0].Deprecated = "soon" },
	} {
		t.Run(name, func(t *testing.T) {
			fresh, err := a.newRows()
			if err != nil {
				t.Fatal(err)
			}
			for i, row := range a.rows {
				if row.GroupResource() != corev1.Resource("pods") {
					continue
				}
				change(fresh[i])
				if name == "a subresource's rule" {
					fresh[i].Subresources[0].PrepareUpdate = func(context.Context, resource.Object, resource.Object) {}
				}
				c := comparison{seen: map[[2]uintptr]bool{}}
				c.compare("pods", reflect.ValueOf(row), reflect.ValueOf(fresh[i]))
				if len(c.differ) != 1 {
					t.Errorf("differ: %v, want one path", c.differ)
				}
			}
		})
	}
}

// live returns a running API server after some writes.
func live(t *testing.T, configure func(*config.Config)) *assembly {
	t.Helper()
	cfg := config.Default()
	cfg.BindAddress, cfg.AdvertiseAddress, cfg.DataDir = "127.0.0.1", "192.0.2.1", t.TempDir()
	cfg.ServiceAccountSignKey = signingKey(t)
	cfg.ServiceAccountKeyFiles, cfg.ServiceAccountIssuers = []string{cfg.ServiceAccountSignKey},
		[]string{"https://kubernetes.default.svc"}
	cfg.ServiceClusterIPRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	configure(&cfg)
	s, err := New(cfg, Deps{KV: memory.New(clock.Real())})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	d, err := s.openDatabases(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.follow(ctx, s); err != nil {
		t.Fatal(err)
	}
	running.Go(func() { d.run(ctx, s) })
	a, err := s.assemble(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	running.Go(func() { a.run(ctx) })
	select {
	case <-s.Ready():
	case <-ctx.Done():
		t.Fatal("the server is not ready")
	}
	services := a.self.client.CoreV1().Services("default")
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	if svc, err = services.Create(ctx, svc, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	svc.Labels = map[string]string{"a": "b"}
	if _, err = services.Update(ctx, svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err = services.Delete(ctx, "s", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	return a
}

// signingKey returns the path of a new private key.
func signingKey(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "sa.key")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// comparison collects the paths at which two values differ. Functions are equal if they have the
// same code; captured variables cannot be compared.
type comparison struct {
	differ []string
	seen   map[[2]uintptr]bool // pairs of pointers that are being compared
}

func (c *comparison) compare(path string, x, y reflect.Value) {
	if x.IsValid() != y.IsValid() || x.IsValid() && x.Type() != y.Type() {
		c.differ = append(c.differ, path)
		return
	}
	switch x.Kind() {
	case reflect.Invalid:
	case reflect.Func:
		if x.Pointer() != y.Pointer() {
			c.differ = append(c.differ, fmt.Sprintf("%s (%s, built as %s)", path, code(x), code(y)))
		}
	case reflect.Pointer:
		if pair := [2]uintptr{x.Pointer(), y.Pointer()}; pair[0] != pair[1] && !c.seen[pair] {
			c.seen[pair] = true
			c.compare(path, x.Elem(), y.Elem())
		}
	case reflect.Interface:
		c.compare(path, x.Elem(), y.Elem())
	case reflect.Struct:
		for i := range x.NumField() {
			c.compare(path+"."+x.Type().Field(i).Name, x.Field(i), y.Field(i))
		}
	case reflect.Slice, reflect.Array:
		if x.Len() != y.Len() {
			c.differ = append(c.differ, path)
			return
		}
		for i := range x.Len() {
			c.compare(fmt.Sprintf("%s[%d]", path, i), x.Index(i), y.Index(i))
		}
	case reflect.Map:
		if x.Len() != y.Len() {
			c.differ = append(c.differ, path)
			return
		}
		for _, k := range x.MapKeys() {
			c.compare(fmt.Sprintf("%s[%v]", path, k), x.MapIndex(k), y.MapIndex(k))
		}
	default:
		if !x.Equal(y) {
			c.differ = append(c.differ, path)
		}
	}
}

func code(f reflect.Value) string {
	if f.IsNil() {
		return "nil"
	}
	return runtime.FuncForPC(f.Pointer()).Name()
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
)

const (
	// componentTimeout limits a health check of a component.
	componentTimeout = 5 * time.Second
	// maxHealthBytes is the maximum number of bytes of the answer to a health check that are read.
	maxHealthBytes = 10 << 10
)

// components answers reads of componentstatuses by checking the components on the server's machine.
// It stores nothing.
type components struct {
	row    *resource.Row
	codec  store.Codec
	attrs  func(store.Object) store.Attrs
	checks []componentCheck
}

// componentCheck checks one component.
type componentCheck struct {
	name string
	// run reports whether the component is healthy, with its answer or an error as message.
	run func(ctx context.Context) (ok bool, message string)
}

// components returns the store of the resource componentstatuses.
func (a *assembly) components(row *resource.Row) store.Interface {
	c := &components{row: row, codec: registry.Codec(row), attrs: registry.Attrs(row)}
	// The components sign their own certificates, so there is no CA to verify them with.
	client := &http.Client{Timeout: componentTimeout, Transport: &http.Transport{
		// as in Kubernetes; the connection stays on loopback
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	c.checks = append(c.checks, healthz(client, "controller-manager", 10257), healthz(client, "scheduler", 10259))
	for i, db := range a.databases.named() {
		c.checks = append(c.checks, componentCheck{fmt.Sprintf("etcd-%d", i), func(ctx context.Context) (bool, string) {
			if _, err := db.kv.Revision(ctx); err != nil {
				return false, err.Error()
			}
			return true, "ok"
		}})
	}
	slices.SortFunc(c.checks, func(x, y componentCheck) int { return strings.Compare(x.name, y.name) })
	return store.ReadOnly{Reader: c, Resource: row.GroupResource()}
}

// healthz returns a check of a process on this machine.
func healthz(client *http.Client, name string, port int) componentCheck {
	return componentCheck{name, func(ctx context.Context) (bool, string) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/healthz", port), nil)
		if err != nil {
			return false, err.Error()
		}
		resp, err := client.Do(r)
		if err != nil {
			return false, err.Error()
		}
		defer resp.Body.Close() // an error of Close does not matter: the body has been read
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxHealthBytes))
		switch {
		case err != nil:
			return false, err.Error()
		case resp.StatusCode < 200 || resp.StatusCode >= 400:
			return false, fmt.Sprintf("HTTP probe failed with statuscode: %d", resp.StatusCode)
		}
		return true, string(body)
	}}
}

// record runs a check and returns its result as a stored object.
func (c *components) record(ctx context.Context, check componentCheck) (*store.Record, error) {
	ok, message := check.run(ctx)
	status := &corev1.ComponentStatus{
		ObjectMeta: metav1.ObjectMeta{Name: check.name},
		Conditions: []corev1.ComponentCondition{{Type: corev1.ComponentHealthy, Status: corev1.ConditionFalse,
			Message: message}},
	}
	if ok {
		status.Conditions[0].Status = corev1.ConditionTrue
	}
	data, err := c.codec.Encode(status)
	if err != nil {
		return nil, err
	}
	return store.NewRecord(check.name, 0, data, c.attrs(status), c.codec, nil), nil
}

// Get checks one component.
func (c *components) Get(ctx context.Context, key, _ string) (*store.Record, error) {
	i := slices.IndexFunc(c.checks, func(check componentCheck) bool { return check.name == key })
	if i < 0 {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "componentstatus"}, key)
	}
	return c.record(ctx, c.checks[i])
}

// List checks all components concurrently.
func (c *components) List(ctx context.Context, o store.ListOptions) (*store.Page, error) {
	var wg sync.WaitGroup
	records, errs := make([]*store.Record, len(c.checks)), make([]error, len(c.checks))
	for i, check := range c.checks {
		wg.Go(func() { records[i], errs[i] = c.record(ctx, check) })
	}
	wg.Wait()
	page := &store.Page{}
	for i, r := range records {
		if errs[i] != nil {
			return nil, errs[i]
		}
		switch {
		case o.Labels != nil && !o.Labels.Matches(labels.Set{}), o.Fields != nil &&
			!o.Fields.Matches(r.Attrs.Fields), o.Name != "" && o.Name != r.Key:
		default:
			page.Records = append(page.Records, r)
		}
	}
	return page, nil
}

// Watch returns an error, because clients can only get and list componentstatuses.
func (c *components) Watch(context.Context, store.WatchOptions) (store.Watcher, error) {
	return nil, apierrors.NewMethodNotSupported(c.row.GroupResource(), "watch")
}

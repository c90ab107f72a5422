// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/rest"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/storehealth"
	"keelson.dev/keelson/pkg/apiserver/storehealth/report"
)

// storeComponent is the source of events about databases.
const storeComponent = "store-health"

// eventInterval is the time in which an event about a database is written only once.
const eventInterval = time.Hour

// newKeeper returns the keeper of a database that this server has opened, or nil for others. It does
// nothing before Run, except reports.
func (d *databases) newKeeper(s *Server, db *database, number int, metrics *storehealth.Metrics,
	locate storehealth.Locator) *storehealth.Keeper {
	if db.maintenance == nil {
		return nil
	}
	cfg := &s.cfg
	root := strings.TrimSuffix(path.Join("/", cfg.EtcdPrefix), "/") + "/"
	return storehealth.New(storehealth.Config{
		Name: fmt.Sprintf("etcd-%d", number), Maintenance: db.maintenance, KV: db.kv, Root: root,
		LockKey: root + "keelson.dev/defragmentation",
		Holder:  lockHolder(cfg),
		Policy: storehealth.Policy{Warn: cfg.Store.WarningPercent, Refuse: cfg.Store.RefusalPercent,
			Defragment: cfg.Store.Defragmentation},
		Interval: cmp.Or(cfg.Store.Interval, storehealth.ObserveInterval), Locate: locate,
		Notify:    func(ctx context.Context, n storehealth.Notice) error { return d.notify(ctx, n) },
		Compacted: func(revision int64) { db.backend.Compacted(revision) },
		Metrics:   metrics, Clock: s.deps.Clock, Log: s.log,
	})
}

// lockHolder returns the name of this server in locks. Servers behind a load balancer may advertise the
// same address, so the name has that of the host too.
func lockHolder(cfg *config.Config) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "/" + net.JoinHostPort(advertised(cfg).String(), strconv.Itoa(cfg.SecurePort))
}

// runKeepers protects the databases until ctx is done, if that is configured.
func (a *assembly) runKeepers(ctx context.Context) {
	if !a.cfg.Store.Protects() {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, db := range a.databases.all {
		if db.keeper != nil {
			wg.Go(func() { db.keeper.Run(ctx) })
		}
	}
}

// notifyOfStore writes events about the level of a database: in the namespace kube-system for the
// operators of the cluster, and in the namespace that the notice names. Each API server gets the same
// notice, so an event has the same name on all of them, and is written once in eventInterval.
func (a *assembly) notifyOfStore(ctx context.Context, n storehealth.Notice) error {
	kind, reason := corev1.EventTypeWarning, "StoreFillingUp"
	text := "The database " + n.Database + " of the API server fills up: "
	switch n.Level {
	case storehealth.Ample:
		kind, reason = corev1.EventTypeNormal, "StoreHasSpace"
		text = "The database " + n.Database + " of the API server has space again: "
	case storehealth.Refusing, storehealth.Full:
		reason = "StoreRefusesWrites"
		text = "The API server refuses new and larger objects, because its database " + n.Database + " is almost full: "
	}
	now := metav1.NewTime(a.server.deps.Clock.Now())
	name := fmt.Sprintf("%s.%s.%x", strings.ToLower(reason), n.Database, now.Truncate(eventInterval).Unix())
	namespaces := []string{metav1.NamespaceSystem}
	if n.Namespace != "" && n.Namespace != metav1.NamespaceSystem {
		namespaces = append(namespaces, n.Namespace)
	}
	var errs []error
	for _, namespace := range namespaces {
		event := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: name},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Namespace: namespace, Name: namespace},
			Type:           kind, Reason: reason, Message: text + n.Message,
			Source: corev1.EventSource{Component: storeComponent}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
			ReportingController: storeComponent,
		}
		_, err := a.self.client.CoreV1().Events(namespace).Create(ctx, event, metav1.CreateOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
			errs = append(errs, fmt.Errorf("event in the namespace %s: %w", namespace, err))
		}
	}
	return errors.Join(errs...)
}

// addStoreReport serves the report of all databases, if the server protects them.
func (a *assembly) addStoreReport(m *mux) {
	if a.cfg.Store.Protects() {
		m.handle(report.Path, rest.GetOnly(a.storeReport(), "application/json"))
	}
}

func (a *assembly) storeReport() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var out report.Document
		usage := r.URL.Query().Has(report.UsageParameter)
		for _, db := range a.databases.all {
			if db.keeper == nil {
				continue
			}
			state, err := db.keeper.Report(r.Context(), usage)
			if err != nil {
				rest.WriteError(w, r, apierrors.NewTooManyRequests(err.Error(), 1))
				return
			}
			out.Databases = append(out.Databases, state)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out)
	})
}

// locate returns the resource and the namespace of the object with a key.
func (m *storeMetrics) locate(key string) (resource, namespace string) {
	gr, rest := m.split(key)
	if gr.Empty() {
		return "(other keys)", ""
	}
	if namespace, _, ok := strings.Cut(rest, "/"); ok {
		return strings.Clone(gr.String()), strings.Clone(namespace)
	}
	return strings.Clone(gr.String()), ""
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/util/webhook"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/outbound"
)

// target is a receiver of audit events: the log or a webhook.
type target interface {
	name() string
	// deliver sends all events, or returns an error and has sent none. It stops when ctx is done.
	deliver(ctx context.Context, events ...*auditapi.Event) error
	// retry returns the delay before a failed delivery is repeated.
	retry() time.Duration
	// senders returns the maximum number of concurrent deliveries.
	senders() int
}

// logTarget writes each audit event as a line of the audit log.
type logTarget struct {
	audit.Backend
}

func newLogTarget(w io.Writer, format string) *logTarget {
	return &logTarget{auditlog.NewBackend(&lines{w: w}, format, auditv1.SchemeGroupVersion)}
}

func (*logTarget) name() string         { return auditlog.PluginName }
func (*logTarget) retry() time.Duration { return time.Second }
func (*logTarget) senders() int         { return 1 }

var errLog = errors.New("audit log not written")

func (t *logTarget) deliver(_ context.Context, events ...*auditapi.Event) error {
	if !t.ProcessEvents(events...) {
		return errLog
	}
	return nil
}

// lines is a writer for the audit log that concurrent requests share. It makes one write at a time.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// maxSenders is the maximum number of concurrent requests to an audit webhook.
const maxSenders = 8

// webhookTarget posts audit events to a webhook.
type webhookTarget struct {
	hook    *webhook.GenericWebhook
	backoff time.Duration
}

func newWebhookTarget(cfg *config.AuditWebhook) (*webhookTarget, error) {
	client, err := webhook.LoadKubeconfig(cfg.ConfigFile, nil)
	if err != nil {
		return nil, fmt.Errorf("audit webhook: %w", err)
	}
	client.Wrap(outbound.NoRedirects) // events are sent only to the configured server
	hook, err := webhook.NewGenericWebhook(audit.Scheme, audit.Codecs, client,
		[]schema.GroupVersion{auditv1.SchemeGroupVersion}, webhook.DefaultRetryBackoffWithInitialDelay(cfg.InitialBackoff))
	if err != nil {
		return nil, fmt.Errorf("audit webhook: %w", err)
	}
	return &webhookTarget{hook, cfg.InitialBackoff}, nil
}

func (*webhookTarget) name() string           { return "webhook" }
func (t *webhookTarget) retry() time.Duration { return t.backoff }
func (*webhookTarget) senders() int           { return maxSenders }

// deliver posts audit events in one EventList.
func (t *webhookTarget) deliver(ctx context.Context, events ...*auditapi.Event) error {
	list := auditapi.EventList{Items: make([]auditapi.Event, len(events))}
	for i, e := range events {
		list.Items[i] = *e
	}
	result := t.hook.RestClient.Post().Body(&list).Do(ctx)
	if err := result.Error(); err != nil {
		return fmt.Errorf("audit webhook: %w", err)
	}
	return nil
}

// blocking is a backend that delivers an audit event before the API request that caused it
// continues.
type blocking struct {
	target target
	strict bool // a request fails if its event cannot be delivered
}

// ProcessEvents implements audit.Sink.
func (b *blocking) ProcessEvents(events ...*auditapi.Event) bool {
	if err := b.target.deliver(context.Background(), events...); err != nil {
		if !errors.Is(err, errLog) { // the log has already reported it
			audit.HandlePluginError(b.target.name(), err, events...)
		}
		return !b.strict
	}
	return true
}

// Run implements audit.Backend.
func (*blocking) Run(<-chan struct{}) error { return nil }

// Shutdown implements audit.Backend.
func (*blocking) Shutdown() {}

// String implements audit.Backend.
func (b *blocking) String() string { return b.target.name() }

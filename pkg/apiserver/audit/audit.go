// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"gopkg.in/natefinch/lumberjack.v2"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/plugin/pkg/audit/truncate"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/config"
)

// Deps are the dependencies of a Log.
type Deps struct {
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
	// Stdout is the writer for the events of a log backend whose path is "-".
	Stdout io.Writer
}

// Log records audit events.
type Log struct {
	// Policy decides which requests are recorded, and how much of each.
	Policy audit.PolicyRuleEvaluator
	// Sink receives audit events. It can be used before Run is called.
	Sink audit.Sink

	backend audit.Backend
	closers []io.Closer
}

// New reads the policy and opens the backends. It returns nil if no policy is configured.
func New(cfg config.Audit, dataDir string, deps Deps) (*Log, error) {
	if cfg.PolicyFile == "" {
		return nil, nil
	}
	rules, err := policy.LoadPolicyFromFile(cfg.PolicyFile)
	if err != nil {
		return nil, fmt.Errorf("loading audit policy file: %w", err)
	}
	if cfg.Log.Path == "" && cfg.Webhook.ConfigFile == "" {
		return nil, nil
	}
	m, err := newMetrics(deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("audit metrics: %w", err)
	}
	if cfg.SpillDir == "" {
		cfg.SpillDir = filepath.Join(dataDir, "audit")
	}
	l := &Log{Policy: policy.NewPolicyRuleEvaluator(rules)}
	b := builder{cfg: &cfg, deps: deps, metrics: m}
	var backends []audit.Backend
	if cfg.Log.Path != "" {
		w, err := openLog(&cfg.Log, deps.Stdout)
		if err != nil {
			return nil, err
		}
		if c, ok := w.(io.Closer); ok {
			l.closers = append(l.closers, c)
		}
		backends = append(backends, b.backend(newLogTarget(w, cfg.Log.Format), &cfg.Log.Batch, &cfg.Log.Truncate))
	}
	if cfg.Webhook.ConfigFile != "" {
		t, err := newWebhookTarget(&cfg.Webhook)
		if err != nil {
			return nil, err
		}
		backends = append(backends, b.backend(t, &cfg.Webhook.Batch, &cfg.Webhook.Truncate))
	}
	l.backend = audit.Union(backends...)
	l.Sink = l.backend
	return l, nil
}

// Run delivers audit events until ctx is done. Then it delivers the events that are left, and
// returns.
func (l *Log) Run(ctx context.Context) error {
	err := l.backend.Run(ctx.Done())
	<-ctx.Done()
	l.backend.Shutdown()
	for _, c := range l.closers {
		_ = c.Close() // an error loses no event, because each has already been written
	}
	return err
}

// builder creates the audit backends that a configuration describes.
type builder struct {
	cfg     *config.Audit
	deps    Deps
	metrics *metrics
}

func (b *builder) backend(t target, batch *config.AuditBatching, cut *config.AuditTruncation) audit.Backend {
	var out audit.Backend
	switch batch.Mode {
	case config.AuditBatch:
		files := newRing(filepath.Join(b.cfg.SpillDir, t.name()), int64(b.cfg.SpillSize)<<20)
		out = newQueue(t, *batch, files, b.deps, b.metrics.of(t.name()))
	default:
		out = &blocking{target: t, strict: batch.Mode == config.AuditBlockingStrict}
	}
	if cut.Enabled {
		limits := truncate.Config{MaxBatchSize: cut.MaxBatchSize, MaxEventSize: cut.MaxEventSize}
		out = truncate.NewBackend(out, limits, auditv1.SchemeGroupVersion)
	}
	return out
}

// openLog opens the log file, which only its owner can read.
func openLog(cfg *config.AuditLog, stdout io.Writer) (io.Writer, error) {
	if cfg.Path == "-" {
		if stdout == nil {
			stdout = os.Stdout
		}
		return struct{ io.Writer }{stdout}, nil
	}
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o700); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	f, err := os.OpenFile(cfg.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	if cfg.MaxSize == 0 {
		return f, nil
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	return &lumberjack.Logger{
		Filename: cfg.Path, MaxAge: cfg.MaxAge, MaxBackups: cfg.MaxBackups, MaxSize: cfg.MaxSize, Compress: cfg.Compress,
	}, nil
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// How the events of an audit backend reach it.
const (
	// AuditBatch sends them later, several at once.
	AuditBatch = "batch"
	// AuditBlocking sends them before the request goes on.
	AuditBlocking = "blocking"
	// AuditBlockingStrict does as well, and refuses the request where it fails.
	AuditBlockingStrict = "blocking-strict"
)

// Formats of the audit log.
const (
	AuditJSON   = "json"
	AuditLegacy = "legacy"
)

// auditVersion is the only version that audit events have.
const auditVersion = "audit.k8s.io/v1"

// Audit says what is taken down of requests, and where it goes. Without a
// policy nothing is.
type Audit struct {
	PolicyFile string
	Log        AuditLog
	Webhook    AuditWebhook
	// SpillDir keeps what a backend in batch mode does not take in time; empty:
	// below Config.DataDir. SpillSize bounds it, in MiB for each backend; 0: what
	// does not fit into memory is dropped.
	SpillDir  string
	SpillSize int
}

// AuditLog is the audit log; an empty Path is none, "-" is standard output.
type AuditLog struct {
	Path       string
	MaxAge     int // days
	MaxBackups int
	MaxSize    int // MB; 0: no rotation
	Format     string
	Compress   bool
	Version    string
	Batch      AuditBatching
	Truncate   AuditTruncation
}

// AuditWebhook is the server that audit events are sent to; an empty ConfigFile
// is none.
type AuditWebhook struct {
	ConfigFile     string
	InitialBackoff time.Duration
	Version        string
	Batch          AuditBatching
	Truncate       AuditTruncation
}

// AuditBatching says how events are gathered. All but Mode is of batch mode.
type AuditBatching struct {
	Mode           string
	BufferSize     int // events
	MaxSize        int // events of one batch
	MaxWait        time.Duration
	ThrottleEnable bool
	ThrottleQPS    float32 // batches per second
	ThrottleBurst  int
}

// AuditTruncation bounds events, in bytes.
type AuditTruncation struct {
	Enabled                    bool
	MaxBatchSize, MaxEventSize int64
}

func defaultAudit() Audit {
	truncate := AuditTruncation{MaxBatchSize: 10 << 20, MaxEventSize: 100 << 10}
	return Audit{
		SpillSize: 64,
		Log: AuditLog{
			MaxSize: 100, MaxAge: 366, MaxBackups: 100, Format: AuditJSON, Version: auditVersion, Truncate: truncate,
			Batch: AuditBatching{Mode: AuditBlocking, BufferSize: 10000, MaxSize: 1},
		},
		Webhook: AuditWebhook{
			InitialBackoff: 10 * time.Second, Version: auditVersion, Truncate: truncate,
			Batch: AuditBatching{
				Mode: AuditBatch, BufferSize: 10000, MaxSize: 400, MaxWait: 30 * time.Second,
				ThrottleEnable: true, ThrottleQPS: 10, ThrottleBurst: 15,
			},
		},
	}
}

func (a *Audit) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&a.PolicyFile, "audit-policy-file", "", "audit policy: which requests are taken down, and how much of them")
	fs.StringVar(&a.SpillDir, "audit-spill-path", "", "where events wait that a backend in batch mode does not take in time; empty: below --data-dir")
	fs.IntVar(&a.SpillSize, "audit-spill-maxsize", a.SpillSize, "most MiB of waiting events on disk, for each backend; 0: none")
	l := &a.Log
	fs.StringVar(&l.Path, "audit-log-path", "", "audit log; -: standard output")
	fs.IntVar(&l.MaxAge, "audit-log-maxage", l.MaxAge, "most days to keep old audit logs; 0: no limit")
	fs.IntVar(&l.MaxBackups, "audit-log-maxbackup", l.MaxBackups, "most old audit logs to keep; 0: no limit")
	fs.IntVar(&l.MaxSize, "audit-log-maxsize", l.MaxSize, "most megabytes of the audit log before it is rotated; 0: it is not")
	fs.StringVar(&l.Format, "audit-log-format", l.Format, "format of the audit log: json, legacy")
	fs.StringVar(&l.Version, "audit-log-version", l.Version, "API version of events in the audit log")
	fs.BoolVar(&l.Compress, "audit-log-compress", false, "compress rotated audit logs by gzip")
	l.Batch.addFlags(fs, "log")
	l.Truncate.addFlags(fs, "log")
	w := &a.Webhook
	fs.StringVar(&w.ConfigFile, "audit-webhook-config-file", "", "kubeconfig of the server that audit events are sent to")
	fs.DurationVar(&w.InitialBackoff, "audit-webhook-initial-backoff", w.InitialBackoff, "how long to wait before a failed batch is sent again")
	fs.DurationVar(&w.InitialBackoff, "audit-webhook-batch-initial-backoff", w.InitialBackoff, "as --audit-webhook-initial-backoff")
	_ = fs.MarkDeprecated("audit-webhook-batch-initial-backoff", "Deprecated, use --audit-webhook-initial-backoff instead.") // which there is
	fs.StringVar(&w.Version, "audit-webhook-version", w.Version, "API version of events that are sent")
	w.Batch.addFlags(fs, "webhook")
	w.Truncate.addFlags(fs, "webhook")
}

func (b *AuditBatching) addFlags(fs *pflag.FlagSet, name string) {
	prefix := "audit-" + name + "-"
	fs.StringVar(&b.Mode, prefix+"mode", b.Mode, "how events reach the backend: batch, blocking, blocking-strict")
	fs.IntVar(&b.BufferSize, prefix+"batch-buffer-size", b.BufferSize, "most events that wait in memory (batch mode)")
	fs.IntVar(&b.MaxSize, prefix+"batch-max-size", b.MaxSize, "most events of one batch (batch mode)")
	fs.DurationVar(&b.MaxWait, prefix+"batch-max-wait", b.MaxWait, "how long a batch waits to become full (batch mode)")
	fs.BoolVar(&b.ThrottleEnable, prefix+"batch-throttle-enable", b.ThrottleEnable, "limit the rate of batches (batch mode)")
	fs.Float32Var(&b.ThrottleQPS, prefix+"batch-throttle-qps", b.ThrottleQPS, "most batches per second (batch mode)")
	fs.IntVar(&b.ThrottleBurst, prefix+"batch-throttle-burst", b.ThrottleBurst, "most batches at once after a quiet time (batch mode)")
}

func (t *AuditTruncation) addFlags(fs *pflag.FlagSet, name string) {
	prefix := "audit-" + name + "-truncate-"
	fs.BoolVar(&t.Enabled, prefix+"enabled", false, "leave out bodies of large events, and split large batches")
	fs.Int64Var(&t.MaxBatchSize, prefix+"max-batch-size", t.MaxBatchSize, "most bytes of one batch")
	fs.Int64Var(&t.MaxEventSize, prefix+"max-event-size", t.MaxEventSize, "most bytes of one event")
}

func (a *Audit) validate(add func(format string, args ...any)) {
	if a.SpillSize < 0 {
		add("--audit-spill-maxsize %d is negative", a.SpillSize)
	}
	if l := &a.Log; l.Path != "" {
		l.Batch.validate("log", add)
		l.Truncate.validate("log", add)
		checkAuditVersion(l.Version, add)
		if l.Format != AuditJSON && l.Format != AuditLegacy {
			add("invalid audit log format %s, allowed formats are \"%s,%s\"", l.Format, AuditLegacy, AuditJSON)
		}
		for _, f := range []struct {
			name string
			n    int
		}{{"maxage", l.MaxAge}, {"maxbackup", l.MaxBackups}, {"maxsize", l.MaxSize}} {
			if f.n < 0 {
				add("--audit-log-%s %d can't be a negative number", f.name, f.n)
			}
		}
	}
	if w := &a.Webhook; w.ConfigFile != "" {
		w.Batch.validate("webhook", add)
		w.Truncate.validate("webhook", add)
		checkAuditVersion(w.Version, add)
	}
}

func (b *AuditBatching) validate(name string, add func(format string, args ...any)) {
	modes := []string{AuditBatch, AuditBlocking, AuditBlockingStrict}
	if !slices.Contains(modes, b.Mode) {
		add("invalid audit %s mode %s, allowed modes are %q", name, b.Mode, strings.Join(modes, ","))
	}
	if b.Mode != AuditBatch {
		return
	}
	for _, f := range []struct {
		what   string
		n      float64
		looked bool
	}{
		{"buffer size", float64(b.BufferSize), true}, {"max batch size", float64(b.MaxSize), true},
		{"throttle QPS", float64(b.ThrottleQPS), b.ThrottleEnable}, {"throttle burst", float64(b.ThrottleBurst), b.ThrottleEnable},
	} {
		if f.looked && f.n <= 0 {
			add("invalid audit batch %s %s %v, must be a positive number", name, f.what, f.n)
			return // the first is told
		}
	}
}

func (t *AuditTruncation) validate(name string, add func(format string, args ...any)) {
	if t.MaxEventSize <= 0 {
		add("invalid audit truncate %s max event size %v, must be a positive number", name, t.MaxEventSize)
	} else if t.MaxBatchSize < t.MaxEventSize {
		add("invalid audit truncate %s max batch size %v, must be greater than max event size (%v)", name, t.MaxBatchSize, t.MaxEventSize)
	}
}

func checkAuditVersion(version string, add func(format string, args ...any)) {
	if version != auditVersion {
		add("invalid group version, allowed versions are %q", []string{auditVersion})
	}
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Modes of an audit backend.
const (
	// AuditBatch queues events and sends several at once.
	AuditBatch = "batch"
	// AuditBlocking sends the event of a request before the request continues.
	AuditBlocking = "blocking"
	// AuditBlockingStrict is AuditBlocking, but a request fails if its event cannot be sent.
	AuditBlockingStrict = "blocking-strict"
)

// Formats of the audit log.
const (
	AuditJSON   = "json"
	AuditLegacy = "legacy"
)

// auditVersion is the only API version of audit events.
const auditVersion = "audit.k8s.io/v1"

// Audit configures auditing. Without a policy it is off.
type Audit struct {
	PolicyFile string
	Log        AuditLog
	Webhook    AuditWebhook
	// SpillDir is the directory for events that do not fit into the memory buffer of a backend in
	// batch mode. If it is empty, a directory in Config.DataDir is used. SpillSize is the maximum
	// size of the events of each backend in SpillDir, in MiB. If it is 0, such events are dropped.
	SpillDir  string
	SpillSize int
}

// AuditLog configures the log backend. If Path is empty, there is no log. If Path is "-", events
// are written to standard output.
type AuditLog struct {
	Path       string
	MaxAge     int // maximum age in days
	MaxBackups int
	MaxSize    int // maximum size of a log file in MB before it is rotated; 0 means no rotation
	Format     string
	Compress   bool
	Version    string
	Batch      AuditBatching
	Truncate   AuditTruncation
}

// AuditWebhook configures the webhook backend. If ConfigFile is empty, there is no webhook.
type AuditWebhook struct {
	ConfigFile     string
	InitialBackoff time.Duration
	Version        string
	Batch          AuditBatching
	Truncate       AuditTruncation
}

// AuditBatching configures how events are sent. Only mode AuditBatch uses the fields after Mode.
type AuditBatching struct {
	Mode           string
	BufferSize     int // maximum number of events that wait in memory
	MaxSize        int // maximum number of events in a batch
	MaxWait        time.Duration
	ThrottleEnable bool
	ThrottleQPS    float32 // average number of batches per second
	ThrottleBurst  int
}

// AuditTruncation limits the sizes of events and batches, in bytes.
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
	fs.StringVar(&a.PolicyFile, "audit-policy-file", "",
		"file with the audit policy, which says which requests are recorded and in which detail; if empty, "+
			"no requests are recorded")
	fs.StringVar(&a.SpillDir, "audit-spill-path", "",
		"directory for audit events that do not fit into memory while a backend in batch mode is slow or "+
			"down; if empty, the directory audit in --data-dir")
	fs.IntVar(&a.SpillSize, "audit-spill-maxsize", a.SpillSize,
		"maximum size, in MiB, of the files in --audit-spill-path, for each backend; when it is reached, the "+
			"oldest file is deleted and its events are lost; 0 means that no files are written, so events "+
			"that do not fit into memory are lost")
	l := &a.Log
	fs.StringVar(&l.Path, "audit-log-path", "",
		"file to write audit events to; - means standard output; if empty, no audit log is written")
	fs.IntVar(&l.MaxAge, "audit-log-maxage", l.MaxAge,
		"age, in days, at which rotated files of the audit log are deleted; 0 means no limit")
	fs.IntVar(&l.MaxBackups, "audit-log-maxbackup", l.MaxBackups,
		"maximum number of rotated files of the audit log that are kept; 0 means no limit")
	fs.IntVar(&l.MaxSize, "audit-log-maxsize", l.MaxSize,
		"size, in megabytes, at which the file of the audit log is rotated; 0 means that it is never rotated")
	fs.StringVar(&l.Format, "audit-log-format", l.Format,
		"format of events in the audit log: json (a JSON object) or legacy (a line of text)")
	fs.StringVar(&l.Version, "audit-log-version", l.Version,
		"API version of events in the audit log; only audit.k8s.io/v1 is supported")
	fs.BoolVar(&l.Compress, "audit-log-compress", false, "compress rotated files of the audit log with gzip")
	l.Batch.addFlags(fs, "log")
	l.Truncate.addFlags(fs, "log")
	w := &a.Webhook
	fs.StringVar(&w.ConfigFile, "audit-webhook-config-file", "",
		"kubeconfig file with the address of the webhook to send audit events to; if empty, no events are "+
			"sent")
	fs.DurationVar(&w.InitialBackoff, "audit-webhook-initial-backoff", w.InitialBackoff,
		"time to wait before the first retry of a failed request to the audit webhook")
	fs.DurationVar(&w.InitialBackoff, "audit-webhook-batch-initial-backoff", w.InitialBackoff,
		"same as --audit-webhook-initial-backoff")
	// MarkDeprecated cannot fail, because the flag exists.
	_ = fs.MarkDeprecated("audit-webhook-batch-initial-backoff",
		"Deprecated, use --audit-webhook-initial-backoff instead.")
	fs.StringVar(&w.Version, "audit-webhook-version", w.Version,
		"API version of events sent to the audit webhook; only audit.k8s.io/v1 is supported")
	w.Batch.addFlags(fs, "webhook")
	w.Truncate.addFlags(fs, "webhook")
}

func (b *AuditBatching) addFlags(fs *pflag.FlagSet, name string) {
	prefix := "audit-" + name + "-"
	const batches = "; has an effect only in the mode batch"
	fs.StringVar(&b.Mode, prefix+"mode", b.Mode,
		"how audit events are sent: batch (later, several at once), blocking (the request waits until its event is "+
			"sent) or blocking-strict (as blocking, and the request fails if its event cannot be sent)")
	fs.IntVar(&b.BufferSize, prefix+"batch-buffer-size", b.BufferSize,
		"maximum number of audit events that wait in memory"+batches)
	fs.IntVar(&b.MaxSize, prefix+"batch-max-size", b.MaxSize,
		"maximum number of audit events that are sent at once"+batches)
	fs.DurationVar(&b.MaxWait, prefix+"batch-max-wait", b.MaxWait,
		"how long to wait for more events before a batch with fewer than the maximum is sent; 0 means no wait"+batches)
	fs.BoolVar(&b.ThrottleEnable, prefix+"batch-throttle-enable", b.ThrottleEnable,
		"limit how many batches of audit events are sent per second"+batches)
	fs.Float32Var(&b.ThrottleQPS, prefix+"batch-throttle-qps", b.ThrottleQPS,
		"maximum number of batches per second on average, if --"+prefix+"batch-throttle-enable is set"+batches)
	fs.IntVar(&b.ThrottleBurst, prefix+"batch-throttle-burst", b.ThrottleBurst,
		"maximum number of batches that are sent in quick succession after a time with fewer batches, if --"+
			prefix+"batch-throttle-enable is set"+batches)
}

func (t *AuditTruncation) addFlags(fs *pflag.FlagSet, name string) {
	prefix := "audit-" + name + "-truncate-"
	fs.BoolVar(&t.Enabled, prefix+"enabled", false,
		"limit the size of audit events and of batches, as --"+prefix+"max-event-size and --"+prefix+"max-batch-size say")
	fs.Int64Var(&t.MaxBatchSize, prefix+"max-batch-size", t.MaxBatchSize,
		"maximum size, in bytes, of a batch of audit events; larger batches are split; has an effect only with --"+
			prefix+"enabled")
	fs.Int64Var(&t.MaxEventSize, prefix+"max-event-size", t.MaxEventSize,
		"maximum size, in bytes, of an audit event; larger events lose the bodies of request and answer, and events "+
			"that are still larger are dropped; has an effect only with --"+prefix+"enabled")
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
		{"throttle QPS", float64(b.ThrottleQPS), b.ThrottleEnable},
		{"throttle burst", float64(b.ThrottleBurst), b.ThrottleEnable},
	} {
		if f.looked && f.n <= 0 {
			add("invalid audit batch %s %s %v, must be a positive number", name, f.what, f.n)
			return // report only the first of several errors
		}
	}
}

func (t *AuditTruncation) validate(name string, add func(format string, args ...any)) {
	if t.MaxEventSize <= 0 {
		add("invalid audit truncate %s max event size %v, must be a positive number", name, t.MaxEventSize)
	} else if t.MaxBatchSize < t.MaxEventSize {
		add("invalid audit truncate %s max batch size %v, must be greater than max event size (%v)", name,
			t.MaxBatchSize, t.MaxEventSize)
	}
}

func checkAuditVersion(version string, add func(format string, args ...any)) {
	if version != auditVersion {
		add("invalid group version, allowed versions are %q", []string{auditVersion})
	}
}

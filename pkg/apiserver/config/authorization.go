// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Authorization configures the authorizers, in addition to Config.AuthorizationModes.
type Authorization struct {
	// File is the path of an AuthorizationConfiguration, which replaces AuthorizationModes and
	// Webhook. The server reloads it when it changes.
	File string
	// PolicyFile is the path of the policies of mode ABAC.
	PolicyFile string
	Webhook    AccessWebhook
	// flagged is true if --authorization-mode or a flag --authorization-webhook-* was given. These
	// flags cannot be combined with File.
	flagged bool
}

// AccessWebhook is the server that authorization mode Webhook calls.
type AccessWebhook struct {
	ConfigFile      string
	Version         string // API version of the SubjectAccessReview objects that the server sends
	AuthorizedTTL   time.Duration
	UnauthorizedTTL time.Duration
}

func defaultAuthorization() Authorization {
	return Authorization{Webhook: AccessWebhook{Version: "v1beta1", AuthorizedTTL: 5 * time.Minute,
		UnauthorizedTTL: 30 * time.Second}}
}

func (a *Authorization) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&a.File, "authorization-config", "",
		"file with an AuthorizationConfiguration, which lists the authorizers in order; changed webhooks "+
			"take effect without a restart; cannot be combined with --authorization-mode and "+
			"--authorization-webhook-*")
	fs.StringVar(&a.PolicyFile, "authorization-policy-file", "",
		"file with the policies of the authorization mode ABAC, one JSON object per line; required for this "+
			"mode")
	w := &a.Webhook
	fs.StringVar(&w.ConfigFile, "authorization-webhook-config-file", "",
		"kubeconfig file with the address of the webhook that the authorization mode Webhook calls; required "+
			"for this mode")
	fs.StringVar(&w.Version, "authorization-webhook-version", w.Version,
		"API version of the SubjectAccessReview objects that are sent to the authorization webhook: v1 or "+
			"v1beta1")
	fs.DurationVar(&w.AuthorizedTTL, "authorization-webhook-cache-authorized-ttl", w.AuthorizedTTL,
		"how long the API server caches answers of the authorization webhook that allow a request")
	fs.DurationVar(&w.UnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", w.UnauthorizedTTL,
		"how long the API server caches answers of the authorization webhook that do not allow a request")
}

// note sets flagged if a flag was given that cannot be combined with File.
func (a *Authorization) note(fs *pflag.FlagSet) {
	fs.Visit(func(f *pflag.Flag) {
		a.flagged = a.flagged || f.Name == "authorization-mode" || strings.HasPrefix(f.Name, "authorization-webhook-")
	})
}

func (a *Authorization) validate(modes []string, add func(format string, args ...any)) {
	if a.File != "" {
		if a.flagged {
			add("--authorization-config can not be specified when --authorization-mode or " +
				"--authorization-webhook-* flags are defined")
		}
		return
	}
	known := []string{ModeAlwaysAllow, ModeAlwaysDeny, ModeABAC, ModeWebhook, ModeRBAC, ModeNode}
	if len(modes) == 0 {
		add("at least one authorization-mode must be passed")
	}
	for i, m := range modes {
		if !slices.Contains(known, m) {
			add("authorization-mode %q is not a valid mode", m)
		}
		if slices.Contains(modes[:i], m) {
			add("authorization-mode %q has mode specified more than once", modes)
		}
	}
	for _, f := range []struct{ mode, file, missing, flag string }{
		{ModeABAC, a.PolicyFile, "policy file", "--authorization-policy-file"},
		{ModeWebhook, a.Webhook.ConfigFile, "config file", "--authorization-webhook-config-file"},
	} {
		switch on := slices.Contains(modes, f.mode); {
		case on && f.file == "":
			add("authorization-mode %s's authorization %s not passed", f.mode, f.missing)
		case !on && f.file != "":
			add("cannot specify %s without mode %s", f.flag, f.mode)
		}
	}
}

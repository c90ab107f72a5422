// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authz builds the chain of authorizers: first the one that allows everything to
// system:masters, then those of the flags or of an AuthorizationConfiguration. The file of the
// configuration is reloaded when it changes. A reload may change webhooks, but it may not add or
// remove the authorizers that run in the server, such as RBAC.
//
// The first authorizer that allows or denies a request decides. If no authorizer decides, the
// request is denied. But until the caches of the authorizers in the server are loaded, the request
// first waits for the caches, and the chain tries again.
package authz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/load"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	authorizationmetrics "k8s.io/apiserver/pkg/authorization/metrics"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/apiserver/pkg/server/options/authorizationconfig/metrics"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/abac"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/follow"
)

// Config configures the authorizers.
type Config struct {
	config.Authorization
	Modes    []string // authorization modes; used if File is empty
	ServerID string
	Clock    clock.Clock
	Log      *slog.Logger
}

// patience is how long a request waits for the caches of the authorizers to be loaded.
const patience = 10 * time.Second

var errNotLoaded = errors.New("roles, bindings or nodes have not been loaded yet")

// privileged is the name of the authorizer that allows everything to the group system:masters.
const privileged = "kubernetes.io/system-privileged-group"

// Authorizer authorizes requests and lists the rights of users.
type Authorizer interface {
	authorizer.UnconditionalAuthorizer
	authorizer.RuleResolver
}

// Chain is the list of authorizers, in order. Load and Build create it. Run reloads the
// configuration file.
type Chain struct {
	cfg      Config
	text     string
	initial  *apiserver.AuthorizationConfiguration
	compiler authorizationcel.Compiler
	policies abac.Policies
	members  map[string]Authorizer // authorizers in the server, by mode
	loaded   <-chan struct{}       // closed once members' caches are loaded; nil if they have none
	current  atomic.Pointer[order]
}

// order has the authorizers of one version of the configuration file, combined in their order.
type order struct {
	authorizer.UnconditionalAuthorizer
	authorizer.RuleResolver
}

// Load reads and validates the configuration. It starts no goroutines.
func Load(cfg Config) (*Chain, error) {
	c := &Chain{cfg: cfg, compiler: authorizationcel.NewDefaultCompiler()}
	if cfg.File == "" {
		c.initial = c.fromFlags()
	} else {
		data, err := os.ReadFile(cfg.File)
		if err != nil {
			return nil, err
		}
		c.text = string(data)
		if c.initial, err = c.parse(c.text); err != nil {
			return nil, err
		}
	}
	if c.Has(config.ModeABAC) {
		var err error
		if c.policies, err = abac.Load(cfg.PolicyFile); err != nil {
			return nil, fmt.Errorf("invalid authorization config: %w", err)
		}
	}
	return c, nil
}

// Has reports whether an authorization mode was configured when the server started.
func (c *Chain) Has(mode string) bool {
	return slices.ContainsFunc(c.initial.Authorizers, func(a apiserver.AuthorizerConfiguration) bool {
		return string(a.Type) == mode
	})
}

// fromFlags converts the authorization flags to an AuthorizationConfiguration.
func (c *Chain) fromFlags() *apiserver.AuthorizationConfiguration {
	out := &apiserver.AuthorizationConfiguration{}
	for _, mode := range c.cfg.Modes {
		a := apiserver.AuthorizerConfiguration{Type: apiserver.AuthorizerType(mode), Name: strings.ToLower(mode)}
		if mode == config.ModeWebhook {
			w := &c.cfg.Webhook
			a.Name = "default"
			a.Webhook = &apiserver.WebhookConfiguration{
				AuthorizedTTL: metav1.Duration{Duration: w.AuthorizedTTL}, CacheAuthorizedRequests: w.AuthorizedTTL != 0,
				UnauthorizedTTL: metav1.Duration{Duration: w.UnauthorizedTTL}, CacheUnauthorizedRequests: w.UnauthorizedTTL != 0,
				Timeout: metav1.Duration{Duration: 30 * time.Second}, FailurePolicy: apiserver.FailurePolicyNoOpinion,
				SubjectAccessReviewVersion: w.Version,
				ConnectionInfo: apiserver.WebhookConnectionInfo{
					Type: apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile, KubeConfigFile: &w.ConfigFile,
				},
			}
		}
		out.Authorizers = append(out.Authorizers, a)
	}
	return out
}

// parse parses and validates a configuration file. An authorizer that runs in the server must have
// its mode in lower case as name, as in Kubernetes. A reload must not omit a mode (other than
// Webhook) of the initial configuration.
func (c *Chain) parse(text string) (*apiserver.AuthorizationConfiguration, error) {
	out, err := load.LoadFromData([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("failed to load AuthorizationConfiguration from file: %w", err)
	}
	known := sets.New(config.ModeAlwaysAllow, config.ModeAlwaysDeny, config.ModeABAC, config.ModeWebhook,
		config.ModeRBAC, config.ModeNode)
	if errs := validation.ValidateAuthorizationConfiguration(c.compiler, nil, out, known,
		sets.New(config.ModeWebhook)); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	var errs []error
	seen := sets.New[string]()
	for _, a := range out.Authorizers {
		mode := string(a.Type)
		if mode == config.ModeWebhook {
			continue
		}
		seen.Insert(mode)
		if want := strings.ToLower(mode); a.Name != want {
			errs = append(errs, fmt.Errorf("expected name %s for authorizer %s instead of %s", want, mode, a.Name))
		}
	}
	if c.initial != nil {
		required := sets.New[string]()
		for _, a := range c.initial.Authorizers {
			if mode := string(a.Type); mode != config.ModeWebhook {
				required.Insert(mode)
			}
		}
		if missing := required.Difference(seen); missing.Len() > 0 {
			errs = append(errs, fmt.Errorf("missing required types: %v", sets.List(missing)))
		}
	}
	return out, errors.Join(errs...)
}

// Build creates the initial chain. members are the authorizers of modes RBAC and Node, for the
// modes that Has reports. The caller closes loaded once the caches of members are loaded.
func (c *Chain) Build(members map[string]Authorizer, loaded <-chan struct{}) error {
	c.members, c.loaded = members, loaded
	if c.policies != nil {
		c.members[config.ModeABAC] = c.policies
	}
	first, err := c.build(c.initial)
	if err != nil {
		return err
	}
	c.current.Store(first)
	authorizationmetrics.RegisterMetrics() // may be called again; the library's metrics are global
	if c.cfg.File != "" {
		metrics.RegisterMetrics()
		metrics.RecordAuthorizationConfigLastConfigInfo(c.cfg.ServerID, c.text)
	}
	return nil
}

func (c *Chain) build(cfg *apiserver.AuthorizationConfiguration) (*order, error) {
	list := []union.NamedAuthorizer{{
		AuthorizerName: privileged, Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup),
	}}
	var resolvers []authorizer.RuleResolver
	for i := range cfg.Authorizers {
		a := &cfg.Authorizers[i]
		one, err := c.one(a)
		if err != nil {
			return nil, err
		}
		named := authorizationmetrics.InstrumentedAuthorizer(string(a.Type), a.Name, authorizer.AuthorizerFunc(one.Authorize))
		list = append(list, union.NamedAuthorizer{AuthorizerName: a.Name, Authorizer: named})
		resolvers = append(resolvers, one)
	}
	all, err := union.New(list...)
	if err != nil {
		return nil, fmt.Errorf("combine authorizers: %w", err)
	}
	return &order{all, union.NewRuleResolvers(resolvers...)}, nil
}

func (c *Chain) one(a *apiserver.AuthorizerConfiguration) (Authorizer, error) {
	switch mode := string(a.Type); mode {
	case config.ModeAlwaysAllow:
		return authorizerfactory.NewAlwaysAllowAuthorizer(), nil
	case config.ModeAlwaysDeny:
		return authorizerfactory.NewAlwaysDenyAuthorizer(), nil
	case config.ModeWebhook:
		return newWebhook(a, c.compiler)
	default:
		if m, ok := c.members[mode]; ok {
			return m, nil
		}
		return nil, fmt.Errorf("authorizer type %s is not allowed if it was not enabled at initial server startup", mode)
	}
}

// Authorize implements authorizer.Authorizer. While caches are not loaded, a request that no
// authorizer decides waits, because an authorizer may allow it once its cache is loaded, and
// clients do not retry a denied request.
func (c *Chain) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	wait := c.loaded
	select {
	case <-wait:
		wait = nil
	default:
	}
	decision, reason, err := c.current.Load().Authorize(ctx, a)
	if decision != authorizer.DecisionNoOpinion || wait == nil {
		return decision, reason, err
	}
	select {
	case <-wait:
		return c.current.Load().Authorize(ctx, a)
	case <-ctx.Done():
	case <-c.cfg.Clock.After(patience):
	}
	return authorizer.DecisionNoOpinion, "", errNotLoaded
}

// RulesFor implements authorizer.RuleResolver.
func (c *Chain) RulesFor(ctx context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo,
	[]authorizer.NonResourceRuleInfo, bool, error) {
	return c.current.Load().RulesFor(ctx, u, namespace)
}

// Run reloads the configuration file when it changes, until ctx is done.
func (c *Chain) Run(ctx context.Context) {
	if c.cfg.File == "" {
		return
	}
	f := follow.File{
		Path: c.cfg.File, Text: c.text, Log: c.cfg.Log,
		Check: func(text string) error {
			next, err := c.parse(text)
			if err == nil {
				_, err = c.build(next)
			}
			return err
		},
		Take: func(_ context.Context, text string) error {
			next, err := c.parse(text)
			if err != nil {
				return err
			}
			o, err := c.build(next)
			if err == nil {
				c.current.Store(o)
			}
			return err
		},
		Done: func(text string, err error) {
			if err != nil {
				metrics.RecordAuthorizationConfigAutomaticReloadFailure(c.cfg.ServerID)
				return
			}
			metrics.RecordAuthorizationConfigAutomaticReloadSuccess(c.cfg.ServerID, text)
		},
	}
	f.Run(ctx)
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/options/authenticationconfig/metrics"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/follow"
)

const (
	// issuerPatience is how long the new issuers of a changed configuration may take to become
	// reachable before the configuration is rejected.
	issuerPatience = time.Minute
	issuerPoll     = time.Second
	// farewell is how long replaced issuers still verify the tokens of requests in progress.
	farewell = time.Minute
)

// IssuersConfig configures the issuers of tokens.
type IssuersConfig struct {
	config.Authentication
	// Own are the issuer URLs of this server. No configured issuer may have one of them.
	Own       []string
	Audiences authenticator.Audiences
	// AnonymousSet is true if --anonymous-auth was given.
	AnonymousSet, Anonymous bool
	ServerID                string
	Clock                   clock.Clock
	Log                     *slog.Logger
}

// Issuers authenticates JWTs of configured issuers, and reloads their configuration file.
type Issuers struct {
	cfg        IssuersConfig
	text       string
	initial    *apiserver.AuthenticationConfiguration
	algorithms []string
	current    atomic.Pointer[issuers]
}

// issuers verifies the tokens of all issuers in one version of the configuration.
type issuers struct {
	tokens  authenticator.Token
	healthy func() error
	close   context.CancelFunc
}

// LoadIssuers reads and validates the configuration. It starts no goroutines.
func LoadIssuers(cfg IssuersConfig) (*Issuers, error) {
	i := &Issuers{cfg: cfg}
	var err error
	switch {
	case cfg.File != "":
		data, err := os.ReadFile(cfg.File)
		if err != nil {
			return nil, fmt.Errorf("failed to load authentication configuration from file %q: %w", cfg.File, err)
		}
		i.text = string(data)
		if i.initial, err = parseAuthentication(i.text); err != nil {
			return nil, fmt.Errorf("failed to load authentication configuration from file %q: %w", cfg.File, err)
		}
		i.algorithms = oidc.AllValidSigningAlgorithms()
	default:
		if i.initial, err = fromFlags(&cfg.OIDC); err != nil {
			return nil, err
		}
		i.algorithms = cfg.OIDC.SigningAlgs
	}
	if i.initial.Anonymous != nil && cfg.AnonymousSet {
		return nil, field.Forbidden(field.NewPath("anonymous"), "--anonymous-auth flag cannot be set when "+
			"anonymous field is configured in authentication configuration file")
	}
	if err := i.validate(i.initial); err != nil {
		return nil, fmt.Errorf("invalid authentication configuration: %w", err)
	}
	return i, nil
}

// Anonymous returns the configuration of requests without credentials: whether they are accepted,
// and for which paths.
func (i *Issuers) Anonymous() apiserver.AnonymousAuthConfig {
	if a := i.initial.Anonymous; a != nil {
		return *a
	}
	return apiserver.AnonymousAuthConfig{Enabled: i.cfg.Anonymous}
}

// None reports whether there are no issuers of JWTs, and a reload cannot add any.
func (i *Issuers) None() bool { return i.cfg.File == "" && len(i.initial.JWT) == 0 }

func parseAuthentication(text string) (*apiserver.AuthenticationConfiguration, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
	if text == "" {
		return nil, errors.New("empty config data")
	}
	obj, err := runtime.Decode(decoder, []byte(text))
	if err != nil {
		return nil, err
	}
	c, ok := obj.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("expected AuthenticationConfiguration, got %T", obj)
	}
	return c, nil
}

// fromFlags converts the --oidc-* flags to an AuthenticationConfiguration.
func fromFlags(o *config.OIDC) (*apiserver.AuthenticationConfiguration, error) {
	c := &apiserver.AuthenticationConfiguration{}
	if o.IssuerURL == "" {
		return c, nil
	}
	prefix := o.UsernamePrefix
	switch {
	case prefix == "-":
		prefix = ""
	case prefix == "" && o.UsernameClaim != "email":
		prefix = o.IssuerURL + "#"
	}
	jwt := apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{URL: o.IssuerURL, Audiences: []string{o.ClientID}},
		ClaimMappings: apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression{Prefix: ptr.To(prefix), Claim: o.UsernameClaim}},
	}
	if o.GroupsClaim != "" {
		jwt.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Prefix: ptr.To(o.GroupsPrefix), Claim: o.GroupsClaim}
	}
	if o.CAFile != "" {
		ca, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, err
		}
		jwt.Issuer.CertificateAuthority = string(ca)
	}
	for claim, value := range o.RequiredClaims {
		jwt.ClaimValidationRules = append(jwt.ClaimValidationRules,
			apiserver.ClaimValidationRule{Claim: claim, RequiredValue: value})
	}
	c.JWT = []apiserver.JWTAuthenticator{jwt}
	return c, nil
}

func (i *Issuers) validate(c *apiserver.AuthenticationConfiguration) error {
	errs := validation.ValidateAuthenticationConfiguration(authenticationcel.NewDefaultCompiler(), c, i.cfg.Own)
	if c != i.initial && !reflect.DeepEqual(i.initial.Anonymous, c.Anonymous) {
		errs = append(errs, field.Forbidden(field.NewPath("anonymous"), "changed from initial configuration file"))
	}
	return errs.ToAggregate()
}

// Start creates the verifiers of tokens. Until ctx is done, they fetch keys from their issuers.
func (i *Issuers) Start(ctx context.Context) error {
	first, err := i.build(ctx, i.initial)
	if err != nil {
		return err
	}
	i.current.Store(first)
	if i.cfg.File != "" {
		metrics.RegisterMetrics()
		metrics.RecordAuthenticationConfigLastConfigInfo(i.cfg.ServerID, i.text)
	}
	return nil
}

func (i *Issuers) build(ctx context.Context, c *apiserver.AuthenticationConfiguration) (*issuers, error) {
	ctx, cancel := context.WithCancel(ctx)
	var tokens []authenticator.Token
	var health []func() error
	for _, jwt := range c.JWT {
		var ca oidc.CAContentProvider
		if pem := jwt.Issuer.CertificateAuthority; pem != "" {
			static, err := dynamiccertificates.NewStaticCAContent("oidc-authenticator", []byte(pem))
			if err != nil {
				cancel()
				return nil, err
			}
			ca = static
		}
		t, err := oidc.New(ctx, oidc.Options{
			JWTAuthenticator: jwt, CAContentProvider: ca, SupportedSigningAlgs: i.algorithms,
			DisallowedIssuers: i.cfg.Own, APIServerID: i.cfg.ServerID,
		})
		if err != nil {
			cancel()
			return nil, err
		}
		tokens, health = append(tokens, t), append(health, t.HealthCheck)
	}
	return &issuers{
		tokens: authenticator.WrapAudienceAgnosticToken(i.cfg.Audiences, tokenunion.NewFailOnError(tokens...)),
		healthy: func() error {
			var errs []error
			for _, ok := range health {
				errs = append(errs, ok())
			}
			return errors.Join(errs...)
		},
		close: cancel,
	}, nil
}

// AuthenticateToken implements authenticator.Token.
func (i *Issuers) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	c := i.current.Load()
	if c == nil {
		return nil, false, nil // Start has not run yet
	}
	return c.tokens.AuthenticateToken(ctx, token)
}

// Run reloads the configuration file when it changes, until ctx is done. ctx must be the context
// that Start was called with.
func (i *Issuers) Run(ctx context.Context) {
	if i.cfg.File == "" {
		return
	}
	f := follow.File{
		Path: i.cfg.File, Text: i.text, Log: i.cfg.Log,
		Check: func(text string) error {
			c, err := parseAuthentication(text)
			if err != nil {
				return err
			}
			return i.validate(c)
		},
		Take: i.take,
		Done: func(text string, err error) {
			if err != nil {
				metrics.RecordAuthenticationConfigAutomaticReloadFailure(i.cfg.ServerID)
				return
			}
			metrics.RecordAuthenticationConfigAutomaticReloadSuccess(i.cfg.ServerID, text)
		},
	}
	f.Run(ctx)
}

// take replaces the issuers by those of a new configuration, as soon as these are healthy.
func (i *Issuers) take(ctx context.Context, text string) error {
	c, err := parseAuthentication(text)
	if err != nil {
		return err
	}
	next, err := i.build(ctx, c)
	if err != nil {
		return err
	}
	deadline := i.cfg.Clock.Now().Add(issuerPatience)
	for err = next.healthy(); err != nil; err = next.healthy() {
		if ctx.Err() != nil || i.cfg.Clock.Now().After(deadline) {
			next.close()
			return err
		}
		select {
		case <-ctx.Done():
		case <-i.cfg.Clock.After(issuerPoll):
		}
	}
	former := i.current.Swap(next)
	go func() {
		defer former.close()
		select {
		case <-ctx.Done():
		case <-i.cfg.Clock.After(farewell):
		}
	}()
	return nil
}

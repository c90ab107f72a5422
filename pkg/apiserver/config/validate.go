// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// minHostBits is the minimum number of host bits of the first service range. With 3 host bits, the
// range has eight addresses.
const minHostBits = 3

// Validate returns an error with all problems of c, with the messages and in the order of
// Kubernetes' server.
func (c *Config) Validate() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	// If one of these checks fails, Validate returns only its error, as in Kubernetes. Values that
	// Kubernetes accepts but this server does not support are checked last.
	for _, alone := range []func() error{c.validateRanges, c.validateSigner, c.Etcd.validateWatchCaches} {
		if err := alone(); err != nil {
			return err
		}
	}
	c.validateLimits(add)
	c.HTTP.validateBrowsers(add)
	c.Features.Validate(add)
	c.Etcd.validate(c.EncryptionReload && c.EncryptionConfig == "", add)
	c.Store.validate(add)
	c.validateFairness(add)
	c.validateServing(add)
	c.validateTokens(add)
	c.Authentication.validate(add)
	c.RequestHeader.validate(add)
	c.Authorization.validate(c.AuthorizationModes, add)
	c.Audit.validate(add)
	if on, said := c.RuntimeConfig["api/all"]; said && !on && len(c.RuntimeConfig) == 1 {
		add("invalid runtime-config with only api/all=false")
	}
	c.validateTokenRequest(add)
	c.Metrics.validate(add)
	c.accepted.validate(add)
	c.validateServices(add)
	if _, err := c.Transport.Outbound(); err != nil {
		errs = append(errs, err)
	}
	if _, err := c.Transport.NodeAddresses(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		c.validateUse(add)
	}
	return utilerrors.NewAggregate(errs)
}

// validateLimits validates the limits on requests.
func (c *Config) validateLimits(add func(format string, args ...any)) {
	notNegative := func(flag string, negative bool) {
		if negative {
			add("--%s can not be negative value", flag)
		}
	}
	if c.HTTP.LivezGrace < 0 {
		add("--livez-grace-period can not be a negative value")
	}
	notNegative("max-requests-inflight", c.MaxReads < 0)
	notNegative("max-mutating-requests-inflight", c.MaxWrites < 0)
	notNegative("request-timeout", c.RequestTimeout < 0)
	if chance := c.HTTP.GoawayChance; chance < 0 || chance > maxGoawayChance {
		add("--goaway-chance can not be less than 0 or greater than %v", maxGoawayChance)
	}
	notNegative("min-request-timeout", c.MinRequestWatch < 0)
	notNegative("storage-initialization-timeout", c.Etcd.initialization < 0)
	notNegative("shutdown-delay-duration", c.ShutdownDelay < 0)
	if c.HTTP.WatchGrace < 0 {
		add("shutdown-watch-termination-grace-period, if provided, can not be a negative value")
	}
}

// validateFairness validates the requirements of priority and fairness.
func (c *Config) validateFairness(add func(format string, args ...any)) {
	if !c.PriorityAndFairness {
		return
	}
	for _, key := range []string{"flowcontrol.apiserver.k8s.io/v1", "api/ga", "api/all"} {
		if on, said := c.RuntimeConfig[key]; said && !on {
			add("--runtime-config=%s=false conflicts with --enable-priority-and-fairness=true", key)
		}
	}
}

// validateUse adds an error for the first value that Kubernetes accepts and this server does not
// support.
func (c *Config) validateUse(add func(format string, args ...any)) {
	err := c.Transport.validateTLS()
	reconciler, etcd, beside := c.Endpoints.validateUse(), c.Etcd.validateUse(), c.accepted.validateUse(c.ProxyClientCert)
	switch {
	case (c.TLSCertFile == "") != (c.TLSKeyFile == ""):
		add("missing filename for serving cert")
	case err != nil:
		add("%w", err)
	case c.PriorityAndFairness && c.MaxReads == 0 && c.MaxWrites == 0:
		add("invalid configuration: MaxRequestsInFlight=0 and MaxMutatingRequestsInFlight=0; they must add " +
			"up to something positive")
	case reconciler != nil:
		add("%w", reconciler)
	case etcd != nil:
		add("%w", etcd)
	case beside != nil:
		add("%w", beside)
	}
}

func (c *Config) validateServing(add func(format string, args ...any)) {
	// Only a configuration that was not made from flags may have port 0, which means any free port.
	if c.SecurePort < 0 || c.SecurePort > 65535 || c.SecurePort == 0 && c.flagged {
		add("--secure-port %d must be between 1 and 65535, inclusive. It cannot be turned off with 0", c.SecurePort)
	}
}

// validateTokens validates the issuers, keys and lifetimes of service account tokens.
func (c *Config) validateTokens(add func(format string, args ...any)) {
	if len(c.ServiceAccountIssuers) == 0 {
		add("service-account-issuer is a required flag")
	}
	for i, issuer := range c.ServiceAccountIssuers {
		if issuer == "" {
			add("service-account-issuer should not be an empty string")
			continue
		}
		if strings.Contains(issuer, ":") {
			if _, err := url.Parse(issuer); err != nil {
				add("service-account-issuer %q contained a ':' but was not a valid URL: %w", issuer, err)
				continue
			}
		}
		if slices.Contains(c.ServiceAccountIssuers[:i], issuer) {
			add("service-account-issuer %q is already specified", issuer)
		}
	}
	if c.ServiceAccountSigner == "" && len(c.ServiceAccountKeyFiles) == 0 {
		add("either `--service-account-key-file` or `--service-account-signing-endpoint` must be set")
	}
	if c.ServiceAccountSigner != "" && (c.ServiceAccountSignKey != "" || len(c.ServiceAccountKeyFiles) > 0) {
		add("can't set `--service-account-signing-key-file` and/or `--service-account-key-file` with " +
			"`--service-account-signing-endpoint` (They are mutually exclusive)")
	}
	if c.ServiceAccountJWKSURI != "" {
		if u, err := url.Parse(c.ServiceAccountJWKSURI); err != nil {
			add("service-account-jwks-uri must be a valid URL: %w", err)
		} else if u.Scheme != "https" {
			add("service-account-jwks-uri requires https scheme, parsed as: %v", u)
		}
	}
}

// validateTokenRequest checks that the flags required for issuing tokens are set.
func (c *Config) validateTokenRequest(add func(format string, args ...any)) {
	signs := c.ServiceAccountSignKey != "" || c.ServiceAccountSigner != ""
	issues := len(c.ServiceAccountIssuers) > 0 && c.ServiceAccountIssuers[0] != ""
	switch {
	case signs && issues:
	case signs || issues || len(c.APIAudiences) > 0:
		add("--service-account-signing-key-file, --service-account-issuer, and --api-audiences should be specified together")
	default:
		add("--service-account-signing-key-file and --service-account-issuer are required flags")
	}
}

// validateRanges validates the service ranges and the size of the first one.
func (c *Config) validateRanges() error {
	ranges := c.ServiceClusterIPRanges
	if len(ranges) == 0 {
		return nil
	}
	if !ranges[0].IsValid() {
		return errors.New("service-cluster-ip-range[0] is not a valid cidr")
	}
	bits := ranges[0].Addr().BitLen()
	if host := bits - ranges[0].Bits(); host < minHostBits || host >= bits-1 {
		return fmt.Errorf("error determining service IP ranges for primary service cidr: the service "+
			"cluster IP range must be at least %d IP addresses", 1<<minHostBits)
	}
	if len(ranges) > 1 && !ranges[1].IsValid() {
		return errors.New("service-cluster-ip-range[1] is not an ip net")
	}
	return nil
}

// validateSigner validates the signer of service account tokens and their lifetime.
func (c *Config) validateSigner() error {
	if m := c.ServiceAccountMaxExpiry; m != 0 && (m < time.Hour || m > 1<<32*time.Second) {
		return errors.New("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds")
	}
	if c.ServiceAccountSigner != "" && c.ServiceAccountSignKey != "" {
		return errors.New("service-account-signing-key-file and service-account-signing-endpoint are " +
			"mutually exclusive and cannot be set at the same time")
	}
	return nil
}

// validateServices validates the addresses and ports of services.
func (c *Config) validateServices(add func(format string, args ...any)) {
	ranges := c.ServiceClusterIPRanges
	if len(ranges) == 0 {
		add("--service-cluster-ip-range must contain at least one valid cidr")
		return
	}
	if len(ranges) > 2 {
		add("--service-cluster-ip-range must not contain more than two entries")
	}
	if len(ranges) > 1 && ranges[0].Addr().Is4() == ranges[1].Addr().Is4() {
		add("--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be of different IP family")
	}
	if a, ok := c.publicAddress(); ok && c.Endpoints.Reconciler != EndpointsNone && a.Is4() != ranges[0].Addr().Is4() {
		add("service IP family %q must match public address family %q", ranges[0], a)
	}
	if r := c.ServiceNodePorts; r.First < 1 || r.Last > 65535 || r.Size() < 1 {
		add("--service-node-port-range %s is not a range of ports", r)
	}
	c.Endpoints.validate(c.ServiceNodePorts, add)
}

// publicAddress returns the address at which nodes and pods reach the server. It returns false if
// the configuration does not determine the address because it depends on the machine.
func (c *Config) publicAddress() (netip.Addr, bool) {
	for _, s := range []string{c.AdvertiseAddress, c.BindAddress} {
		ip := net.ParseIP(s)
		if ip == nil || ip.IsUnspecified() || ip.IsLoopback() && s != c.AdvertiseAddress {
			continue
		}
		a, ok := netip.AddrFromSlice(ip)
		return a.Unmap(), ok
	}
	return netip.Addr{}, false
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"io"
	"testing"
)

// TestRefusals checks that the errors for invalid configurations are those of Kubernetes, and that
// several errors are reported together.
func TestRefusals(t *testing.T) {
	good := []string{
		"--service-account-issuer=https://a", "--service-account-key-file=a", "--service-account-signing-key-file=a",
		"--service-cluster-ip-range=10.0.0.0/16", "--advertise-address=10.1.2.3",
	}
	const together = "--service-account-signing-key-file, --service-account-issuer, and --api-audiences " +
		"should be specified together"
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no flags": {nil, ""},
		"proxies": {[]string{"--requestheader-uid-headers=x",
			"--requestheader-allowed-names=a, "}, `[empty value in "requestheader-allowed-names", ` +
			`--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - ` +
			`API aggregation will not work]`},
		"headers of proxies": {[]string{"--requestheader-uid-headers=x-remote-uid,",
			"--requestheader-username-headers= "},
			`[empty value in "requestheader-username-headers", empty value in "requestheader-uid-headers"]`},
		"version of token reviews": {[]string{"--authentication-token-webhook-config-file=a",
			"--authentication-token-webhook-version=v9"},
			`unsupported authentication webhook version "v9", supported versions are "v1", "v1beta1"`},
		"no authorization mode": {[]string{"--authorization-mode="}, ""},
		"levels of the store": {[]string{"--store-warning-percent=101", "--store-refusal-percent=-1",
			"--embedded-etcd-quota-bytes=-1"}, "[--store-warning-percent must be between 0 and 100, " +
			"--store-refusal-percent must be between 0 and 100, --embedded-etcd-quota-bytes must not be negative]"},
		"warning of the store after refusal": {[]string{"--store-warning-percent=90", "--store-refusal-percent=90"},
			"--store-warning-percent must be less than --store-refusal-percent"},
		"limits": {[]string{"--max-requests-inflight=-1", "--request-timeout=-1s"},
			"[--max-requests-inflight can not be negative value, --request-timeout can not be negative value]"},
		"limit of writes": {[]string{"--max-mutating-requests-inflight=-1"},
			"--max-mutating-requests-inflight can not be negative value"},
		"watch timeout": {[]string{"--min-request-timeout=-1"},
			"--min-request-timeout can not be negative value"},
		"shutdown delay": {[]string{"--shutdown-delay-duration=-1s"},
			"--shutdown-delay-duration can not be negative value"},
		"no limits with fairness": {
			[]string{"--max-requests-inflight=0", "--max-mutating-requests-inflight=0"},
			"invalid configuration: MaxRequestsInFlight=0 and MaxMutatingRequestsInFlight=0; they must " +
				"add up to something positive"},
		"no limits without fairness": {
			[]string{"--max-requests-inflight=0", "--max-mutating-requests-inflight=0",
				"--enable-priority-and-fairness=false"}, ""},
		"port": {[]string{"--secure-port=0"},
			"--secure-port 0 must be between 1 and 65535, inclusive. It cannot be turned off with 0"},
		"key exchange": {[]string{"--tls-curve-preferences=99"},
			"curve preference 99 is not supported by the current Go version"},
		"key exchange and TLS version": {[]string{"--tls-curve-preferences=99", "--tls-min-version=x"},
			"curve preference 99 is not supported by the current Go version"},
		"disabled metrics": {[]string{"--disabled-metrics=x-,y-"},
			`metrics.disabledMetrics: Invalid value: ["x-","y-"]: must be fully qualified metric names ` +
				`matching "^[a-zA-Z_:][a-zA-Z0-9_:]*$", got "x-"`},
		"positional argument": {[]string{"foo"}, `"apiserver" does not take any arguments, got ["foo"]`},
		"verbosity": {[]string{"-v", "x"},
			`invalid argument "x" for "-v, --v" flag: strconv.ParseUint: parsing "x": invalid syntax`},
		"default encoding": {[]string{"--storage-media-type="},
			"--storage-media-type application/json is not supported: objects are stored as application/vnd.kubernetes.protobuf"},
		"key exchange that is no number": {[]string{"--tls-curve-preferences=x"},
			`invalid argument "x" for "--tls-curve-preferences" flag: strconv.ParseInt: parsing "x": invalid syntax`},
		"certificate": {[]string{"--tls-cert-file=a"}, "missing filename for serving cert"},
		"address": {[]string{"--advertise-address=x"},
			`invalid argument "x" for "--advertise-address" flag: failed to parse IP: "x"`},
		"family of the address": {[]string{"--advertise-address=fd00::1"},
			`service IP family "10.0.0.0/16" must match public address family "fd00::1"`},
		"no first range": {[]string{"--service-cluster-ip-range=x,y", "--secure-port=0"},
			"service-cluster-ip-range[0] is not a valid cidr"},
		"no second range": {[]string{"--service-cluster-ip-range=010.0.0.0/16,x",
			"--watch-cache-sizes=x"}, "service-cluster-ip-range[1] is not an ip net"},
		"small first range and invalid second range": {[]string{"--service-cluster-ip-range=10.0.0.0/31,x"},
			"error determining service IP ranges for primary service cidr: the service cluster IP range " +
				"must be at least 8 IP addresses"},
		"invalid ranges": {[]string{"--service-cluster-ip-range=10.0.0.0/16,10.1.0.0/16,y"},
			"[--service-cluster-ip-range must not contain more than two entries, " +
				"--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be of different IP family]"},
		"token lifetime": {[]string{"--service-account-max-token-expiration=1m",
			"--service-account-signing-endpoint=/x", "--watch-cache-sizes=x", "--secure-port=0"},
			"the service-account-max-token-expiration must be between 1 hour and 2^32 seconds"},
		"batch size and throttle": {[]string{"--audit-log-path=-", "--audit-log-mode=batch",
			"--audit-log-batch-max-size=0", "--audit-log-batch-throttle-enable",
			"--audit-log-batch-throttle-qps=0"}, "invalid audit batch log max batch size 0, must be a positive number"},
		"size of events": {[]string{"--audit-log-path=-", "--audit-log-truncate-enabled",
			"--audit-log-truncate-max-event-size=0", "--audit-log-truncate-max-batch-size=-1"},
			"invalid audit truncate log max event size 0, must be a positive number"},
		"two signers": {[]string{"--service-account-signing-endpoint=/x", "--secure-port=0"},
			"service-account-signing-key-file and service-account-signing-endpoint are mutually exclusive " +
				"and cannot be set at the same time"},
		"seconds": {[]string{"--min-request-timeout=x"},
			`invalid argument "x" for "--min-request-timeout" flag: strconv.ParseInt: parsing "x": invalid syntax`},
		"small range": {[]string{"--service-cluster-ip-range=10.0.0.0/30"},
			"error determining service IP ranges for primary service cidr: the service cluster IP range " +
				"must be at least 8 IP addresses"},
		"small range reported alone": {[]string{"--service-cluster-ip-range=10.0.0.0/31", "--secure-port=0"},
			"error determining service IP ranges for primary service cidr: the service cluster IP range " +
				"must be at least 8 IP addresses"},
		"certificate reported last": {[]string{"--tls-cert-file=a", "--goaway-chance=1"},
			"--goaway-chance can not be less than 0 or greater than 0.02"},
		"smallest allowed range": {[]string{"--service-cluster-ip-range=10.0.0.0/29"}, ""},
		"range of all addresses": {[]string{"--service-cluster-ip-range=0.0.0.0/0"},
			"error determining service IP ranges for primary service cidr: the service cluster IP range " +
				"must be at least 8 IP addresses"},
		"small second range": {[]string{"--service-cluster-ip-range=10.0.0.0/16,fd00::/127"}, ""},
		"no service range":   {[]string{"--service-cluster-ip-range="}, ""},
		"ranges of one family": {[]string{"--service-cluster-ip-range=10.0.0.0/16,10.1.0.0/16"},
			"--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be of different IP family"},
		"three ranges": {[]string{"--service-cluster-ip-range=10.0.0.0/16,fd00::/108,fd01::/108"},
			"--service-cluster-ip-range must not contain more than two entries"},
		"ports": {[]string{"--service-node-port-range=2-1"},
			`invalid argument "2-1" for "--service-node-port-range" flag: end port cannot be less than start port: 2-1`},
		"node port": {[]string{"--kubernetes-service-node-port=-1"},
			"--kubernetes-service-node-port -1 must be between 0 and 65535, inclusive. If 0, the Kubernetes " +
				"master service will be of type ClusterIP"},
		"node port out of range": {[]string{"--kubernetes-service-node-port=80000"},
			"[--kubernetes-service-node-port 80000 must be between 0 and 65535, inclusive. If 0, the " +
				"Kubernetes master service will be of type ClusterIP, kubernetes service node port range " +
				"30000-32767 doesn't contain 80000]"},
		"no servers": {[]string{"--apiserver-count=0"},
			"--apiserver-count should be a positive number, but value '0' provided"},
		"family, not advertised": {[]string{"--advertise-address=fd00::1", "--endpoint-reconciler-type=none"}, ""},
		"file and flags": {[]string{"--authentication-config=/x", "--oidc-issuer-url=https://x"},
			"authentication-config file and oidc-* flags are mutually exclusive"},
		"default reconciler": {[]string{"--endpoint-reconciler-type="}, ""},
		"reconciler":         {[]string{"--endpoint-reconciler-type=x"}, "Reconciler not implemented: x"},
		"log": {[]string{"--log-json-info-buffer-size=1k", "--log-json-split-stream",
			"--log-text-info-buffer-size=1", "--log-text-split-stream", "--logging-format=x",
			"--log-flush-frequency=0", "--vmodule=a=1", "--secure-port=0"},
			`[flushFrequency: Invalid value: "0s": Must be greater than zero, format: Invalid ` +
				`value: "x": Unsupported log format, vmodule: Forbidden: Only supported for text ` +
				`log format, options.text.splitStream: Forbidden: Feature LoggingAlphaOptions ` +
				`is disabled, options.text.infoBufferSize: Forbidden: Feature ` +
				`LoggingAlphaOptions is disabled, options.json.splitStream: Forbidden: ` +
				`Feature LoggingAlphaOptions is disabled, ` +
				`options.json.infoBufferSize: Forbidden: Feature LoggingAlphaOptions is disabled]`},
		"vmodule": {[]string{"--vmodule=a"},
			`invalid argument "a" for "--vmodule" flag: "a" does not have the pattern=N format`},
		"verbosity of a module": {[]string{"--vmodule=a=x"}, `invalid argument "a=x" for "--vmodule" ` +
			`flag: parsing verbosity in "a=x": strconv.ParseUint: parsing "x": invalid syntax`},
		"watch cache": {[]string{"--watch-cache-sizes=pods#1,x", "--secure-port=0"},
			"invalid value of watch cache size: x"},
		"size of watch cache": {[]string{"--watch-cache-sizes=pods#x"}, "invalid size of watch cache size: pods#x"},
		"negative watch cache": {[]string{"--watch-cache-sizes=pods#-1,x"},
			"watch cache size cannot be negative: pods#-1"},
		"order": {[]string{
			"--max-requests-inflight=-1", "--request-timeout=-1s", "--min-request-timeout=-1",
			"--shutdown-delay-duration=-1s", "--shutdown-watch-termination-grace-period=-1s",
			"--livez-grace-period=-1s", "--goaway-chance=1", "--strict-transport-security-directives= ",
			"--storage-initialization-timeout=-1s", "--encryption-provider-config-automatic-reload",
			"--storage-backend=x", "--storage-media-type=x", "--etcd-servers-overrides=x,/pods#y",
			"--runtime-config=api/all=false", "--secure-port=0", "--apiserver-count=0",
		}, `[--livez-grace-period can not be a negative value, --max-requests-inflight can not be negative ` +
			`value, --request-timeout can not be negative value, --goaway-chance can not be less than 0 or greater than 0.02, ` +
			`--min-request-timeout can not be negative value, --storage-initialization-timeout can not be ` +
			`negative value, --shutdown-delay-duration can not be negative value, ` +
			`shutdown-watch-termination-grace-period, if provided, can not be a negative value, empty value ` +
			`in strict-transport-security-directives, ` +
			`--storage-backend invalid, allowed values: etcd3. If not specified, it will default to ` +
			`'etcd3', --etcd-servers-overrides invalid, must be of format: group/resource#servers, ` +
			`where servers are URLs, semicolon separated, ` +
			`--encryption-provider-config-automatic-reload must be set with --encryption-provider-config, ` +
			`--storage-media-type "x" invalid, allowed values: application/json, ` +
			`application/vnd.kubernetes.protobuf, application/yaml, ` +
			`--runtime-config=api/all=false conflicts with --enable-priority-and-fairness=true, ` +
			`--secure-port 0 must be between 1 and 65535, inclusive. It cannot be turned off with 0, ` +
			`invalid runtime-config with only api/all=false, ` +
			`--apiserver-count should be a positive number, but value '0' provided]`},
		"etcd servers": {
			[]string{"--etcd-servers-overrides=/events#http://127.0.0.1:2381;http://127.0.0.1:2382,apps/*#x"}, ""},
		"embedded etcd": {[]string{"--etcd-servers-overrides=/events#http://127.0.0.1:2381;"},
			"--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are " +
				"URLs, semicolon separated"},
		"stored as JSON": {[]string{"--storage-media-type=application/json"},
			"--storage-media-type application/json is not supported: objects are stored as application/vnd.kubernetes.protobuf"},
		"no garbage collector": {[]string{"--enable-garbage-collector=false"}, ""},
		"store": {[]string{"--watch-cache=false", "--delete-collection-workers=4",
			"--default-watch-cache-size=0", "--storage-backend=etcd3", "--etcd-compaction-interval=0"}, ""},
		"hidden metrics": {[]string{"--show-hidden-metrics-for-version=1.35", "--disabled-metrics=x-",
			"--allow-metric-labels=foo=bar", "--coordinated-leadership-lease-duration=1s"},
			`[metrics.showHiddenMetricsForVersion: Invalid value: "1.35": must be omitted or have the ` +
				`value '1.36'; only the previous minor version is allowed, ` +
				`metrics.disabledMetrics: Invalid value: ["x-"]: must be fully qualified metric names matching ` +
				`"^[a-zA-Z_:][a-zA-Z0-9_:]*$", got "x-", ` +
				"metrics.allowListMapping: Invalid value: {\"foo\":\"bar\"}: must have keys with format " +
				"`metricName,labelName` where metricName matches \"[a-zA-Z_:][a-zA-Z0-9_:]*\" and labelName " +
				"matches \"[a-zA-Z_][a-zA-Z0-9_]*\", " +
				"--coordinated-leadership-lease-duration must be greater than --coordinated-leadership-renew-deadline]"},
		"labels": {[]string{"--allow-metric-labels=foo"},
			`invalid argument "foo" for "--allow-metric-labels" flag: foo must be formatted as key=value`},
		"election": {[]string{"--coordinated-leadership-renew-deadline=1s"},
			"--coordinated-leadership-renew-deadline must be greater than --coordinated-leadership-retry-period"},
		"peers": {[]string{"--peer-ca-file=a"},
			"error building peer proxy handler, proxy-cert-file not specified"},
		"slow streams": {[]string{"--max-connection-bytes-per-sec=1000"}, ""},
		"port of kubelets": {[]string{"--kubelet-port=-1"},
			`invalid argument "-1" for "--kubelet-port" flag: strconv.ParseUint: parsing "-1": invalid syntax`},
		"accepted": {[]string{"--kubelet-timeout=1s", "--kubelet-port=1",
			"--kubelet-read-only-port=0", "--peer-advertise-ip=x", "--aggregator-reject-forwarding-redirect",
			"--show-hidden-metrics-for-version=1.36", "--enable-logs-handler", "--admission-control=AlwaysAdmit"}, ""},
		"issuer without a URL": {[]string{"--service-account-issuer=http://a b:"},
			`service-account-issuer "http://a b:" contained a ':' but was not a valid URL: parse "http://a ` +
				`b:": invalid character " " in host name`},
		"issuer twice": {[]string{"--service-account-issuer=https://a"},
			`service-account-issuer "https://a" is already specified`},
		"empty issuer": {[]string{"--service-account-issuer="},
			"service-account-issuer should not be an empty string"},
		"JWKS without TLS": {[]string{"--service-account-jwks-uri=http://x"},
			"service-account-jwks-uri requires https scheme, parsed as: http://x"},
		"claim without issuer": {[]string{"--oidc-username-claim=x"},
			"oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"},
		"format of audit log": {[]string{"--audit-log-path=-", "--audit-log-format=x"},
			`invalid audit log format x, allowed formats are "legacy,json"`},
		"negative audit log": {[]string{"--audit-log-path=-", "--audit-log-maxsize=-1",
			"--audit-log-maxage=-1"},
			"[--audit-log-maxage -1 can't be a negative number, --audit-log-maxsize -1 can't be a negative number]"},
		"batches of audit log": {[]string{"--audit-log-path=-", "--audit-log-mode=batch",
			"--audit-log-batch-max-size=0"}, "invalid audit batch log max batch size 0, must be a positive number"},
		"any origin": {[]string{"--cors-allowed-origins=example.com"},
			"--cors-allowed-origins has an invalid regular expression: regular expression does not pin to " +
				"start/end of host in the origin header, help: " + originsHelp},
		"invalid origin expression": {[]string{"--cors-allowed-origins=["},
			"--cors-allowed-origins has an invalid regular expression: error parsing regexp: missing " +
				"closing ]: `[`, help: " + originsHelp},
		"two invalid origins": {[]string{"--cors-allowed-origins=,x"},
			"[empty value in --cors-allowed-origins, help: " + originsHelp +
				", --cors-allowed-origins has an invalid regular expression: regular expression does not " +
				"pin to start/end of host in the origin header, help: " + originsHelp + "]"},
		"origin": {[]string{"--cors-allowed-origins=//example.com(:|$)",
			"--strict-transport-security-directives=max-age=1,preload", "--goaway-chance=0.02"}, ""},
		"connections": {[]string{"--goaway-chance=0.03", "--livez-grace-period=-1s"},
			"[--livez-grace-period can not be a negative value, --goaway-chance can not be less than 0 or greater than 0.02]"},
		"transport security": {[]string{"--strict-transport-security-directives=x"},
			"--strict-transport-security-directives invalid, allowed values: max-age=expireTime, " +
				"includeSubDomains, preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information"},
		"no APIs": {[]string{"--runtime-config=api/all=false"},
			"[--runtime-config=api/all=false conflicts with --enable-priority-and-fairness=true, invalid " +
				"runtime-config with only api/all=false]"},
		"no signing key": {[]string{"--service-account-signing-key-file="}, together},
		"neither issuer nor key": {[]string{"bare"}, "[service-account-issuer is a required flag, either " +
			"`--service-account-key-file` or `--service-account-signing-endpoint` must be set, " +
			"--service-account-signing-key-file and --service-account-issuer are required flags]"},
	} {
		args := append(good[:len(good):len(good)], tc.args...)
		if len(tc.args) > 0 && tc.args[0] == "bare" {
			args = good[3:]
		}
		got := ""
		if _, err := Parse(args, io.Discard); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestAnonymous(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want bool
	}{
		"AlwaysAllow":                       {[]string{"--authorization-mode=AlwaysAllow"}, false},
		"default mode":                      {nil, false},
		"AlwaysAllow with other modes":      {[]string{"--authorization-mode=RBAC,AlwaysAllow"}, false},
		"AlwaysAllow with --anonymous-auth": {[]string{"--anonymous-auth", "--authorization-mode=AlwaysAllow"}, false},
		"RBAC":                              {[]string{"--authorization-mode=Node,RBAC"}, true},
		"RBAC without anonymous requests":   {[]string{"--authorization-mode=RBAC", "--anonymous-auth=false"}, false},
		"authorization file":                {[]string{"--authorization-config=x"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			// Parse returns an error, because required flags are missing. Anonymous does not depend on them.
			cfg, _ := Parse(append([]string{"--data-dir=x"}, tc.args...), t.Output())
			if got := cfg.Anonymous(); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

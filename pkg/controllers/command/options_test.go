// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"keelson.dev/keelson/pkg/controllers"
)

func TestControllers(t *testing.T) {
	for _, tc := range []struct {
		flag string
		runs map[string]bool
		err  string
	}{
		{flag: "*", runs: map[string]bool{"deployment-controller": true, "podgc": false}},
		{flag: "*,-deployment", runs: map[string]bool{"deployment-controller": false, "replicaset-controller": true}},
		{flag: "deployment-controller", runs: map[string]bool{"deployment-controller": true, "replicaset-controller": false}},
		{flag: "*,bootstrapsigner,-service-lb-controller",
			runs: map[string]bool{"namespace-controller": true, "bootstrap-signer-controller": true,
				"token-cleaner-controller": false}},
		{flag: "*,-nonsense", err: `unknown controller "nonsense"`},
		{flag: "*,", err: `unknown controller ""`},
	} {
		o, err := parse([]string{"--controllers=" + tc.flag}, io.Discard)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v, want %q", tc.flag, err, tc.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.flag, err)
			continue
		}
		for name, want := range tc.runs {
			listed := false
			for _, e := range controllers.Table() {
				listed = listed || e.Name == name
			}
			if got := listed && o.runs(name); got != want {
				t.Errorf("%s: %s runs: %v, want %v", tc.flag, name, got, want)
			}
		}
	}
}

// TestTableHasUpstreamNames checks that all controllers have the names that Kubernetes'
// --controllers flag uses, except for the controllers in the variable ours, which Kubernetes does
// not have.
func TestTableHasUpstreamNames(t *testing.T) {
	ours := map[string]bool{"ingress-tls-controller": true, "csi-drivers-controller": true,
		"restore-hold-controller": true}
	for _, e := range controllers.Table() {
		if _, ok := upstream[e.Name]; ok == ours[e.Name] {
			t.Errorf("%s is not a controller of Kubernetes", e.Name)
		}
	}
}

func TestSyncs(t *testing.T) {
	o, err := parse([]string{"--concurrent-gc-syncs=7"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if gc, ds := *o.syncs["garbage-collector-controller"], *o.syncs["daemonset-controller"]; gc != 7 || ds != 2 {
		t.Errorf("garbage collector %d, daemon sets %d; want 7 and 2", gc, ds)
	}
	if _, err := parse([]string{"--concurrent-gc-syncs=0"}, io.Discard); err == nil {
		t.Error("zero workers were accepted")
	}
}

// TestFlagsOfKubernetes checks that flags of Kubernetes' controller manager are accepted and take
// effect, and that an unknown flag is rejected.
func TestFlagsOfKubernetes(t *testing.T) {
	o, err := parse([]string{
		"--enable-garbage-collector=false", "--kube-api-qps=50", "--kube-api-burst=100", "--min-resync-period=12h",
		"--enable-hostpath-provisioner", "--flex-volume-plugin-dir=/x",
		"--disable-attach-detach-reconcile-sync", "--disable-force-detach-on-timeout",
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if o.runs("garbage-collector-controller") || !o.runs("job-controller") || o.qps != 50 || o.burst != 100 {
		t.Errorf("garbage collector runs: %v, QPS %v, burst %d", o.runs("garbage-collector-controller"), o.qps, o.burst)
	}
	if o.resync != 12*time.Hour || o.resyncPeriod() < 12*time.Hour {
		t.Errorf("resync period %v", o.resync)
	}
	if o.controller.Periods.Attachments != 0 || !o.controller.KeepAttached {
		t.Errorf("attach-detach sync period %v, keep attached: %v", o.controller.Periods.Attachments,
			!o.controller.KeepAttached)
	}
	if _, err := parse([]string{"--min-resync"}, io.Discard); err == nil {
		t.Error("an unknown flag was accepted")
	}
}

// TestBounds checks the limits of flag values, and that flags which exclude each other are
// rejected.
func TestBounds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pem")
	if err := os.WriteFile(file, []byte("pem"), 0o600); err != nil {
		t.Fatal(err)
	}
	serving := []string{"--cluster-signing-kubelet-serving-cert-file=" + file,
		"--cluster-signing-kubelet-serving-key-file=" + file}
	for name, tc := range map[string]struct {
		args []string
		ok   bool
	}{
		"slices": {[]string{"--max-endpoints-per-slice=1000",
			"--endpointslice-updates-batch-period=1s"}, true},
		"slices are too large":       {[]string{"--max-endpoints-per-slice=1001"}, false},
		"empty slices":               {[]string{"--mirroring-max-endpoints-per-subset=0"}, false},
		"a signer":                   {serving, true},
		"short attach-detach period": {[]string{"--attach-detach-reconcile-sync-period=2s"}, true},
		"too often":                  {[]string{"--attach-detach-reconcile-sync-period=1s"}, false},
		"not at all": {[]string{"--attach-detach-reconcile-sync-period=0",
			"--disable-attach-detach-reconcile-sync"}, true},
		"certificate without key": {serving[:1], false},
		"signer and default":      {append([]string{"--cluster-signing-cert-file=" + file}, serving...), false},
	} {
		o, err := parse(tc.args, io.Discard)
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
		if name == "a signer" && err == nil &&
			string(o.controller.Signers[certificatesv1.KubeletServingSignerName].Cert) != "pem" {
			t.Errorf("%s: %v", name, o.controller.Signers)
		}
	}
}

// TestEmulatedVersion checks which controllers do not run if the release that is emulated does not
// have their kinds, and that invalid releases are rejected.
func TestEmulatedVersion(t *testing.T) {
	runs := func(args ...string) map[string]bool {
		o, err := parse(args, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		o.controller.RootCA = []byte("ca")
		out := map[string]bool{}
		for _, e := range controllers.Table() {
			if o.runs(e.Name) && (e.Enabled == nil || e.Enabled(o.controller)) {
				out[e.Name] = true
			}
		}
		return out
	}
	want := runs()
	for _, name := range []string{"kube-apiserver-serving-clustertrustbundle-publisher-controller",
		"podcertificaterequest-cleaner-controller", "storage-version-migrator-controller"} {
		if !want[name] {
			t.Errorf("%s does not run by default", name)
		}
		delete(want, name)
	}
	if got := runs("--emulated-version=1.36"); !maps.Equal(got, want) {
		t.Errorf("with 1.36: %v, want %v", got, want)
	}
	for arg, wrong := range map[string]string{
		"1.35":     "--emulated-version: this server cannot emulate 1.35, only 1.36 and 1.37",
		"1.38":     "--emulated-version: this server cannot emulate 1.38, only 1.36 and 1.37",
		"foo=1.36": "component not registered: foo",
		"kube=x":   `could not parse "x" as version`,
	} {
		if _, err := parse([]string{"--emulated-version=" + arg}, io.Discard); err == nil || err.Error() != wrong {
			t.Errorf("%s: %v, want %s", arg, err, wrong)
		}
	}
}

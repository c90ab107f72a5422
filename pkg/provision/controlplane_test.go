// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"os"
	"testing"

	schedulerconfig "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"
)

// TestWriteConfiguration checks the control plane's configuration files, and that a second call
// keeps them.
func TestWriteConfiguration(t *testing.T) {
	p, _ := machine(t.TempDir())
	p.LeaderElect = true
	if err := p.WriteConfiguration(); err != nil {
		t.Fatal(err)
	}
	keys, err := ReadEncryptionKeys(p.Dir.EncryptionKeys())
	if err != nil || !keys.Settled() {
		t.Fatal(keys, err)
	}
	data, err := os.ReadFile(p.Dir.schedulerConfig())
	if err != nil {
		t.Fatal(err)
	}
	var scheduler schedulerconfig.KubeSchedulerConfiguration
	if err := yaml.UnmarshalStrict(data, &scheduler); err != nil || !*scheduler.LeaderElection.LeaderElect ||
		scheduler.ClientConnection.Kubeconfig != p.Dir.Kubeconfig(Scheduler) {
		t.Errorf("%v in\n%s", err, data)
	}
	for _, file := range []string{p.Dir.auditPolicy(), p.Dir.schedulerConfig()} {
		if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.WriteConfiguration(); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{p.Dir.auditPolicy(), p.Dir.schedulerConfig()} {
		if data, err := os.ReadFile(file); err != nil || string(data) != "mine" {
			t.Errorf("%s: %q, %v", file, data, err)
		}
	}
	if again, err := ReadEncryptionKeys(p.Dir.EncryptionKeys()); err != nil || again.Keys[0] != keys.Keys[0] {
		t.Errorf("keys %v, %v", again, err)
	}
}

// TestFirstKeyOfOldStore checks that secrets that an older version stored unencrypted remain
// readable.
func TestFirstKeyOfOldStore(t *testing.T) {
	p, _ := machine(t.TempDir())
	if err := os.MkdirAll(p.Store, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := p.WriteConfiguration(); err != nil {
		t.Fatal(err)
	}
	if keys, err := ReadEncryptionKeys(p.Dir.EncryptionKeys()); err != nil || !keys.Plain {
		t.Error(keys, err)
	}
}

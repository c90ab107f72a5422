// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"log/slog"
	"os"
	"testing"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestRecords(t *testing.T) {
	type policy = kubeletconfig.ImagePullCredentialsVerificationPolicy
	const image, id = "registry.example/app:1", "sha256:1"
	secret := func(name, hash string) []kubeletconfig.ImagePullSecret {
		return []kubeletconfig.ImagePullSecret{{UID: name, Namespace: "n", Name: name, CredentialHash: hash}}
	}
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	dir := t.TempDir()
	open := func(dir string, p policy, allow ...string) *Records {
		t.Helper()
		c := &kubeletconfig.KubeletConfiguration{ImagePullCredentialsVerificationPolicy: p,
			PreloadedImagesVerificationAllowlist: allow}
		r, err := NewRecords(dir, c, clock, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	may := func(r *Records, image, id string, secrets []kubeletconfig.ImagePullSecret, want bool) {
		t.Helper()
		if got := r.MayUse(image, id, func() []credential {
			var out []credential
			for i := range secrets {
				out = append(out, credential{secret: &secrets[i]})
			}
			return out
		}); got != want {
			t.Errorf("with %v may use %s: %v", secrets, image, got)
		}
	}
	r := open(dir, "")
	may(r, image, id, nil, true) // an image without a record was on the node before records were kept
	if err := r.Begin(image); err != nil {
		t.Fatal(err)
	}
	// Begin has recorded a pull of this image name, so the image may be its result and needs
	// credentials.
	may(r, image, id, secret("a", "1"), false)
	r = open(dir, "") // as after a crash of the kubelet during the pull, which the runtime completes
	may(r, image, id, secret("a", "1"), false)
	if err := r.Begin(image); err != nil {
		t.Fatal(err)
	}
	r.Pulled(image, id, credential{secret: &secret("a", "1")[0]})
	r = open(dir, "")
	may(r, image, id, nil, false)
	may(r, image, id, secret("b", "2"), false)
	may(r, image, id, secret("b", "1"), true) // secret b has the same login as secret a
	may(r, image, id, secret("b", "3"), true) // secret b is recorded, so it stays valid after its login has changed
	may(r, image, id, secret("c", "3"), true)
	// The same image under another name needs a credential of its own.
	may(r, "registry.example/other:1", id, secret("a", "1"), false)
	if err := r.Begin(image); err != nil {
		t.Fatal(err)
	}
	r.Failed(image)
	may(r, "registry.example/app:2", "sha256:2", nil, true)

	for p, want := range map[policy]bool{
		kubeletconfig.NeverVerify: true, kubeletconfig.AlwaysVerify: false, kubeletconfig.NeverVerifyPreloadedImages: false,
	} {
		may(open(dir, p), image, id, nil, want)
		may(open(t.TempDir(), p), image, id, nil, want || p != kubeletconfig.AlwaysVerify)
	}
	for allow, want := range map[string]bool{"registry.example/app": true, "registry.example/*": true,
		"registry.example/ap": false, "registry.example/a/*": false} {
		may(open(dir, kubeletconfig.NeverVerifyAllowlistedImages, allow), image, id, nil, want)
	}
	r = open(dir, kubeletconfig.AlwaysVerify)
	if err := r.Begin(image); err != nil {
		t.Fatal(err)
	}
	r.Pulled(image, id, credential{})
	may(r, image, id, nil, true) // the image was pulled without credentials

	r.Prune([]string{"sha256:9"}, clock.Now()) // the record is newer than the list of images, so it stays
	may(r, image, id, nil, true)
	clock.Step(time.Minute)
	r.Prune([]string{id}, clock.Now())
	may(r, image, id, nil, true)
	r.Prune(nil, clock.Now())
	may(r, image, id, nil, false)
	if err := os.WriteFile(file(r.pulled, id), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	may(open(dir, ""), image, id, secret("a", "1"), false)

	for _, bad := range []kubeletconfig.KubeletConfiguration{
		{ImagePullCredentialsVerificationPolicy: "x"},
		{PreloadedImagesVerificationAllowlist: []string{"a/*/b"}}, {PreloadedImagesVerificationAllowlist: []string{"a:1"}},
	} {
		if _, err := NewRecords(dir, &bad, clock, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

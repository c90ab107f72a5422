// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// entry is the login for one registry in a docker configuration file.
type entry struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Auth     string `json:"auth"`
	Email    string `json:"email"`
}

// credential is a login, with the secret or the service account from which it comes. If it has
// neither, every pod of the node may use it.
type credential struct {
	auth    *runtimeapi.AuthConfig
	secret  *kubeletconfig.ImagePullSecret
	account *kubeletconfig.ImagePullServiceAccount
}

// login is a credential and its key: the registry or repository to which the credential applies.
type login struct {
	key string
	credential
}

func credentialOf(s *v1.Secret, auth *runtimeapi.AuthConfig) credential {
	sum := sha256.Sum256([]byte(auth.GetUsername() + "\x00" + auth.GetPassword()))
	return credential{auth: auth, secret: &kubeletconfig.ImagePullSecret{
		UID: string(s.UID), Namespace: s.Namespace, Name: s.Name, CredentialHash: hex.EncodeToString(sum[:]),
	}}
}

// credentials returns the logins for the image's registry. The logins of the pod's pull secrets
// come before those of the node's credential plugins; within each group the most specific login is
// first. A secret that does not exist or cannot be parsed is skipped.
func (p *Puller) credentials(ctx context.Context, pod *v1.Pod, image string) []credential {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return nil
	}
	var own []login
	for _, ref := range pod.Spec.ImagePullSecrets {
		secret, err := p.cfg.Secrets.Secret(ctx, pod.Namespace, ref.Name)
		if err != nil {
			continue
		}
		for key, e := range logins(secret) {
			if matchesRegistry(key, named.Name()) {
				own = append(own, login{key, credentialOf(secret, e.config())})
			}
		}
	}
	var out []credential
	for _, list := range [][]login{own, p.cfg.Plugins.logins(ctx, pod, named.Name())} {
		slices.SortStableFunc(list, func(a, b login) int { return strings.Compare(b.key, a.key) })
		for _, l := range list {
			out = append(out, l.credential)
		}
	}
	return out
}

// missingSecrets returns the names of those pull secrets of the pod that cannot be read.
func (p *Puller) missingSecrets(ctx context.Context, pod *v1.Pod) []string {
	var missing []string
	for _, ref := range pod.Spec.ImagePullSecrets {
		if _, err := p.cfg.Secrets.Secret(ctx, pod.Namespace, ref.Name); err != nil {
			missing = append(missing, ref.Name)
		}
	}
	return missing
}

func logins(s *v1.Secret) map[string]entry {
	var out map[string]entry
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
		var file struct {
			Auths map[string]entry `json:"auths"`
		}
		if json.Unmarshal(s.Data[v1.DockerConfigJsonKey], &file) == nil {
			out = file.Auths
		}
	case v1.SecretTypeDockercfg:
		if json.Unmarshal(s.Data[v1.DockerConfigKey], &out) != nil {
			return nil
		}
	}
	return out
}

func (e entry) config() *runtimeapi.AuthConfig {
	a := &runtimeapi.AuthConfig{Username: e.Username, Password: e.Password}
	if e.Auth == "" {
		return a
	}
	if b, err := base64.StdEncoding.DecodeString(e.Auth); err == nil {
		if user, password, ok := strings.Cut(string(b), ":"); ok {
			a.Username, a.Password = user, password
		}
	}
	return a
}

// matchesRegistry reports whether a login's key applies to an image. The key is a URL or
// registry[/path]. The labels of its host name may be patterns, such as *. image is a full image
// name.
func matchesRegistry(key, image string) bool {
	if !strings.Contains(key, "://") {
		key = "https://" + key
	}
	u, err := url.Parse(key)
	if err != nil {
		return false
	}
	host, rest, _ := strings.Cut(image, "/")
	want := u.Host
	if want == "index.docker.io" {
		want = "docker.io"
	}
	if !matchesHost(want, host) {
		return false
	}
	prefix := strings.TrimPrefix(u.Path, "/")
	for _, version := range []string{"v1", "v2"} { // old keys end in the version of the registry's API
		if prefix == version || strings.HasPrefix(prefix, version+"/") {
			prefix = strings.TrimPrefix(prefix[len(version):], "/")
			break
		}
	}
	return strings.HasPrefix(rest, prefix)
}

// matchesHost compares a host name with a pattern label by label. Each label of the pattern may
// contain wildcards; the port must be equal.
func matchesHost(pattern, host string) bool {
	pattern, wantPort, _ := strings.Cut(pattern, ":")
	host, port, _ := strings.Cut(host, ":")
	p, h := strings.Split(pattern, "."), strings.Split(host, ".")
	if wantPort != port || len(p) != len(h) {
		return false
	}
	for i := range p {
		if ok, err := path.Match(p[i], h[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

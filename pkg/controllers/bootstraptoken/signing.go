// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstraptoken

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// SigningName is the name of the controller that signs the ConfigMap cluster-info.
const SigningName = "bootstrap-signer-controller"

// Names of the signed ConfigMap and its keys, as in Kubernetes.
const (
	infoName        = "cluster-info"
	infoKey         = "kubeconfig"
	signaturePrefix = "jws-kubeconfig-"
)

const infoObject = metav1.NamespacePublic + "/" + infoName

type signing struct {
	controller.Deps
	queue   *controller.Queue
	secrets corelisters.SecretLister
	infos   corelisters.ConfigMapLister
}

// NewSigning returns the controller that signs the ConfigMap cluster-info with the secret of each
// bootstrap token.
func NewSigning(d controller.Deps) (controller.Controller, error) {
	core := d.Informers.Core().V1()
	c := &signing{Deps: d, secrets: core.Secrets().Lister(), infos: core.ConfigMaps().Lister()}
	c.queue = controller.NewQueue(SigningName, d.Clock, d.Log, 1, c.sync)
	return c, errors.Join(
		controller.OnChange(core.ConfigMaps().Informer(), func(old, o *v1.ConfigMap) {
			if controller.Key(controller.Latest(old, o)) == infoObject {
				c.queue.Add(infoObject)
			}
		}),
		controller.OnChange(core.Secrets().Informer(), func(old, o *v1.Secret) {
			if isToken(controller.Latest(old, o)) {
				c.queue.Add(infoObject)
			}
		}),
	)
}

// Run implements controller.Controller.
func (c *signing) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *signing) sync(ctx context.Context, key string) error {
	info, err := c.infos.ConfigMaps(metav1.NamespacePublic).Get(infoName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	tokens, err := c.secrets.Secrets(metav1.NamespaceSystem).List(labels.Everything())
	if err != nil {
		return err
	}
	now := c.Clock.Now()
	data, err := withSignatures(info.Data, tokens, now)
	if err != nil {
		return err
	}
	if next := nextExpiry(tokens, now); next > 0 {
		c.queue.AddAfter(key, next)
	}
	if maps.Equal(data, info.Data) {
		return nil
	}
	info = info.DeepCopy()
	info.Data = data
	if _, err := c.Client.CoreV1().ConfigMaps(info.Namespace).Update(ctx, info, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("signatures: %w", err)
	}
	return nil
}

// withSignatures returns the data with one signature by each token that may sign now. It removes
// all other signatures.
func withSignatures(data map[string]string, tokens []*v1.Secret, now time.Time) (map[string]string, error) {
	out := map[string]string{}
	for k, v := range data {
		if !strings.HasPrefix(k, signaturePrefix) {
			out[k] = v
		}
	}
	content, there := data[infoKey]
	if !there {
		return out, nil
	}
	for _, s := range tokens {
		id, secret, ok := signingKey(s, now)
		if !ok {
			continue
		}
		signature, err := sign(content, id, secret)
		if err != nil {
			return nil, fmt.Errorf("signature by %s: %w", id, err)
		}
		out[signaturePrefix+id] = signature
	}
	return out, nil
}

// sign returns a detached JSON Web Signature (RFC 7515) of the content, made with the token's
// secret. It does not use a library, because libraries reject keys as short as a token's secret.
func sign(content, id, secret string) (string, error) {
	header, err := json.Marshal(struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
	}{"HS256", id})
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	protected := encode(header)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(protected + "." + encode([]byte(content))))
	return protected + ".." + encode(mac.Sum(nil)), nil
}

// nextExpiry returns the time until the first of the tokens that may sign expires, or 0 if none of
// them expires.
func nextExpiry(tokens []*v1.Secret, now time.Time) time.Duration {
	var next time.Duration
	for _, s := range tokens {
		if _, _, ok := signingKey(s, now); !ok {
			continue
		}
		if at, forever := expiry(s); !forever && (next == 0 || at.Sub(now) < next) {
			next = at.Sub(now)
		}
	}
	return next
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
)

// AuthenticationConfig adds data to the ConfigMap kube-system/extension-apiserver-authentication. By
// it, extension servers learn which CAs and front proxies the API servers trust. The values of other
// servers, which may have other CAs, stay until their certificates have expired.
func AuthenticationConfig(
	ctx context.Context, client kubernetes.Interface, data map[string]string, now time.Time,
) error {
	const name = "extension-apiserver-authentication"
	api := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	cur, err := api.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}, Data: data,
		}, metav1.CreateOptions{})
		return named("config map", name, err)
	}
	if err != nil {
		return fmt.Errorf("config map %s: %w", name, err)
	}
	want := cur.DeepCopy()
	if want.Data == nil {
		want.Data = map[string]string{}
	}
	for k, v := range data {
		combine := combinedNames
		if strings.HasSuffix(k, "-ca-file") {
			combine = func(a, b string) (string, error) { return combinedCAs(a, b, now) }
		}
		combined, err := combine(cur.Data[k], v)
		if err != nil {
			return fmt.Errorf("config map %s: %s: %w", name, k, err)
		}
		if want.Data[k] = combined; combined == "" { // all certificates have expired
			delete(want.Data, k)
		}
	}
	if equality.Semantic.DeepEqual(cur.Data, want.Data) {
		return nil
	}
	_, err = api.Update(ctx, want, metav1.UpdateOptions{})
	if tooLarge(err) {
		// As in Kubernetes, delete a config map that has become too large. Each server then creates
		// it again or adds its own values to it.
		err = errors.Join(err, ignoreNotFound(api.Delete(ctx, name, metav1.DeleteOptions{})))
	}
	return named("config map", name, err)
}

func tooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) ||
		apierrors.IsInvalid(err) && strings.Contains(err.Error(), "Too long")
}

// combinedNames returns a list in JSON with the elements of two lists in JSON, each once. An empty
// text is an empty list.
func combinedNames(stored, own string) (string, error) {
	all := []string{}
	for _, text := range []string{stored, own} {
		var list []string
		if text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return "", err
		}
		for _, name := range list {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	b, err := json.Marshal(all)
	return string(b), err
}

// expiredFor is how long expired certificates stay in the ConfigMap, as in Kubernetes.
const expiredFor = 5 * time.Minute

// combinedCAs returns the certificates of two texts in PEM, each once, without those that have
// expired.
func combinedCAs(stored, own string, now time.Time) (string, error) {
	var all []*x509.Certificate
	for _, text := range []string{stored, own} {
		if text == "" {
			continue
		}
		list, err := cert.ParseCertsPEM([]byte(text))
		if err != nil {
			return "", err
		}
		for _, c := range list {
			if c.NotAfter.After(now.Add(-expiredFor)) && !slices.ContainsFunc(all, c.Equal) {
				all = append(all, c)
			}
		}
	}
	b, err := cert.EncodeCertificates(all...)
	return string(b), err
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
)

const (
	trackingName = "kube-apiserver-legacy-service-account-token-tracking"
	trackingKey  = "since"
)

// TokenTracking maintains the config map that contains the date since which the server records uses
// of tokens in secrets. A token without a recorded use has not been used since that date.
func TokenTracking(ctx context.Context, client kubernetes.Interface, clk clock.Clock) error {
	api := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	today := clk.Now().UTC().Format(time.DateOnly)
	cm, err := api.Get(ctx, trackingName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: trackingName},
			Data:       map[string]string{trackingKey: today},
		}, metav1.CreateOptions{})
		return named("config map", trackingName, ignoreExists(err))
	}
	if err != nil {
		return named("config map", trackingName, err)
	}
	if _, err := time.Parse(time.DateOnly, cm.Data[trackingKey]); err == nil {
		return nil
	}
	if cm.Data == nil {
		cm.Data = map[string]string{}
	}
	cm.Data[trackingKey] = today
	_, err = api.Update(ctx, cm, metav1.UpdateOptions{})
	return named("config map", trackingName, err)
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command operator is a typical operator for the e2e tests, in which it runs in a pod. It uses
// controller-runtime, and has a custom resource with two versions, conversion and admission
// webhooks, leader election, and certificates that it creates itself.
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"keelson.dev/keelson/test/e2e/operator/site"
)

func main() {
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "operator:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ctrl.SetLogger(zap.New())
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	site.AddToScheme(scheme)
	namespace := os.Getenv("POD_NAMESPACE")
	cert, bundle, err := certificate("operator." + namespace + ".svc")
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	direct, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	if err := publish(ctx, direct, bundle); err != nil {
		return fmt.Errorf("publish certificate: %w", err)
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, LeaderElection: true, LeaderElectionID: "operator.web.example.com",
		LeaderElectionReleaseOnCancel: true,
		HealthProbeBindAddress:        ":8081",
		WebhookServer: webhook.NewServer(webhook.Options{Port: 9443, TLSOpts: []func(*tls.Config){
			func(c *tls.Config) { c.Certificates = []tls.Certificate{cert} },
			func(c *tls.Config) {
				c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil }
			},
		}}),
	})
	if err != nil {
		return err
	}
	if err := ctrl.NewControllerManagedBy(mgr).For(&site.Site{}).Owns(&appsv1.Deployment{}).Complete(
		&reconciler{mgr.GetClient(), scheme}); err != nil {
		return err
	}
	if err := ctrl.NewWebhookManagedBy(mgr, &site.Site{}).WithDefaulter(defaults{}).WithValidator(
		rules{}).Complete(); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("webhooks", mgr.GetWebhookServer().StartedChecker()); err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

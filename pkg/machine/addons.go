// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/machine/config"
	"keelson.dev/keelson/pkg/provision"
	build "keelson.dev/keelson/pkg/release"
)

// OwnRelease returns the name of the release that the running program belongs to.
func OwnRelease() string {
	if dir, err := release(); err == nil {
		return filepath.Base(dir)
	}
	return build.Version
}

// Program returns the path of the program ctl of an installed release.
func Program(release string) string { return filepath.Join(releases, release, "bin", "ctl") }

// addonsLimit is how long UpdateAddons tries. An API server may just have been restarted.
const addonsLimit = time.Minute

// UpdateAddons brings the add-ons of a cluster to the state that this release wants. It returns the objects that
// it has not changed, with the fields that other clients have changed there (see provision.UpdateAddons).
func UpdateAddons(ctx context.Context, rc *rest.Config, clk clock.Clock) (kept []string, err error) {
	rc = rest.CopyConfig(rc)
	rc.QPS = -1
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	objects, err := dynamic.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	var missing error
	err = provision.Wait(ctx, clk, addonsLimit, func(ctx context.Context) error {
		of, err := sharedCluster(ctx, client)
		if err == nil {
			kept, err = of.UpdateAddons(ctx, objects, clk)
		} else if apierrors.IsNotFound(err) {
			missing, err = err, nil // it does not appear later
		}
		return err
	})
	if err = errors.Join(err, missing); err != nil {
		return nil, fmt.Errorf("add-ons: %w", err)
	}
	return kept, nil
}

// sharedCluster returns the description of a cluster from what its machines have in common.
func sharedCluster(ctx context.Context, client kubernetes.Interface) (*provision.Cluster, error) {
	c, err := sharedConfiguration(ctx, client)
	if err != nil {
		return nil, err
	}
	of, err := cluster(c)
	if err != nil {
		return nil, err
	}
	// The first machine has decided this.
	dns, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "coredns", metav1.GetOptions{})
	if apierrors.IsNotFound(err) { // an administrator uses another DNS server
		of.NoDNS = true
		return of, nil
	}
	if err != nil {
		return nil, fmt.Errorf("configuration of CoreDNS: %w", err)
	}
	of.ForwardDNS = strings.Contains(dns.Data["Corefile"], "forward ")
	return of, nil
}

// sharedConfiguration returns what all machines of a cluster have in common.
func sharedConfiguration(ctx context.Context, client kubernetes.Interface) (*config.KeelsonConfiguration, error) {
	m, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, configMap, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("configuration of the cluster: %w", err)
	}
	shared, err := config.Decode([]byte(m.Data[configKey]))
	if err != nil {
		return nil, fmt.Errorf("configuration of the cluster: %w", err)
	}
	return shared, nil
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	configv1alpha1 "k8s.io/component-base/config/v1alpha1"
)

// ConfigzPath is the path of the Configz handler.
const ConfigzPath = "/configz"

// Configz returns a handler that serves the configuration with which a process runs, as JSON. name
// is the name that Kubernetes gives the configuration.
func Configz(name string, config any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body, err := json.Marshal(map[string]any{name: config})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(body) // fails if the client has closed the connection
	})
}

// Configuration returns the leader election settings for a component's configuration, with the
// values of the flags.
func (f *ElectionFlags) Configuration() configv1alpha1.LeaderElectionConfiguration {
	enabled := f.Enabled
	return configv1alpha1.LeaderElectionConfiguration{
		LeaderElect: &enabled, LeaseDuration: metav1.Duration{Duration: f.LeaseDuration},
		RenewDeadline: metav1.Duration{Duration: f.RenewDeadline},
		RetryPeriod:   metav1.Duration{Duration: f.RetryPeriod}, ResourceLock: "leases",
		ResourceName: f.ResourceName, ResourceNamespace: f.ResourceNamespace,
	}
}

// ClientConfiguration returns the client connection settings in a component's configuration.
func ClientConfiguration(kubeconfig string, rc *rest.Config) configv1alpha1.ClientConnectionConfiguration {
	return configv1alpha1.ClientConnectionConfiguration{
		Kubeconfig: kubeconfig, AcceptContentTypes: rc.AcceptContentTypes, ContentType: rc.ContentType,
		QPS: rc.QPS, Burst: int32(rc.Burst),
	}
}

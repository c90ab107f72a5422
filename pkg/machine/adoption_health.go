// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"

	"keelson.dev/keelson/pkg/machine/adopt"
	"keelson.dev/keelson/pkg/machine/config"
	"keelson.dev/keelson/pkg/provision"
)

// Returned implements adopt.Machine.
func (m *adopter) Returned(ctx context.Context) error {
	return m.returned(ctx, provision.KubeletKubeconfig)
}

// returned waits until the control plane and the node are healthy that the kubelet with a kubeconfig uses. That they
// cannot be checked is no error, because the manifests are back.
func (m *adopter) returned(ctx context.Context, kubeconfig string) error {
	began := m.Clock.Now()
	var w *watcher
	if w, m.unchecked = newWatcher(kubeconfig, ""); m.unchecked != nil {
		return nil
	}
	err := provision.Wait(ctx, m.Clock, returnLimit, func(ctx context.Context) error {
		err := w.healthy(ctx, began)
		if apierrors.IsUnauthorized(err) {
			m.unchecked = err
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("not ready after %s; see the logs of the kubelet and those in /var/log/pods: %w", returnLimit, err)
	}
	return nil
}

// watcher checks a control plane and this machine's node with the credentials of the kubelet. The kubelet renews
// them, while those of an administrator may have expired, or be kept at another place.
type watcher struct {
	client kubernetes.Interface
	node   string
}

// newWatcher reads a kubelet's kubeconfig. server is the URL of the API server, or "" for the one in the kubeconfig.
func newWatcher(kubeconfig, server string) (*watcher, error) {
	rc, err := clientcmd.BuildConfigFromFlags(server, kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubelet's kubeconfig: %w", err)
	}
	rc.QPS = -1
	if err := rest.LoadTLSFiles(rc); err != nil {
		return nil, fmt.Errorf("%s: %w", kubeconfig, err)
	}
	certs, err := cert.ParseCertsPEM(rc.CertData)
	if err != nil {
		return nil, fmt.Errorf("%s: certificate: %w", kubeconfig, err)
	}
	w := &watcher{}
	user := certs[0].Subject.CommonName
	var ok bool
	if w.node, ok = strings.CutPrefix(user, nodeUser); !ok {
		return nil, fmt.Errorf("%s: user %q: %w", kubeconfig, user, errNoNode)
	}
	if w.client, err = kubernetes.NewForConfig(rc); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return w, nil
}

// nodeUser is the prefix of the names of kubelets, before that of the node.
const nodeUser = "system:node:"

var errNoNode = errors.New("not the name of a kubelet")

// healthy returns nil if the API server is ready, and so is the node, whose kubelet has reached it since a time.
func (w *watcher) healthy(ctx context.Context, since time.Time) error {
	if err := (administrator{client: w.client}).ready(ctx); err != nil {
		return err
	}
	return kubeletHealthy(ctx, w.client, w.node, since)
}

// healthURL returns the URL at which the controller manager or the scheduler says whether it is healthy. It returns ""
// for other programs, and for one that has no server.
func healthURL(p *adopt.Program) string {
	ports := map[string]int{
		provision.ControllerManager: config.ControllerManagerPort, provision.Scheduler: config.SchedulerPort,
	}
	number, ok := ports[p.Name]
	port := cmp.Or(p.Value("secure-port"), strconv.Itoa(number))
	if !ok || port == "0" {
		return ""
	}
	address := p.Value("bind-address")
	if ip := net.ParseIP(address); ip == nil || ip.IsUnspecified() {
		address = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(address, port) + "/healthz"
}

var errUnhealthy = errors.New("it says that it is not healthy")

// answersHealthy returns nil if a program on this machine says at a URL that it is healthy.
func answersHealthy(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // the program signs its own certificate, as in Kubernetes
	}}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // nothing is expected any more
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxHealth)) // it only explains the status
		return fmt.Errorf("%w: %s: %s", errUnhealthy, resp.Status, bytes.TrimSpace(text))
	}
	return nil
}

// maxHealth is the maximum number of bytes of an answer that answersHealthy reads.
const maxHealth = 4096

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	translator "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/kubernetes"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/rest"
	"keelson.dev/keelson/pkg/halfclose"
	"keelson.dev/keelson/pkg/relay"
)

// Pods connects clients to containers, through the kubelet of the pod's node.
type Pods struct {
	Client     kubernetes.Interface
	Kubelets   *Kubelets
	Authorizer authorizer.UnconditionalAuthorizer
	Clock      clock.Clock
	// MaxBytesPerSecond limits each direction of an upgraded connection to a kubelet. 0 means no
	// limit.
	MaxBytesPerSecond int64
}

// options decodes a request's options from its query.
func options(r *http.Request, into runtime.Object) error {
	if err := decodeQuery(r.URL.Query(), into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// container returns the name of the container to use: name, or the pod's only container if name is
// empty. It returns an error if the pod does not have container name, or if name is empty and the
// pod has several containers.
func container(name string, pod *corev1.Pod) (string, error) {
	var names []string
	for _, c := range pod.Spec.InitContainers {
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		names = append(names, c.Name)
	}
	if name != "" {
		for _, n := range names {
			if n == name {
				return name, nil
			}
		}
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
	}
	switch len(pod.Spec.Containers) {
	case 1:
		return pod.Spec.Containers[0].Name, nil
	case 0:
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s", pod.Name))
	}
	return "", apierrors.NewBadRequest(
		fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s", pod.Name, names))
}

// Log handles pods/log.
func (p *Pods) Log(w http.ResponseWriter, r *http.Request, req *resource.Request) error {
	opts := &corev1.PodLogOptions{}
	if err := options(r, opts); err != nil {
		return err
	}
	if errs := checkLog(opts, r.URL.Query()); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "PodLogOptions"}, req.Name, errs)
	}
	pod, err := p.Client.CoreV1().Pods(req.Namespace).Get(r.Context(), req.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	name, err := container(opts.Container, pod)
	if err != nil {
		return err
	}
	const streamer = "rest.LocationStreamer"
	if pod.Spec.NodeName == "" {
		if err := req.Streams(r, streamer); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Content-Type", "text/plain")
	k, err := p.kubelet(r.Context(), pod)
	if err != nil {
		return err
	}
	if err := req.Streams(r, streamer); err != nil {
		return err
	}
	transport := p.Kubelets.transports().verified
	if opts.InsecureSkipTLSVerifyBackend {
		transport = p.Kubelets.transports().insecure
	}
	return stream(w, r, k.url("/containerLogs/"+pod.Namespace+"/"+pod.Name+"/"+name, logQuery(opts)), transport, req.Name)
}

func checkLog(o *corev1.PodLogOptions, q url.Values) field.ErrorList {
	var errs field.ErrorList
	if o.TailLines != nil && *o.TailLines < 0 {
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), *o.TailLines, "must be greater than or equal to 0"))
	}
	if o.LimitBytes != nil && *o.LimitBytes < 1 {
		errs = append(errs, field.Invalid(field.NewPath("limitBytes"), *o.LimitBytes, "must be greater than 0"))
	}
	switch {
	case o.SinceSeconds != nil && o.SinceTime != nil:
		errs = append(errs, field.Forbidden(field.NewPath(""),
			"at most one of `sinceTime` or `sinceSeconds` may be specified"))
	case o.SinceSeconds != nil && *o.SinceSeconds < 1:
		errs = append(errs, field.Invalid(field.NewPath("sinceSeconds"), *o.SinceSeconds, "must be greater than 0"))
	}
	if q.Has("stream") { // rejected even if empty, because the feature gate for this option is off
		errs = append(errs, field.Forbidden(field.NewPath("stream"), "may not be specified"))
	}
	return errs
}

func logQuery(o *corev1.PodLogOptions) url.Values {
	q := url.Values{}
	flag := func(name string, set bool) {
		if set {
			q.Set(name, "true")
		}
	}
	number := func(name string, n *int64) {
		if n != nil {
			q.Set(name, strconv.FormatInt(*n, 10))
		}
	}
	flag("follow", o.Follow)
	flag("previous", o.Previous)
	flag("timestamps", o.Timestamps)
	number("sinceSeconds", o.SinceSeconds)
	number("tailLines", o.TailLines)
	number("limitBytes", o.LimitBytes)
	if o.SinceTime != nil {
		q.Set("sinceTime", o.SinceTime.Format(time.RFC3339))
	}
	return q
}

// stream copies a kubelet's answer to the client as it arrives. A WebSocket client gets messages.
// The first message is empty and marks the beginning.
func stream(w http.ResponseWriter, r *http.Request, location *url.URL, transport http.RoundTripper, name string) error {
	out, err := http.NewRequestWithContext(r.Context(), http.MethodGet, location.String(), nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	resp, err := client.Do(out)
	if err != nil {
		return err // returned without a reason, as in Kubernetes
	}
	defer resp.Body.Close() // the body has been read, or is not needed
	if resp.StatusCode != http.StatusOK {
		return backendError(resp, name)
	}
	if wsstream.IsWebSocketRequest(r) {
		// Without this buffer, the reader could get the last bytes together with the end of the body,
		// and would drop these bytes. An error means that the client or the kubelet has closed the
		// connection.
		body := bufio.NewReaderSize(resp.Body, 16<<10)
		_ = wsstream.NewReader(body, true, wsstream.NewDefaultReaderProtocols()).Copy(w, r)
		return nil
	}
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	_ = flush()
	buf := make([]byte, 16<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return nil // the client has closed the connection
			}
			_ = flush()
		}
		if err != nil {
			return nil // the header has been sent, so no error can be reported
		}
	}
}

// backendError converts a kubelet's error answer to a Status.
func backendError(resp *http.Response, name string) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 2048))
	message := string(body)
	if err != nil {
		message = "the backend's answer could not be read"
	}
	switch {
	case resp.StatusCode == http.StatusInternalServerError:
		return apierrors.NewInternalError(errors.New(message))
	case resp.StatusCode == http.StatusBadRequest:
		return apierrors.NewBadRequest(message)
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return apierrors.NewGenericServerResponse(http.StatusBadGateway, "get",
			schema.GroupResource{Resource: "pods/log"}, name, "the backend answered with a redirect", 0, true)
	}
	return apierrors.NewGenericServerResponse(resp.StatusCode, "", schema.GroupResource{Resource: "pods/log"},
		name, message, 0, false)
}

// kubelet returns the kubelet that runs a pod. If the node does not exist, the error is that a pod
// with the node's name was not found, as in Kubernetes.
func (p *Pods) kubelet(ctx context.Context, pod *corev1.Pod) (kubelet, error) {
	k, err := p.Kubelets.of(ctx, pod.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		err = apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, pod.Spec.NodeName)
	}
	return k, err
}

// location returns the URL of a container's stream at its kubelet.
func (p *Pods) location(ctx context.Context, req *resource.Request, name, path string,
	query url.Values) (*url.URL, error) {
	pod, err := p.Client.CoreV1().Pods(req.Namespace).Get(ctx, req.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if path != "portForward" {
		if name, err = container(name, pod); err != nil {
			return nil, err
		}
		name = "/" + name
	}
	if pod.Spec.NodeName == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", req.Name))
	}
	k, err := p.kubelet(ctx, pod)
	if err != nil {
		return nil, err
	}
	return k.url("/"+path+"/"+pod.Namespace+"/"+pod.Name+name, query), nil
}

// mayCreate returns an error unless the user may create the requested subresource. It is needed for
// WebSockets, which begin with a GET: the request was authorized only as a read.
func mayCreate(ctx context.Context, authz authorizer.UnconditionalAuthorizer) error {
	attrs, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if attrs.GetVerb() == "create" || authz == nil {
		return nil
	}
	create := asCreate{attrs}
	decision, reason, err := authz.Authorize(ctx, create)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return responsewriters.ForbiddenStatusError(create, reason)
}

type asCreate struct{ authorizer.Attributes }

// GetVerb returns "create".
func (asCreate) GetVerb() string { return "create" }

func streams(stdin, stdout, stderr, tty bool) url.Values {
	q := url.Values{}
	for _, s := range []struct {
		name string
		set  bool
	}{{corev1.ExecStdinParam, stdin}, {corev1.ExecStdoutParam, stdout}, {corev1.ExecStderrParam, stderr},
		{corev1.ExecTTYParam, tty}} {
		if s.set {
			q.Set(s.name, "1")
		}
	}
	return q
}

// Exec handles the subresource exec of pods.
func (p *Pods) Exec(w http.ResponseWriter, r *http.Request, req *resource.Request) error {
	opts := &corev1.PodExecOptions{}
	if err := options(r, opts); err != nil {
		return err
	}
	q := streams(opts.Stdin, opts.Stdout, opts.Stderr, opts.TTY)
	for _, c := range opts.Command {
		q.Add(corev1.ExecCommandParam, c)
	}
	return p.terminal(w, r, req, opts, opts.Container, "exec", q,
		relay.Options{Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr, TTY: opts.TTY})
}

// Attach handles the subresource attach of pods.
func (p *Pods) Attach(w http.ResponseWriter, r *http.Request, req *resource.Request) error {
	opts := &corev1.PodAttachOptions{}
	if err := options(r, opts); err != nil {
		return err
	}
	q := streams(opts.Stdin, opts.Stdout, opts.Stderr, opts.TTY)
	return p.terminal(w, r, req, opts, opts.Container, "attach", q,
		relay.Options{Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr, TTY: opts.TTY})
}

// terminal handles exec and attach. For clients with version 5 of the WebSocket protocol, it
// translates to a protocol that every kubelet supports.
func (p *Pods) terminal(w http.ResponseWriter, r *http.Request, req *resource.Request, opts runtime.Object,
	name, path string, q url.Values, o relay.Options) error {
	if err := mayCreate(r.Context(), p.Authorizer); err != nil {
		return err
	}
	if err := req.Connect(r, opts); err != nil {
		return err
	}
	location, err := p.location(r.Context(), req, name, path, q)
	if err != nil {
		return err
	}
	w = halfclose.Linger(w, p.Clock, halfclose.Patience)
	if !wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		p.upgrading(location).ServeHTTP(w, r)
		return nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	conn := &relay.Client{ResponseWriter: w, Gone: cancel}
	defer conn.Close()
	target := relay.Target{URL: location, Transport: p.Kubelets.transports().verified, BytesPerSecond: p.MaxBytesPerSecond}
	target.ServeWebSocket(conn, r.WithContext(ctx), o)
	return nil
}

// PortForward handles the subresource portforward of pods.
func (p *Pods) PortForward(w http.ResponseWriter, r *http.Request, req *resource.Request) error {
	opts := &corev1.PodPortForwardOptions{}
	if err := options(r, opts); err != nil {
		return err
	}
	if err := mayCreate(r.Context(), p.Authorizer); err != nil {
		return err
	}
	if err := req.Connect(r, opts); err != nil {
		return err
	}
	q := url.Values{}
	if len(opts.Ports) > 0 {
		var ports []string
		for _, n := range opts.Ports {
			ports = append(ports, strconv.Itoa(int(n)))
		}
		q.Set(corev1.PortHeader, strings.Join(ports, ","))
	}
	location, err := p.location(r.Context(), req, "", "portForward", q)
	if err != nil {
		return err
	}
	handler := p.upgrading(location)
	handler = translator.NewTranslatingHandler(handler, translator.NewTunnelingHandler(handler),
		wsstream.IsWebSocketRequestWithTunnelingProtocol)
	handler.ServeHTTP(halfclose.Linger(w, p.Clock, halfclose.Patience), r)
	return nil
}

// upgrading returns a handler that upgrades a connection to a kubelet.
func (p *Pods) upgrading(location *url.URL) http.Handler {
	h := proxy.NewUpgradeAwareHandler(location, p.Kubelets.transports().streams, false, true, responder{})
	h.MaxBytesPerSec = p.MaxBytesPerSecond
	return h
}

// responder writes errors of the proxy library to the client.
type responder struct{}

// Error answers with err as a Status.
func (responder) Error(w http.ResponseWriter, r *http.Request, err error) {
	rest.WriteError(w, r, err)
}

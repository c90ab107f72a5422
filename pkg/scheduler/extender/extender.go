// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package extender calls HTTP extenders: separate programs that filter and score nodes, choose
// victims of preemption, or bind pods. Their protocol is defined by
// k8s.io/kube-scheduler/extender/v1.
//
// An extender may hang or return wrong responses. Calls have a timeout, and the size of responses is
// limited. Filter returns an error if the response has a node that was not in the request. Callers of
// Prioritize and Preempt must expect such nodes.
package extender

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	configv1 "k8s.io/kube-scheduler/config/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

const (
	defaultTimeout = 5 * time.Second
	maxAnswer      = 64 << 20
)

// Extender is one configured extender. It is safe for concurrent use.
type Extender struct {
	config  configv1.Extender
	client  *http.Client
	managed map[v1.ResourceName]bool
}

// New returns the extender for a configuration.
func New(c configv1.Extender) (*Extender, error) {
	switch {
	case c.URLPrefix == "":
		return nil, errors.New("urlPrefix: required")
	case c.PrioritizeVerb != "" && c.Weight <= 0:
		return nil, errors.New("weight: must be positive if prioritizeVerb is set")
	}
	transport, err := transport(c)
	if err != nil {
		return nil, err
	}
	e := &Extender{config: c, client: &http.Client{Transport: transport, Timeout: c.HTTPTimeout.Duration},
		managed: map[v1.ResourceName]bool{}}
	if e.client.Timeout <= 0 {
		e.client.Timeout = defaultTimeout
	}
	for _, r := range c.ManagedResources {
		e.managed[v1.ResourceName(r.Name)] = true
	}
	return e, nil
}

func transport(c configv1.Extender) (http.RoundTripper, error) {
	var tls rest.TLSClientConfig
	if t := c.TLSConfig; t != nil {
		tls = rest.TLSClientConfig{
			Insecure: t.Insecure, ServerName: t.ServerName, CertFile: t.CertFile, KeyFile: t.KeyFile, CAFile: t.CAFile,
			CertData: t.CertData, KeyData: t.KeyData, CAData: t.CAData,
		}
	}
	if c.EnableHTTPS && tls.CAFile == "" && len(tls.CAData) == 0 {
		tls.Insecure = true // as in Kubernetes, do not verify the server's certificate
	}
	config, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: tls})
	if err != nil {
		return nil, fmt.Errorf("tlsConfig: %w", err)
	}
	return &http.Transport{TLSClientConfig: config, MaxIdleConnsPerHost: 4}, nil
}

// Name returns the extender's URL.
func (e *Extender) Name() string { return e.config.URLPrefix }

// Ignorable reports whether scheduling continues without the extender if a call fails.
func (e *Extender) Ignorable() bool { return e.config.Ignorable }

// Weight returns the weight of the extender's scores.
func (e *Extender) Weight() int64 { return e.config.Weight }

// Binds reports whether the extender binds pods.
func (e *Extender) Binds() bool { return e.config.BindVerb != "" }

// Preempts reports whether the extender chooses victims of preemption.
func (e *Extender) Preempts() bool { return e.config.PreemptVerb != "" }

// IgnoredResources returns the managed resources that the scheduler itself must not check.
func (e *Extender) IgnoredResources() []string {
	var out []string
	for _, r := range e.config.ManagedResources {
		if r.IgnoredByScheduler {
			out = append(out, r.Name)
		}
	}
	return out
}

// Interested reports whether the extender must be called for a pod: the pod requests a resource
// that the extender manages, or the extender is not limited to certain resources.
func (e *Extender) Interested(pod *v1.Pod) bool {
	if len(e.managed) == 0 {
		return true
	}
	for _, cs := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range cs {
			for _, list := range []v1.ResourceList{cs[i].Resources.Requests, cs[i].Resources.Limits} {
				for name := range list {
					if e.managed[name] {
						return true
					}
				}
			}
		}
	}
	return false
}

// args returns the arguments of a call. If the extender caches nodes, args sends only the nodes'
// names, and otherwise whole nodes.
func (e *Extender) args(pod *v1.Pod, nodes []*v1.Node) *extenderv1.ExtenderArgs {
	args := &extenderv1.ExtenderArgs{Pod: pod}
	if e.config.NodeCacheCapable {
		names := make([]string, len(nodes))
		for i, n := range nodes {
			names[i] = n.Name
		}
		args.NodeNames = &names
		return args
	}
	args.Nodes = &v1.NodeList{}
	for _, n := range nodes {
		args.Nodes.Items = append(args.Nodes.Items, *n)
	}
	return args
}

// Filtered is the result of Filter: the nodes that the extender accepts, and the reasons for which
// it rejects the other nodes.
type Filtered struct {
	Nodes []*v1.Node
	// Failed has the reasons for nodes that may fit if other pods are removed. Unresolvable has the
	// reasons for nodes that do not fit even then. Both are by node name.
	Failed, Unresolvable map[string]string
}

// Filter asks the extender which of the nodes the pod fits.
func (e *Extender) Filter(ctx context.Context, pod *v1.Pod, nodes []*v1.Node) (Filtered, error) {
	if e.config.FilterVerb == "" {
		return Filtered{Nodes: nodes}, nil
	}
	var result extenderv1.ExtenderFilterResult
	if err := e.send(ctx, e.config.FilterVerb, e.args(pod, nodes), &result); err != nil {
		return Filtered{}, err
	}
	if result.Error != "" {
		return Filtered{}, errors.New(result.Error)
	}
	asked := make(map[string]*v1.Node, len(nodes))
	for _, n := range nodes {
		asked[n.Name] = n
	}
	out := Filtered{Failed: result.FailedNodes, Unresolvable: result.FailedAndUnresolvableNodes}
	var names []string
	switch {
	case e.config.NodeCacheCapable && result.NodeNames != nil:
		names = *result.NodeNames
	case result.Nodes != nil:
		for i := range result.Nodes.Items {
			names = append(names, result.Nodes.Items[i].Name)
		}
	}
	for _, name := range names {
		n := asked[name]
		if n == nil {
			return Filtered{}, fmt.Errorf(
				"extender %q claims a filtered node %q which is not found in the input node list", e.Name(), name)
		}
		delete(asked, name) // a second result for the same node is an error
		out.Nodes = append(out.Nodes, n)
	}
	return out, nil
}

// Prioritize returns the extender's scores of nodes, by node name, limited to the range from 0 to 10.
func (e *Extender) Prioritize(ctx context.Context, pod *v1.Pod, nodes []*v1.Node) (map[string]int64, error) {
	if e.config.PrioritizeVerb == "" {
		return nil, nil
	}
	var result extenderv1.HostPriorityList
	if err := e.send(ctx, e.config.PrioritizeVerb, e.args(pod, nodes), &result); err != nil {
		return nil, err
	}
	out := make(map[string]int64, len(result))
	for _, h := range result {
		out[h.Host] = min(max(h.Score, extenderv1.MinExtenderPriority), extenderv1.MaxExtenderPriority)
	}
	return out, nil
}

// Bind asks the extender to bind a pod to a node.
func (e *Extender) Bind(ctx context.Context, pod *v1.Pod, node string) error {
	var result extenderv1.ExtenderBindingResult
	err := e.send(ctx, e.config.BindVerb, &extenderv1.ExtenderBindingArgs{
		PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: pod.UID, Node: node,
	}, &result)
	if err == nil && result.Error != "" {
		err = errors.New(result.Error)
	}
	return err
}

// Preempt asks the extender to choose among nodes and victims. victims has the candidates by node
// name; the result has the UIDs of the chosen victims by node name.
func (e *Extender) Preempt(ctx context.Context, pod *v1.Pod, victims map[string]*extenderv1.Victims) (
	map[string]*extenderv1.MetaVictims, error) {
	args := &extenderv1.ExtenderPreemptionArgs{Pod: pod}
	if e.config.NodeCacheCapable {
		args.NodeNameToMetaVictims = map[string]*extenderv1.MetaVictims{}
		for node, v := range victims {
			meta := &extenderv1.MetaVictims{NumPDBViolations: v.NumPDBViolations}
			for _, p := range v.Pods {
				meta.Pods = append(meta.Pods, &extenderv1.MetaPod{UID: string(p.UID)})
			}
			args.NodeNameToMetaVictims[node] = meta
		}
	} else {
		args.NodeNameToVictims = victims
	}
	var result extenderv1.ExtenderPreemptionResult
	if err := e.send(ctx, e.config.PreemptVerb, args, &result); err != nil {
		return nil, err
	}
	return result.NodeNameToMetaVictims, nil
}

func (e *Extender) send(ctx context.Context, verb string, args, result any) error {
	body, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("extender %s: %w", e.Name(), err)
	}
	url := strings.TrimRight(e.config.URLPrefix, "/") + "/" + verb
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("extender %s: %w", e.Name(), err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.client.Do(req)
	if err != nil {
		return fmt.Errorf("extender %s: %w", e.Name(), err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("failed %v with extender at URL %v, code %v", verb, url, resp.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(result); err != nil {
		return fmt.Errorf("extender %s: answer to %s: %w", e.Name(), verb, err)
	}
	return nil
}

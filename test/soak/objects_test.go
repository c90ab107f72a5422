// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/test/soak/history"
)

type batchCondition = batchv1.JobCondition

func unmarshal(data []byte, into any) error { return json.Unmarshal(data, into) }

// postJSON creates an object. It returns nil if the object already exists.
func (s *soak) postJSON(ctx context.Context, path, body string) error {
	err := s.client.CoreV1().RESTClient().Post().AbsPath(path).SetHeader("Content-Type",
		"application/json").Body([]byte(body)).Do(ctx).Error()
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

const (
	siteNamespace   = "sites"
	sitesPath       = "/apis/web.example.com/v1/namespaces/" + siteNamespace + "/sites"
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
)

// sites is a workload that creates and deletes Site objects. The operator's webhook must set a
// field of each when it is created.
type sites struct {
	s    *soak
	made int
	// there has the objects whose creation was acknowledged and that were not deleted afterwards.
	there []string
}

// siteMark is the value that the operator's webhook sets in an empty field.
const siteMark = "hello"

func (x *sites) run(ctx context.Context, a *api) {
	for pause(ctx, 1500*time.Millisecond) {
		x.made++
		o := &object{
			APIVersion: "web.example.com/v1", Kind: "Site",
			Metadata: metadata{Name: fmt.Sprintf("site-%d", x.made)}, Spec: map[string]any{"replicas": 0},
		}
		made := &object{}
		got := a.do(context.WithoutCancel(ctx), http.MethodPost, sitesPath, o, made)
		x.s.count("objects of a webhook, "+string(got.outcome), 1)
		if got.outcome == history.Acknowledged {
			x.check(made)
			x.there = append(x.there, o.Metadata.Name)
		}
		if len(x.there) > 15 && a.do(ctx, http.MethodDelete, sitesPath+"/"+x.there[0], nil, nil).outcome != history.Refused {
			x.there = x.there[1:]
		}
	}
}

func (x *sites) check(o *object) {
	if o.Spec["message"] != siteMark {
		x.s.violatef("site %s without the webhook's mark: %v", o.Metadata.Name, o.Spec)
	}
}

func (x *sites) finish(a *api) {
	l := &list{}
	x.s.eventually("sites are listed",
		func(ctx context.Context) error { return a.do(ctx, http.MethodGet, sitesPath, nil, l).err })
	found := map[string]bool{}
	for i := range l.Items {
		x.check(&l.Items[i])
		found[l.Items[i].Metadata.Name] = true
	}
	for _, name := range x.there {
		if !found[name] {
			x.s.violatef("site %s is missing, although its creation was acknowledged", name)
		}
	}
}

// services is a workload that creates and deletes Services, each with a cluster IP and a node port.
type services struct {
	s     *soak
	made  int
	there []service
	// used has the Services that were deleted most recently.
	used []service
}

type service struct {
	name, address string
	port          float64
}

func servicesPath(namespace string) string { return "/api/v1/namespaces/" + namespace + "/services" }

func serviceObject(name string, port map[string]any) *object {
	port["port"] = 80
	return &object{APIVersion: "v1", Kind: "Service", Metadata: metadata{Name: name},
		Spec: map[string]any{"type": "NodePort", "ports": []any{port}}}
}

func readService(o *object) service {
	svc := service{name: o.Metadata.Name}
	svc.address, _ = o.Spec["clusterIP"].(string)
	if ports, ok := o.Spec["ports"].([]any); ok && len(ports) == 1 {
		port, _ := ports[0].(map[string]any)
		svc.port, _ = port["nodePort"].(float64)
	}
	return svc
}

func (x *services) run(ctx context.Context, a *api) {
	for pause(ctx, time.Second) {
		x.made++
		made := &object{}
		name := fmt.Sprintf("service-%d", x.made)
		got := a.do(context.WithoutCancel(ctx), http.MethodPost, servicesPath(loadNamespace),
			serviceObject(name, map[string]any{}), made)
		x.s.count("services, "+string(got.outcome), 1)
		if got.outcome == history.Acknowledged {
			x.add(readService(made))
		}
		if len(x.there) < 8 {
			continue
		}
		oldest := x.there[0]
		got = a.do(context.WithoutCancel(ctx), http.MethodDelete, servicesPath(loadNamespace)+"/"+oldest.name, nil, nil)
		if got.outcome != history.Refused || got.code == http.StatusNotFound {
			x.there = x.there[1:]
			x.used = append(x.used, oldest)
			x.used = x.used[max(0, len(x.used)-20):]
		}
	}
}

func (x *services) add(svc service) {
	if svc.address == "" || svc.port == 0 {
		x.s.violatef("service %s has address %q and port %v", svc.name, svc.address, svc.port)
	}
	for _, other := range x.there {
		if other.address == svc.address || other.port == svc.port {
			x.s.violatef("services %+v and %+v have the same address or port", other, svc)
		}
	}
	x.there = append(x.there, svc)
}

// reuse creates Services that request the addresses and ports of deleted Services, which must be
// free.
func (x *services) reuse() {
	a := x.s.apis(1)[0]
	for _, svc := range append(x.used, x.there...) {
		o := serviceObject(svc.name, map[string]any{"nodePort": svc.port})
		o.Spec["clusterIP"] = svc.address
		x.s.eventually(fmt.Sprintf("port %v and address %s can be used again", svc.port, svc.address),
			func(ctx context.Context) error {
				return a.do(ctx, http.MethodPost, servicesPath("default"), o, nil).err
			})
		x.s.eventually("service "+svc.name+" is gone", func(ctx context.Context) error {
			got := a.do(ctx, http.MethodDelete, servicesPath("default")+"/"+svc.name, nil, nil)
			if got.code == http.StatusNotFound {
				return nil
			}
			return errors.Join(got.err, errors.New("deleting"))
		})
	}
}

// requests is a workload that sends requests to a Service from each node. Some requests may fail
// while processes are being killed.
type requests struct{ s *soak }

func (x *requests) run(ctx context.Context) {
	address := ""
	x.s.eventually("the service has an address", func(ctx context.Context) error {
		svc, err := x.s.client.CoreV1().Services(loadNamespace).Get(ctx, "web", metav1.GetOptions{})
		if err == nil {
			address = svc.Spec.ClusterIP
		}
		return err
	})
	for pause(ctx, 300*time.Millisecond) {
		st, err := x.s.status(ctx)
		if err != nil {
			continue
		}
		for _, n := range st.Nodes {
			if n.Pid == 0 {
				continue
			}
			if err := ask(ctx, n.Pid, address); err != nil {
				x.s.count("requests to a service that failed", 1)
			} else {
				x.s.count("requests to a service that were answered", 1)
			}
		}
	}
}

func ask(ctx context.Context, pid int, address string) error {
	client := &http.Client{Timeout: 3 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialFrom(pid)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/hostname", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return errors.Join(err, fmt.Errorf("status %d", resp.StatusCode))
	}
	return nil
}

// definitions is a workload that creates and deletes CRDs, and an object of each CRD.
type definitions struct {
	s    *soak
	made int
}

const definitionManifest = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"KINDs.churn.example.com"},"spec":{
"group":"churn.example.com","scope":"Namespaced","names":{"plural":"KINDs","singular":"KIND","kind":"KIND","listKind":"KINDList"},
"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

func (x *definitions) run(ctx context.Context, a *api) {
	for pause(ctx, 5*time.Second) {
		x.made++
		kind := fmt.Sprintf("thing%d", x.made)
		name, path := kind+"s.churn.example.com", "/apis/churn.example.com/v1/namespaces/"+loadNamespace+"/"+kind+"s"
		var definition any
		if err := unmarshal([]byte(strings.ReplaceAll(definitionManifest, "KIND", kind)), &definition); err != nil {
			x.s.violatef("definition: %v", err)
			return
		}
		// Use a context that does not end with the run, because an interrupted create or delete
		// would leave objects behind.
		ctx := context.WithoutCancel(ctx)
		x.until(ctx, a, http.MethodPost, definitionsPath, definition, http.StatusConflict)
		x.until(ctx, a, http.MethodPost, path,
			map[string]any{"apiVersion": "churn.example.com/v1", "kind": kind,
				"metadata": map[string]any{"name": "a"}}, http.StatusConflict)
		x.until(ctx, a, http.MethodDelete, definitionsPath+"/"+name, nil, http.StatusNotFound)
		x.s.count("definitions that were created and deleted", 1)
	}
}

// until repeats a request until its effect is certain. The argument done is the status code that
// shows this: for a create, that the object exists; for a delete, that it does not exist.
func (x *definitions) until(ctx context.Context, a *api, method, path string, body any, done int) {
	x.s.eventually(method+" "+path, func(context.Context) error {
		got := a.do(ctx, method, path, body, nil)
		if got.code == done || method == http.MethodPost && got.outcome == history.Acknowledged {
			return nil
		}
		return errors.Join(got.err, errors.New("not yet"))
	})
}

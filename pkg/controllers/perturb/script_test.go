// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package perturb_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"keelson.dev/keelson/pkg/controllers/perturb"
)

// step is a document of a script that is an action. Documents with an apiVersion are objects to
// create instead.
type step struct {
	// Do is the action: wait (for the duration For), delete, patch, or patch-status (both with the
	// body With). The last three act on the object with Kind and Name.
	Do          string                     `json:"do"`
	For         metav1.Duration            `json:"for"`
	Kind        string                     `json:"kind"` // group/version/resource; core group: version/resource
	Name        string                     `json:"name"` // namespace/name, or the name of a cluster-scoped object
	With        json.RawMessage            `json:"with"`
	Propagation metav1.DeletionPropagation `json:"propagation"`
	Grace       *int64                     `json:"grace"`
}

// patience is how many times a step is retried, once per second, while its object does not exist
// yet. It is long enough for twenty watches that each end after an event that was 20 s late, and
// for the client's pauses between them.
const patience = 900

// script returns a function that runs testdata/NAME.yaml. It first creates the default service
// account, which pods need, unless the script begins with the comment "# no account".
func script(name string) func(context.Context, *perturb.Users) error {
	return func(ctx context.Context, u *perturb.Users) error {
		text, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
		if err != nil {
			return err
		}
		if !strings.HasPrefix(string(text), "# no account") {
			account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
			if _, err := u.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, account,
				metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		docs := yaml.NewYAMLToJSONDecoder(bytes.NewReader(text))
		for n := 1; ; n++ {
			var raw json.RawMessage
			switch err := docs.Decode(&raw); {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			}
			if len(raw) == 0 || string(raw) == "null" {
				continue
			}
			err := take(ctx, u, raw)
			for tries := 0; apierrors.IsNotFound(err) && tries < patience; tries++ {
				u.Wait(time.Second) // wait until the controllers have created the object, which faults may delay
				err = take(ctx, u, raw)
			}
			if err != nil {
				return fmt.Errorf("%s, step %d: %w", name, n, err)
			}
		}
	}
}

func take(ctx context.Context, u *perturb.Users, raw json.RawMessage) error {
	var s step
	var object struct{ APIVersion string }
	if err := json.Unmarshal(raw, &object); err != nil {
		return err
	}
	if object.APIVersion != "" {
		return create(ctx, u, raw)
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	switch s.Do {
	case "wait":
		u.Wait(s.For.Duration)
		return nil
	case "patch", "patch-status":
		c, name := client(u, kindOf(s.Kind), s.Name)
		var sub []string
		if s.Do == "patch-status" {
			sub = []string{"status"}
		}
		_, err := c.Patch(ctx, name, types.MergePatchType, s.With, metav1.PatchOptions{}, sub...)
		return err
	case "delete":
		c, name := client(u, kindOf(s.Kind), s.Name)
		o := metav1.DeleteOptions{GracePeriodSeconds: s.Grace}
		if s.Propagation != "" {
			o.PropagationPolicy = &s.Propagation
		}
		return c.Delete(ctx, name, o)
	}
	return fmt.Errorf("unknown action %q", s.Do)
}

func create(ctx context.Context, u *perturb.Users, raw json.RawMessage) error {
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(raw); err != nil {
		return err
	}
	gvr, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	if o.GetKind() == "Endpoints" {
		gvr.Resource = "endpoints"
	}
	if err := refer(ctx, u, o); err != nil {
		return err
	}
	c, _ := client(u, gvr, o.GetNamespace()+"/"+o.GetName())
	status, has := o.Object["status"]
	if _, err := c.Create(ctx, o, metav1.CreateOptions{}); err != nil || !has {
		return err
	}
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = c.Patch(ctx, o.GetName(), types.MergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}

// refer sets the UIDs of an object's owners, which scripts cannot contain.
func refer(ctx context.Context, u *perturb.Users, o *unstructured.Unstructured) error {
	owners := o.GetOwnerReferences()
	for i, r := range owners {
		if r.UID != "" {
			continue
		}
		gvr, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(r.APIVersion, r.Kind))
		c, _ := client(u, gvr, o.GetNamespace()+"/"+r.Name)
		owner, err := c.Get(ctx, r.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		owners[i].UID = owner.GetUID()
	}
	if len(owners) > 0 {
		o.SetOwnerReferences(owners)
	}
	return nil
}

func kindOf(text string) schema.GroupVersionResource {
	parts := strings.Split(text, "/")
	if len(parts) == 2 {
		parts = append([]string{""}, parts...)
	}
	return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}
}

func client(u *perturb.Users, gvr schema.GroupVersionResource, name string) (dynamic.ResourceInterface, string) {
	namespace, base, found := strings.Cut(name, "/")
	if !found {
		namespace, base = "", name
	}
	return u.Dynamic.Resource(gvr).Namespace(namespace), base
}

// every returns a function that calls do at intervals of d until the run ends.
func every(d time.Duration, do func(context.Context, *perturb.Users) error) func(context.Context, *perturb.Users) {
	return func(ctx context.Context, u *perturb.Users) {
		for ctx.Err() == nil {
			_ = do(ctx, u) // ignore the error, because do is called again
			u.Wait(d)
		}
	}
}

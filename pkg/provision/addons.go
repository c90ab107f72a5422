// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"bufio"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"keelson.dev/api/clock"
)

// ingressAccount is the service account of the ingress controller, which manifests/ingress.yaml
// creates.
const ingressAccount = "kube-system/ingress"

// manifests has the YAML files of the add-on objects that each cluster starts with.
//
//go:embed manifests/*.yaml
var manifests embed.FS

// addonResource returns the API resource of a kind that occurs in manifests. ok is false for other
// kinds.
func addonResource(kind schema.GroupVersionKind) (schema.GroupVersionResource, bool) {
	resource := map[string]string{
		"ServiceAccount": "serviceaccounts", "ConfigMap": "configmaps", "Service": "services",
		"Deployment": "deployments", "DaemonSet": "daemonsets",
		"IngressClass": "ingressclasses", "PodDisruptionBudget": "poddisruptionbudgets",
		"Role": "roles", "RoleBinding": "rolebindings",
		"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings",
		"CSIDriver": "csidrivers", "StorageClass": "storageclasses",
		"ValidatingAdmissionPolicy":        "validatingadmissionpolicies",
		"ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
		"CustomResourceDefinition":         "customresourcedefinitions",
	}[kind.Kind]
	return kind.GroupVersion().WithResource(resource), resource != ""
}

var errAddonKind = errors.New("unknown kind in an add-on manifest")

// ApplyAddons creates the add-on objects that do not exist yet. It does not change existing
// objects, because an operator may have changed them on purpose. RBAC objects of the cluster's own
// components are the exception: updateRights keeps them up to date.
func (c *Cluster) ApplyAddons(ctx context.Context, client dynamic.Interface, clk clock.Clock) error {
	return c.applyManifests(ctx, client, clk, c.manifestFiles()...)
}

// ApplyRights does the part of ApplyAddons without which no node gets its certificates.
func (c *Cluster) ApplyRights(ctx context.Context, client dynamic.Interface, clk clock.Clock) error {
	return c.applyManifests(ctx, client, clk, c.rights()...)
}

// applyManifests creates the objects in files as ApplyAddons does.
func (c *Cluster) applyManifests(ctx context.Context, client dynamic.Interface, clk clock.Clock,
	files ...string) error {
	for _, file := range files {
		objects, err := c.readManifest(file)
		if err != nil {
			return err
		}
		for _, o := range objects {
			if err := createAddon(ctx, client, o, clk); err != nil {
				return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
			}
		}
	}
	return nil
}

// rights returns the manifests with the rights of the cluster's own components and of nodes.
func (c *Cluster) rights() []string {
	files := []string{"manifests/rbac.yaml"}
	if c.Machines {
		files = append(files, "manifests/machines.yaml")
	}
	return files
}

// manifestFiles returns the manifests of the cluster's add-ons.
func (c *Cluster) manifestFiles() []string {
	files := c.rights()
	if !c.NoDNS {
		files = append(files, "manifests/coredns.yaml")
	}
	files = append(files, "manifests/storage.yaml")
	if c.ownNetwork() { // only Keelson's own pod network enforces these policies
		files = append(files, "manifests/clusternetworkpolicy.yaml")
	}
	if c.Ingress {
		files = append(files, "manifests/ingress.yaml")
	}
	return files
}

// Parts of CoreDNS's configuration for names outside the cluster's domain, with the comments about
// them. As in kubeadm's configuration, a server that would forward to itself ends.
const (
	aboutDenying    = "Nothing leads out of the cluster: no other name exists."
	denyNames       = "template ANY ANY . {\n           rcode NXDOMAIN\n        }"
	aboutForwarding = "The name servers of the node that the pod runs on know other names."
	forwardNames    = "forward . /etc/resolv.conf {\n           max_concurrent 1000\n        }\n" +
		"        cache 30\n        loop"
)

// readManifest parses a manifest file. The file may contain placeholders for the cluster's domain,
// the addresses of its DNS, and what the DNS does with other names.
func (c *Cluster) readManifest(file string) ([]*unstructured.Unstructured, error) {
	data, err := manifests.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("add-on: %w", err)
	}
	about, otherNames := aboutDenying, denyNames
	if c.ForwardDNS {
		about, otherNames = aboutForwarding, forwardNames
	}
	text := strings.NewReplacer("{{domain}}", c.Domain,
		"{{aboutOtherNames}}", about, "{{otherNames}}", otherNames,
		"{{dns}}", c.Families[0].DNS.String(),
		"{{allDNS}}", c.join(func(f Family) string { return f.DNS.String() })).Replace(string(data))
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	var out []*unstructured.Unstructured
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("add-on %s: %w", file, err)
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(doc, &o.Object); err != nil {
			return nil, fmt.Errorf("add-on %s: %w", file, err)
		}
		out = append(out, o)
	}
}

// createAddon creates one object if it does not exist. An API server that has just started may not
// have created its system namespaces yet; createAddon waits for them.
//
// createAddon tries to read the object first, because creating an existing Service fails with an
// error about its address instead of AlreadyExists.
func createAddon(ctx context.Context, client dynamic.Interface, o *unstructured.Unstructured, clk clock.Clock) error {
	resource, ok := addonResource(o.GroupVersionKind())
	if !ok {
		return errAddonKind
	}
	objects := client.Resource(resource).Namespace(o.GetNamespace())
	for {
		present, err := objects.Get(ctx, o.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = objects.Create(ctx, o, metav1.CreateOptions{FieldManager: addonManager})
		case err == nil && updateRights(present, o):
			_, err = objects.Update(ctx, present, metav1.UpdateOptions{FieldManager: addonManager})
		}
		if err == nil || apierrors.IsAlreadyExists(err) {
			return nil
		}
		if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) && !apierrors.IsServiceUnavailable(err) &&
			!apierrors.IsConflict(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-clk.After(50 * time.Millisecond):
		}
	}
}

// ownRights is the name prefix of the roles and bindings of the cluster's own components.
const ownRights = "keelson:"

// updateRights sets the rules or subjects of a role or binding of the cluster's own components to
// those of its manifest, and reports whether they differed. Each component thus has exactly the
// rights that it needs after an upgrade. If the object has Kubernetes' annotation against automatic
// updates of RBAC objects, updateRights does not change it.
func updateRights(present, want *unstructured.Unstructured) bool {
	field, ok := map[string]string{
		"Role": "rules", "RoleBinding": "subjects", "ClusterRole": "rules", "ClusterRoleBinding": "subjects",
	}[want.GetKind()]
	if !ok || !strings.HasPrefix(want.GetName(), ownRights) ||
		present.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] == "false" {
		return false
	}
	if reflect.DeepEqual(present.Object[field], want.Object[field]) {
		return false
	}
	present.Object[field] = want.Object[field]
	return true
}

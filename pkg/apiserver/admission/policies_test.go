// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

func constraints(group, resource string) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"},
				Resources: []string{resource}},
		},
	}}}
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
}

func tryDeployment(ctx context.Context, client kubernetes.Interface, d *appsv1.Deployment) (*appsv1.Deployment, error) {
	return client.AppsV1().Deployments("default").Create(ctx, d, metav1.CreateOptions{DryRun: []string{"All"}})
}

func TestValidatingPolicies(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	api := s.Client.AdmissionregistrationV1()
	if _, err := s.Client.CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "limit"}, Data: map[string]string{"max": "3"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	policies := []admissionregistrationv1.ValidatingAdmissionPolicySpec{{
		ParamKind:        &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
		MatchConstraints: constraints("apps", "deployments"),
		MatchConditions: []admissionregistrationv1.MatchCondition{
			{Name: "named", Expression: "!object.metadata.name.startsWith('free')"}},
		Variables: []admissionregistrationv1.Variable{
			{Name: "max", Expression: "int(params.data['max'])"},
			{Name: "over", Expression: "object.spec.replicas - variables.max"},
		},
		Validations: []admissionregistrationv1.Validation{{
			Expression: "variables.over <= 0", Reason: ptr.To(metav1.StatusReasonForbidden),
			MessageExpression: "'over by ' + string(variables.over) + ' in ' + namespaceObject.metadata.name",
		}},
		AuditAnnotations: []admissionregistrationv1.AuditAnnotation{
			{Key: "replicas", ValueExpression: "string(object.spec.replicas)"}},
	}, {
		MatchConstraints: constraints("apps", "deployments"),
		Validations: []admissionregistrationv1.Validation{{Expression: "object.metadata.name != 'warned'",
			Message: "an odd name"}},
	}, {
		MatchConstraints: constraints("apps", "deployments"),
		Validations: []admissionregistrationv1.Validation{{
			Expression: "object.metadata.name != 'secret' || " +
				"authorizer.group('').resource('secrets').namespace('default').check('get').allowed()",
		}},
	}}
	bindings := []admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		{ParamRef: &admissionregistrationv1.ParamRef{Name: "limit", Namespace: "default",
			ParameterNotFoundAction: ptr.To(admissionregistrationv1.DenyAction)},
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
		{ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn,
			admissionregistrationv1.Audit}},
		{ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
	}
	for i, name := range []string{"limited", "odd", "secrets"} {
		if _, err := api.ValidatingAdmissionPolicies().Create(t.Context(),
			&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: policies[i]}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		bindings[i].PolicyName = name
		if _, err := api.ValidatingAdmissionPolicyBindings().Create(t.Context(),
			&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
				ObjectMeta: metav1.ObjectMeta{Name: name + "-binding"}, Spec: bindings[i]}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	warned := &warnings{}
	cfg := rest.CopyConfig(s.Config)
	cfg.WarningHandler = warned
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "policies are in force", func(ctx context.Context) bool {
		_, err := tryDeployment(ctx, client, deployment("a", 4))
		warned.list = nil
		_, warning := tryDeployment(ctx, client, deployment("warned", 1))
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "over by") && warning == nil &&
			len(warned.list) > 0
	})
	if want := []string{
		"Validation failed for ValidatingAdmissionPolicy 'odd' " +
			"with binding 'odd-binding': an odd name"}; !slices.Equal(warned.list, want) {
		t.Errorf("warned of %q, want %q", warned.list, want)
	}
	_, err = tryDeployment(t.Context(), client, deployment("a", 5))
	if want := `deployments.apps "a" is forbidden: ValidatingAdmissionPolicy 'limited' with binding ` +
		`'limited-binding' denied request: over by 2 in default`; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	for _, d := range []*appsv1.Deployment{deployment("free", 9), deployment("a", 3), deployment("secret", 1)} {
		if _, err := tryDeployment(t.Context(), client, d); err != nil {
			t.Errorf("%s: %v", d.Name, err)
		}
	}
}

func TestMutatingPolicies(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	api := s.Client.AdmissionregistrationV1()
	policies := map[string]admissionregistrationv1.MutatingAdmissionPolicySpec{
		"apply": {
			MatchConstraints:   constraints("apps", "deployments"),
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Variables:          []admissionregistrationv1.Variable{{Name: "owner", Expression: "request.userInfo.username"}},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
					Expression: `Object{metadata: Object.metadata{annotations: {"owner": variables.owner}}, ` +
						`spec: Object.spec{replicas: 7}}`},
			}},
		},
		"patch": {
			MatchConstraints:   constraints("apps", "deployments"),
			ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{
					Expression: `[JSONPatch{op: "add", path: "/metadata/labels", value: {"replicas": string(object.spec.replicas)}}]`},
			}},
		},
	}
	for name, spec := range policies {
		if _, err := api.MutatingAdmissionPolicies().Create(t.Context(),
			&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: spec}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := api.MutatingAdmissionPolicyBindings().Create(t.Context(),
			&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name}},
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var got *appsv1.Deployment
	eventually(t, "policies are in force", func(ctx context.Context) bool {
		var err error
		if got, err = tryDeployment(ctx, s.Client, deployment("a", 1)); err != nil {
			t.Log(err)
			return false
		}
		return got.Annotations["owner"] != "" && got.Labels["replicas"] != ""
	})
	if *got.Spec.Replicas != 7 || got.Annotations["owner"] != "admin" || got.Labels["replicas"] != "7" {
		t.Errorf("mutated to %d replicas, %v, %v", *got.Spec.Replicas, got.Annotations, got.Labels)
	}
}

// TestParamGuard checks that a user who may write policies cannot use one to read secrets, which
// the user may not read.
func TestParamGuard(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "policies"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}},
	}}
	if _, err := s.Client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "policies"},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "policies"},
		Subjects:   []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: "bob"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bob := kubernetes.NewForConfigOrDie(s.UserConfig(t, "bob")).AdmissionregistrationV1()
	policy := func(name, kind string) *admissionregistrationv1.ValidatingAdmissionPolicy {
		return &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				ParamKind:        &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: kind},
				MatchConstraints: constraints("apps", "deployments"),
				Validations:      []admissionregistrationv1.Validation{{Expression: "params.data == object.data"}},
			}}
	}
	eventually(t, "bob may write policies", func(ctx context.Context) bool {
		_, err := bob.ValidatingAdmissionPolicies().Create(ctx, policy("maps", "ConfigMap"), metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err)
	})
	_, err := bob.ValidatingAdmissionPolicies().Create(t.Context(), policy("secrets", "Secret"), metav1.CreateOptions{})
	if want := `ValidatingAdmissionPolicy.admissionregistration.k8s.io "secrets" is invalid: ` +
		`spec.paramKind: Forbidden: user `; err == nil || !strings.HasPrefix(err.Error(), want) ||
		!strings.HasSuffix(err.Error(),
			`must have "get" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)`) {
		t.Errorf("got %v", err)
	}
	invalid := policy("secrets", "Secret")
	invalid.Spec.Validations = nil
	if _, err = bob.ValidatingAdmissionPolicies().Create(t.Context(), invalid,
		metav1.CreateOptions{}); err == nil || strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("an invalid policy: %v", err)
	}
	if _, err := s.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(),
		policy("secrets", "Secret"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bind := func(policy string) error {
		_, err := bob.ValidatingAdmissionPolicyBindings().Create(t.Context(),
			&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
				ObjectMeta: metav1.ObjectMeta{Name: policy},
				Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
					PolicyName: policy, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
					ParamRef: &admissionregistrationv1.ParamRef{Name: "x", Namespace: "default",
						ParameterNotFoundAction: ptr.To(admissionregistrationv1.DenyAction)},
				},
			}, metav1.CreateOptions{})
		return err
	}
	if err := bind("maps"); err != nil {
		t.Error(err)
	}
	if err := bind("secrets"); err == nil ||
		!strings.Contains(err.Error(), "spec.paramRef: Forbidden: user get does not have") {
		t.Errorf("binding to a secret: %v", err)
	}
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"errors"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestMountableSecrets checks that if a service account enforces its list of secrets, pods can
// refer only to secrets in the list. As in Kubernetes, the error for new pods is Forbidden, and
// that for ephemeral containers has no reason.
func TestMountableSecrets(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	ctx := t.Context()
	sa := &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "a",
			Annotations: map[string]string{"kubernetes.io/enforce-mountable-secrets": "true"}},
		Secrets: []corev1.ObjectReference{{Name: "listed"}},
	}
	if _, err := s.Client.CoreV1().ServiceAccounts("default").Create(ctx, sa, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	env := func(secret string) []corev1.EnvVar {
		ref := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: "k"}
		return []corev1.EnvVar{{Name: "E", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: ref}}}
	}
	from := func(secret string) []corev1.EnvFromSource {
		return []corev1.EnvFromSource{
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}}
	}
	pods := s.Client.CoreV1().Pods("default")
	withAccount := func(change func(*corev1.PodSpec)) *corev1.Pod {
		return pod("p", func(p *corev1.Pod) {
			p.Spec.ServiceAccountName = "a"
			change(&p.Spec)
		})
	}
	_, err := pods.Create(ctx, withAccount(func(s *corev1.PodSpec) { s.Containers[0].Env = env("other") }),
		metav1.CreateOptions{})
	refused(t, err, `pods "p" is forbidden: container c with envVar E referencing secret.secretName="other" `+
		`is not allowed because service account a does not reference that secret`)
	made, err := pods.Create(ctx, withAccount(func(s *corev1.PodSpec) { s.Containers[0].Env = env("listed") }),
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		env     []corev1.EnvVar
		from    []corev1.EnvFromSource
		refused string
	}{
		{env: env("other"), refused: `ephemeral container e with envVar E referencing ` +
			`secret.secretName="other" is not allowed because service account a does not reference that secret`},
		{from: from("other"), refused: `ephemeral container e with envFrom referencing ` +
			`secret.secretName="other" is not allowed because service account a does not reference that secret`},
		{env: env("listed"), from: from("listed")},
	} {
		p := made.DeepCopy()
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "e", Image: "i", TerminationMessagePolicy: corev1.TerminationMessageReadFile, Env: tc.env, EnvFrom: tc.from,
		}}}
		_, err := pods.UpdateEphemeralContainers(ctx, "p", p, metav1.UpdateOptions{})
		refused(t, err, tc.refused)
		var status apierrors.APIStatus
		if tc.refused != "" &&
			(!errors.As(err, &status) || status.Status().Code != http.StatusInternalServerError ||
				status.Status().Reason != "") {
			t.Errorf("error %#v", err)
		}
	}
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/signer"
)

const (
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

func (c *check) checkProjected(p *corev1.ProjectedVolumeSource, path *field.Path) {
	files := sets.New[string]()
	claim := func(file string, value any) {
		if file == "" {
			return
		}
		if files.Has(file) {
			c.Invalid(path, value, "conflicting duplicate paths")
		}
		files.Insert(file)
	}
	for i := range p.Sources {
		source, at, kinds := &p.Sources[i], path.Child("sources").Index(i), 0
		if s := source.Secret; s != nil {
			kinds++
			c.checkProjectedObject(s.Name, s.Items, at.Child("secret"), claim)
		}
		if s := source.ConfigMap; s != nil {
			kinds++
			c.checkProjectedObject(s.Name, s.Items, at.Child("configMap"), claim)
		}
		if s := source.DownwardAPI; s != nil {
			kinds++
			for j := range s.Items {
				c.checkDownwardFile(&s.Items[j], at.Child("downwardAPI"))
				claim(s.Items[j].Path, s.Items[j].Path)
			}
		}
		if s := source.ServiceAccountToken; s != nil {
			kinds++
			c.checkToken(s, at.Child("serviceAccountToken"), path)
		}
		if s := source.ClusterTrustBundle; s != nil {
			kinds++
			c.checkTrustBundle(s, at.Child("clusterTrustBundle"))
			claim(s.Path, s.Path)
		}
		if s := source.PodCertificate; s != nil {
			kinds++
			c.checkPodCertificate(s, at.Child("podCertificate"), claim)
		}
		if kinds > 1 {
			c.Forbidden(at, "may not specify more than 1 volume type per source")
		}
	}
}

func (c *check) checkProjectedObject(name string, items []corev1.KeyToPath, at *field.Path, claim func(string, any)) {
	if name == "" {
		c.Required(at.Child("name"), "")
	}
	for i := range items {
		c.checkItem(&items[i], at.Child("items").Index(i))
		claim(items[i].Path, name)
	}
}

func (c *check) checkToken(token *corev1.ServiceAccountTokenProjection, at, volume *field.Path) {
	seconds := int64(0)
	if token.ExpirationSeconds != nil {
		seconds = *token.ExpirationSeconds
	}
	if seconds < minTokenSeconds {
		c.Invalid(at.Child("expirationSeconds"), seconds, "may not specify a duration less than 10 minutes")
	}
	if seconds > maxTokenSeconds {
		c.Invalid(at.Child("expirationSeconds"), seconds, "may not specify a duration larger than 2^32 seconds")
	}
	if token.Path == "" {
		c.Required(volume.Child("path"), "")
	} else {
		c.checkFileName(token.Path, volume.Child("path"))
	}
}

func (c *check) checkTrustBundle(s *corev1.ClusterTrustBundleProjection, at *field.Path) {
	switch {
	case s.Name != nil && s.SignerName != nil:
		c.Invalid(at, s, "only one of name and signerName may be used")
	case s.Name != nil:
		if *s.Name == "" {
			c.Required(at.Child("name"), "must be a valid object name")
		}
		for _, reason := range signer.BundleName(signer.OfBundle(*s.Name), *s.Name, false) {
			c.Invalid(at.Child("name"), *s.Name, "not a valid clustertrustbundlename: "+reason)
		}
		if s.LabelSelector != nil {
			c.Invalid(at.Child("labelSelector"), s.LabelSelector, "labelSelector must be unset if name is specified")
		}
	case s.SignerName != nil:
		if *s.SignerName == "" {
			c.Required(at.Child("signerName"), "must be a valid signer name")
		}
		signer.CheckName(&c.Report, at.Child("signerName"), *s.SignerName)
		c.Selector(at.Child("labelSelector"), s.LabelSelector)
	default:
		c.Required(at, "either name or signerName must be specified")
	}
	if s.Path == "" {
		c.Required(at.Child("path"), "")
	}
	c.checkFileName(s.Path, at.Child("path"))
}

func (c *check) checkPodCertificate(s *corev1.PodCertificateProjection, at *field.Path, claim func(string, any)) {
	signer.CheckName(&c.Report, at.Child("signerName"), s.SignerName)
	signer.CheckAnnotations(&c.Report, at.Child("userAnnotations"), s.UserAnnotations)
	report.OneOf(&c.Report, at.Child("keyType"), s.KeyType,
		"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
	if seconds, path := s.MaxExpirationSeconds, at.Child("maxExpirationSeconds"); seconds != nil {
		if *seconds < signer.MinSeconds {
			c.Invalid(path, *seconds, fmt.Sprintf("if provided, maxExpirationSeconds must be >= %d", signer.MinSeconds))
		}
		if limit := signer.MaxSeconds(s.SignerName); *seconds > limit {
			c.Invalid(path, *seconds, fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", limit))
		}
	}
	files := 0
	for _, f := range []struct{ field, path string }{
		{"credentialBundlePath", s.CredentialBundlePath}, {"keyPath", s.KeyPath},
		{"certificateChainPath", s.CertificateChainPath},
	} {
		if f.path != "" {
			files++
			c.checkFileName(f.path, at.Child(f.field))
			claim(f.path, f.path)
		}
	}
	if files == 0 {
		c.Required(at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")
	}
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"
	kubeletconfigv1alpha1 "k8s.io/kubelet/config/v1alpha1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	pluginapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	pluginv1alpha1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1alpha1"
	pluginv1beta1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1beta1"
	"sigs.k8s.io/yaml"
)

// readPlugins reads a CredentialProviderConfig from a file, or from all JSON and YAML files of a
// directory in the order of their names. It also returns the hash of the configuration that
// Kubernetes' kubelet exports as a metric: a hash of the lengths and contents of all files.
func readPlugins(path, bin string) (list []kubeletconfigv1.CredentialProvider, sum string, err error) {
	files, err := pluginFiles(path)
	if err != nil {
		return nil, "", err
	}
	hash := sha256.New()
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, "", err
		}
		hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		hash.Write(b)
		providers, err := decodePlugins(b)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", file, err)
		}
		list = append(list, providers...)
	}
	if len(list) == 0 {
		return nil, "", errors.New("at least 1 item in plugins is required")
	}
	names := map[string]bool{}
	for i := range list {
		if err := checkPlugin(&list[i], bin); err != nil {
			return nil, "", fmt.Errorf("plugin %q: %w", list[i].Name, err)
		}
		if names[list[i].Name] {
			return nil, "", fmt.Errorf("plugin %q is listed twice", list[i].Name)
		}
		names[list[i].Name] = true
	}
	return list, fmt.Sprintf("sha256:%x", hash.Sum(nil)), nil
}

// decodePlugins decodes one configuration file of any supported API version.
func decodePlugins(b []byte) ([]kubeletconfigv1.CredentialProvider, error) {
	c := kubeletconfigv1.CredentialProviderConfig{}
	if err := yaml.UnmarshalStrict(b, &c); err != nil {
		return nil, err
	}
	versions := []string{kubeletconfigv1.SchemeGroupVersion.String(),
		kubeletconfigv1beta1.SchemeGroupVersion.String(), kubeletconfigv1alpha1.SchemeGroupVersion.String()}
	if c.Kind != "CredentialProviderConfig" || !slices.Contains(versions, c.APIVersion) {
		return nil, fmt.Errorf("is %s %s, not %s CredentialProviderConfig", c.APIVersion, c.Kind,
			kubeletconfigv1.SchemeGroupVersion)
	}
	for _, p := range c.Providers {
		// tokenAttributes is the only field that the older API versions do not have.
		if p.TokenAttributes != nil && c.APIVersion != versions[0] {
			return nil, fmt.Errorf("%s has no tokenAttributes", c.APIVersion)
		}
	}
	return c.Providers, nil
}

func pluginFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no configuration files found in directory %q", path)
	}
	return files, nil
}

func checkPlugin(p *kubeletconfigv1.CredentialProvider, bin string) error {
	switch {
	case p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ \t\n"):
		return errors.New("the name is not a valid file name")
	case len(p.MatchImages) == 0:
		return errors.New("matchImages is required")
	case p.DefaultCacheDuration == nil || p.DefaultCacheDuration.Duration < 0:
		return errors.New("defaultCacheDuration is required and must not be negative")
	case !slices.Contains(pluginVersions(), p.APIVersion):
		return fmt.Errorf("apiVersion %q is not one of %v", p.APIVersion, pluginVersions())
	}
	for _, m := range p.MatchImages {
		if _, err := url.Parse("https://" + m); err != nil {
			return fmt.Errorf("matchImages: %w", err)
		}
	}
	if err := checkToken(p); err != nil {
		return fmt.Errorf("tokenAttributes: %w", err)
	}
	info, err := os.Stat(filepath.Join(bin, p.Name))
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not an executable file", filepath.Join(bin, p.Name))
	}
	return nil
}

// pluginVersions returns the supported API versions of requests to plugins and their responses.
func pluginVersions() []string {
	return []string{pluginapi.SchemeGroupVersion.String(), pluginv1beta1.SchemeGroupVersion.String(),
		pluginv1alpha1.SchemeGroupVersion.String()}
}

// checkToken validates tokenAttributes, with which a plugin requests service account tokens.
func checkToken(p *kubeletconfigv1.CredentialProvider) error {
	t := p.TokenAttributes
	if t == nil {
		return nil
	}
	switch {
	case p.APIVersion != pluginapi.SchemeGroupVersion.String():
		return fmt.Errorf("is only supported for %s", pluginapi.SchemeGroupVersion)
	case t.ServiceAccountTokenAudience == "":
		return errors.New("serviceAccountTokenAudience is required")
	case t.CacheType != kubeletconfigv1.ServiceAccountServiceAccountTokenCacheType &&
		t.CacheType != kubeletconfigv1.TokenServiceAccountTokenCacheType:
		return fmt.Errorf("cacheType %q is neither ServiceAccount nor Token", t.CacheType)
	case t.RequireServiceAccount == nil:
		return errors.New("requireServiceAccount is required")
	case len(t.RequiredServiceAccountAnnotationKeys) > 0 && !*t.RequireServiceAccount:
		return errors.New("requireServiceAccount must be true if annotations are required")
	}
	seen := map[string]bool{}
	for _, key := range slices.Concat(t.RequiredServiceAccountAnnotationKeys, t.OptionalServiceAccountAnnotationKeys) {
		if msgs := validation.IsQualifiedName(strings.ToLower(key)); len(msgs) > 0 {
			return fmt.Errorf("annotation %q: %s", key, strings.Join(msgs, ", "))
		}
		if seen[key] {
			return fmt.Errorf("annotation %q is listed twice", key)
		}
		seen[key] = true
	}
	return nil
}

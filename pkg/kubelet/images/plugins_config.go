// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	kubeletconfigv1 "k8s.io/kubelet/config/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	"sigs.k8s.io/yaml"
)

// readPlugins reads a CredentialProviderConfig: a file, or a directory whose files are taken in the order of their names.
func readPlugins(path, bin string) ([]kubeletconfigv1.CredentialProvider, error) {
	files, err := pluginFiles(path)
	if err != nil {
		return nil, err
	}
	var list []kubeletconfigv1.CredentialProvider
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		c := kubeletconfigv1.CredentialProviderConfig{}
		if err := yaml.UnmarshalStrict(b, &c); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if c.APIVersion != kubeletconfigv1.SchemeGroupVersion.String() || c.Kind != "CredentialProviderConfig" {
			return nil, fmt.Errorf("%s: is %s %s, not %s CredentialProviderConfig", file, c.APIVersion, c.Kind, kubeletconfigv1.SchemeGroupVersion)
		}
		list = append(list, c.Providers...)
	}
	if len(list) == 0 {
		return nil, errors.New("at least 1 item in plugins is required")
	}
	names := map[string]bool{}
	for i := range list {
		if err := checkPlugin(&list[i], bin); err != nil {
			return nil, fmt.Errorf("plugin %q: %w", list[i].Name, err)
		}
		if names[list[i].Name] {
			return nil, fmt.Errorf("plugin %q is there twice", list[i].Name)
		}
		names[list[i].Name] = true
	}
	return list, nil
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
	return files, nil
}

func checkPlugin(p *kubeletconfigv1.CredentialProvider, bin string) error {
	switch {
	case p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ \t\n"):
		return errors.New("the name is not that of a program")
	case len(p.MatchImages) == 0:
		return errors.New("matchImages is required")
	case p.DefaultCacheDuration == nil || p.DefaultCacheDuration.Duration < 0:
		return errors.New("defaultCacheDuration is required, and not less than 0")
	case p.APIVersion != pluginapi.SchemeGroupVersion.String():
		return fmt.Errorf("apiVersion %q is not %s", p.APIVersion, pluginapi.SchemeGroupVersion)
	}
	if t := p.TokenAttributes; t != nil {
		switch {
		case t.ServiceAccountTokenAudience == "":
			return errors.New("tokenAttributes.serviceAccountTokenAudience is required")
		case t.CacheType != kubeletconfigv1.ServiceAccountServiceAccountTokenCacheType && t.CacheType != kubeletconfigv1.TokenServiceAccountTokenCacheType:
			return fmt.Errorf("tokenAttributes.cacheType %q is neither ServiceAccount nor Token", t.CacheType)
		case t.RequireServiceAccount == nil:
			return errors.New("tokenAttributes.requireServiceAccount is required")
		case len(t.RequiredServiceAccountAnnotationKeys) > 0 && !*t.RequireServiceAccount:
			return errors.New("tokenAttributes.requireServiceAccount must be true where annotations are required")
		}
	}
	info, err := os.Stat(filepath.Join(bin, p.Name))
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not a program", filepath.Join(bin, p.Name))
	}
	return nil
}

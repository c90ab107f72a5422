// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

const noAssertion = "NOASSERTION"

// bill returns the bill of materials of the release in the format SPDX 2.3. It has a package for the
// release, for each image, program, Go module and component, and says which contains which.
func (r *release) bill(programs []program, parts []component, licences map[module]string) ([]byte, error) {
	b := newBill(r)
	for _, p := range programs {
		b.addProgram(p)
	}
	for _, m := range modules(programs) {
		b.addModule(m, licences[m])
	}
	for _, c := range parts {
		b.addComponent(c)
	}
	if err := b.addImages(r.Root); err != nil {
		return nil, err
	}
	out, err := json.MarshalIndent(b.doc, "", " ")
	if err != nil {
		return nil, fmt.Errorf("bill of materials: %w", err)
	}
	return append(out, '\n'), nil
}

type bill struct{ doc *spdx.Document }

const releaseID = common.ElementID("release")

func newBill(r *release) bill {
	b := bill{&spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: r.name(),
		DocumentNamespace: "https://keelson.dev/spdx/" + r.name() + "/" + r.Commit,
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{
				{CreatorType: "Organization", Creator: "The Keelson Authors"},
				{CreatorType: "Tool", Creator: "keelson.dev/keelson/hack/release-" + r.Version},
			},
			Created: r.Time.Format(time.RFC3339),
		},
	}}
	b.add(&spdx.Package{
		PackageName: "keelson", PackageSPDXIdentifier: releaseID, PackageVersion: r.Version,
		PackageLicenseDeclared: "Apache-2.0", PrimaryPackagePurpose: "APPLICATION",
		PackageSourceInfo: "built by hack/release.sh for linux/" + r.Arch + " from commit " + r.Commit,
	})
	b.relate("DOCUMENT", "DESCRIBES", releaseID)
	return b
}

// add adds a package, with the values that packages have if nothing else is known.
func (b bill) add(p *spdx.Package) {
	if p.PackageDownloadLocation == "" {
		p.PackageDownloadLocation = noAssertion
	}
	if p.PackageLicenseDeclared == "" {
		p.PackageLicenseDeclared = noAssertion // its parts have licences
	}
	p.PackageLicenseConcluded, p.PackageCopyrightText = noAssertion, noAssertion
	p.IsFilesAnalyzedTagPresent = true
	b.doc.Packages = append(b.doc.Packages, p)
}

func (b bill) relate(a common.ElementID, relation string, to common.ElementID) {
	b.doc.Relationships = append(b.doc.Relationships, &spdx.Relationship{
		RefA: common.DocElementID{ElementRefID: a}, Relationship: relation, RefB: common.DocElementID{ElementRefID: to},
	})
}

func (b bill) addProgram(p program) {
	b.add(&spdx.Package{
		PackageName: p.Name, PackageSPDXIdentifier: id("program", p.Name), PackageFileName: p.Name,
		PrimaryPackagePurpose: "APPLICATION", PackageChecksums: sha256Sum(p.SHA256),
	})
	if p.Image == "" {
		b.relate(releaseID, "CONTAINS", id("program", p.Name))
	} else {
		b.relate(imageID(p.Image), "CONTAINS", id("program", p.Name))
	}
	for _, m := range p.Modules {
		b.relate(id("program", p.Name), "STATIC_LINK", id("module", m.String()))
	}
}

func (b bill) addModule(m module, licence string) {
	b.add(&spdx.Package{
		PackageName: m.Path, PackageSPDXIdentifier: id("module", m.String()), PackageVersion: m.Version,
		PackageLicenseDeclared: licence, PrimaryPackagePurpose: "LIBRARY",
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: "PACKAGE-MANAGER", RefType: "purl", Locator: "pkg:golang/" + m.String(),
		}},
	})
}

func (b bill) addComponent(c component) {
	b.add(&spdx.Package{
		PackageName: c.Name, PackageSPDXIdentifier: id("component", c.Name), PackageVersion: c.Version,
		PackageLicenseDeclared: c.Licence, PackageSourceInfo: c.Origin, PrimaryPackagePurpose: "LIBRARY",
	})
	for _, p := range c.Programs {
		b.relate(id("program", p), "STATIC_LINK", id("component", c.Name))
	}
}

// addImages adds the archives of images that the release has.
func (b bill) addImages(root string) error {
	archives, err := filepath.Glob(filepath.Join(root, "images", "*.tar"))
	if err != nil {
		return err
	}
	for _, a := range archives {
		sum, err := sha256File(a)
		if err != nil {
			return err
		}
		name := filepath.Base(a)
		image := imageID(strings.TrimSuffix(name, ".tar"))
		b.add(&spdx.Package{
			PackageName: "images/" + name, PackageSPDXIdentifier: image, PackageFileName: "images/" + name,
			PrimaryPackagePurpose: "CONTAINER", PackageChecksums: sha256Sum(sum),
		})
		b.relate(releaseID, "CONTAINS", image)
	}
	return nil
}

func sha256Sum(sum string) []common.Checksum {
	return []common.Checksum{{Algorithm: common.SHA256, Value: sum}}
}

func imageID(image string) common.ElementID { return id("image", image) }

var notInID = regexp.MustCompile(`[^a-zA-Z0-9.]+`)

// id returns the identifier of an element. SPDX allows only letters, digits, dots and dashes.
func id(kind, name string) common.ElementID {
	return common.ElementID(kind + "-" + notInID.ReplaceAllString(name, "-"))
}

// inputs returns a JSON document with all that the bytes of the release depend on.
func (r *release) inputs(programs []program, packages []debianPackage) ([]byte, error) {
	sums := map[string]string{}
	for _, name := range []string{"go.sum", "go.work.sum", "hack/tools/go.sum", "hack/tools/coredns/go.sum",
		"hack/tools/etcd/go.sum", "hack/release/go.sum", "hack/crun.sh"} {
		sum, err := sha256File(filepath.Join(r.Source, name))
		if err != nil {
			return nil, err
		}
		sums[name] = sum
	}
	versions := map[string]string{}
	for _, p := range packages {
		versions[p.Name] = p.Version
	}
	var goVersion string
	for _, p := range programs {
		goVersion = max(goVersion, p.Go)
	}
	out, err := json.MarshalIndent(struct {
		Version, Commit, Time, Arch, Go string
		// DebianPackages has the versions of the packages with compilers and C libraries, and Files
		// the SHA-256 digests of files that name all other sources.
		DebianPackages, Files map[string]string
	}{r.Version, r.Commit, r.Time.Format(time.RFC3339), r.Arch, goVersion, versions, sums}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("inputs: %w", err)
	}
	return append(out, '\n'), nil
}

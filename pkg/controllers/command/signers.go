// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/spf13/pflag"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/util/cert"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// signerFlags returns the signers that can have their own certificate authority. The keys are the
// signers' names in flags.
func signerFlags() map[string]string {
	return map[string]string{
		"kubelet-serving":       certificatesv1.KubeletServingSignerName,
		"kubelet-client":        certificatesv1.KubeAPIServerClientKubeletSignerName,
		"kube-apiserver-client": certificatesv1.KubeAPIServerClientSignerName,
		"legacy-unknown":        "kubernetes.io/legacy-unknown",
	}
}

// keyFiles are the file names of a certificate and its private key.
type keyFiles struct{ cert, key string }

func (o *options) addSigners(fs *pflag.FlagSet) {
	o.signers = map[string]*keyFiles{}
	for name := range signerFlags() {
		f := &keyFiles{}
		o.signers[name] = f
		fs.StringVar(&f.cert, "cluster-signing-"+name+"-cert-file", "", "file with the CA certificate "+
			"that signs certificates of the signer "+signerFlags()[name]+"; cannot be combined with "+
			"--cluster-signing-cert-file; if empty, that certificate is used")
		fs.StringVar(&f.key, "cluster-signing-"+name+"-key-file", "", "file with the private key of --cluster-signing-"+
			name+"-cert-file")
	}
}

var (
	errHalfSigner = errors.New("a certificate and a key are needed")
	errTwoSigners = errors.New("cannot be set together with --cluster-signing-cert-file and --cluster-signing-key-file")
)

// readSigners reads the files of the certificate authorities that are set for a single signer.
func (o *options) readSigners() error {
	for name, f := range o.signers {
		var err error
		switch {
		case f.cert == "" && f.key == "":
			continue
		case o.signCert != "" || o.signKey != "":
			err = errTwoSigners
		case f.cert == "" || f.key == "":
			err = errHalfSigner
		}
		var pair controller.KeyPair
		if err == nil {
			pair, err = f.read()
		}
		if err != nil {
			return fmt.Errorf("--cluster-signing-%s-{cert,key}-file: %w", name, err)
		}
		if o.controller.Signers == nil {
			o.controller.Signers = map[string]controller.KeyPair{}
		}
		pair.Read = f.read
		o.controller.Signers[signerFlags()[name]] = pair
	}
	return nil
}

// read reads the files. If the certificate's file is NAME.crt, and there is a file NAME-cross.crt, it
// has cross certificates.
func (f *keyFiles) read() (pair controller.KeyPair, err error) {
	if pair.Cert, err = os.ReadFile(f.cert); err != nil {
		return pair, err
	}
	if pair.Key, err = os.ReadFile(f.key); err != nil {
		return pair, err
	}
	name, ok := strings.CutSuffix(f.cert, ".crt")
	if !ok {
		return pair, nil
	}
	pair.Cross, err = os.ReadFile(name + "-cross.crt")
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return pair, err
}

// followRootCA returns a function that reads a file with certificates. It returns a new content when it
// has read it twice in a row, because the file may be written in place. Otherwise, or if the content is not
// complete, it returns the previous one, which is the given one at first.
func followRootCA(file string, last []byte) func() []byte {
	var mu sync.Mutex
	var before []byte // what was read before
	return func() []byte {
		mu.Lock()
		defer mu.Unlock()
		data, err := os.ReadFile(file)
		if err != nil || bytes.Equal(data, last) {
			data = nil
		}
		if data != nil && bytes.Equal(data, before) && areCertificates(data) {
			last = data
		}
		before = data
		return last
	}
}

// areCertificates reports whether data has certificates, and nothing after the last one. A file that is
// still being written ends with half of one.
func areCertificates(data []byte) bool {
	if _, err := cert.ParseCertsPEM(data); err != nil {
		return false
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(data) {
		data = rest
	}
	return len(bytes.TrimSpace(data)) == 0
}

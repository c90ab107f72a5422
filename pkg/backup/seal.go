// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"filippo.io/age"
)

const (
	// minPassphrase is the minimum length of a passphrase in bytes. All keys of the cluster are in the
	// backup, and an attacker with the file can try passphrases without limit.
	minPassphrase = 12
	// maxSecretFile is the maximum size of a file with a passphrase, identities or recipients.
	maxSecretFile = 64 << 10
)

var (
	errShort    = fmt.Errorf("the passphrase has fewer than %d bytes", minPassphrase)
	errTooLarge = errors.New("the file is too large")
	// ErrKey is returned for a backup that the given passphrase or identity cannot open.
	ErrKey = errors.New("the passphrase or the identity is not that of this backup")
)

// Passphrase reads a passphrase from a file. Line breaks at its end are not part of it.
func Passphrase(file string) (string, error) {
	data, err := readSecret(file)
	if err != nil {
		return "", err
	}
	passphrase := strings.TrimRight(string(data), "\r\n")
	if len(passphrase) < minPassphrase {
		return "", fmt.Errorf("%s: %w", file, errShort)
	}
	return passphrase, nil
}

// SealWith returns the recipient of backups that the passphrase opens.
func SealWith(passphrase string) (age.Recipient, error) { return age.NewScryptRecipient(passphrase) }

// OpenWith returns the identity that opens the backups of SealWith.
func OpenWith(passphrase string) (age.Identity, error) { return age.NewScryptIdentity(passphrase) }

// Recipients returns the recipients in a list, and those in a file, one a line. The file's name may be
// empty.
func Recipients(list []string, file string) ([]age.Recipient, error) {
	text := strings.Join(list, "\n")
	if file != "" {
		data, err := readSecret(file)
		if err != nil {
			return nil, err
		}
		text += "\n" + string(data)
	}
	out, err := age.ParseRecipients(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("recipients: %w", err)
	}
	return out, nil
}

// Identities reads the identities in a file, which age-keygen writes.
func Identities(file string) ([]age.Identity, error) {
	data, err := readSecret(file)
	if err != nil {
		return nil, err
	}
	out, err := age.ParseIdentities(strings.NewReader(string(data)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return out, nil
}

func readSecret(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxSecretFile {
		return nil, fmt.Errorf("%s: %w", file, errTooLarge)
	}
	return os.ReadFile(file)
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
)

// Sizes of the socket's buffers in bytes. All netlink messages of a transaction are sent in one
// system call, so sendBuffer limits the size of a transaction. The kernel uses this memory only
// during the call.
const (
	sendBuffer    = 256 << 20
	receiveBuffer = 16 << 20
	// elementsPerMessage is the maximum number of elements in one message. It keeps the list of
	// elements below 64 KiB, the maximum size of a netlink attribute.
	elementsPerMessage = 256
)

// Conn is a connection to the kernel's nftables. It collects changes until Commit sends them in one
// transaction. It must not be used concurrently.
type Conn struct {
	*nftables.Conn
	netNS int
}

// Open connects to the kernel in the network namespace netNS, or in the process's namespace if
// netNS is 0. It changes nothing.
func Open(netNS int) (*Conn, error) {
	c := &Conn{netNS: netNS}
	return c, c.dial()
}

func (c *Conn) dial() error {
	conn, err := nftables.New(nftables.WithNetNSFd(c.netNS), nftables.AsLasting(),
		nftables.WithSockOptions(func(s *netlink.Conn) error {
			return errors.Join(s.SetWriteBuffer(sendBuffer), s.SetReadBuffer(receiveBuffer))
		}))
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	c.Conn = conn
	return nil
}

// Close closes the connection. It changes nothing in the kernel.
func (c *Conn) Close() error { return c.CloseLasting() }

// Commit sends the collected changes in one transaction. The argument made is the error with which
// the caller failed to collect the changes, or nil. If it is set, Commit drops the changes and
// returns the error.
func (c *Conn) Commit(made error) error {
	if made == nil {
		return cause(c.Flush())
	}
	_ = c.CloseLasting()
	return errors.Join(made, c.dial())
}

// cause returns the first error of a transaction. The kernel returns an error for each message.
func cause(err error) error {
	for err != nil {
		switch e := err.(type) { //nolint:errorlint // the loop unwraps all errors
		case interface{ Unwrap() []error }:
			err = e.Unwrap()[0]
		case interface{ Unwrap() error }:
			if e.Unwrap() == nil {
				return err
			}
			err = e.Unwrap()
		default:
			return err
		}
	}
	return nil
}

// Present reports whether a table exists. It is missing after another program has flushed the
// ruleset.
func (c *Conn) Present(t *nftables.Table) (bool, error) {
	tables, err := c.ListTablesOfFamily(t.Family)
	if err != nil {
		return false, fmt.Errorf("list tables: %w", err)
	}
	for _, have := range tables {
		if have.Name == t.Name {
			return true, nil
		}
	}
	return false, nil
}

// Renew deletes a table, if it exists, and creates an empty one.
func (c *Conn) Renew(t *nftables.Table) {
	c.Drop(t)
	c.AddTable(t)
}

// Drop deletes a table if it exists.
func (c *Conn) Drop(t *nftables.Table) {
	c.AddTable(t) // deleting a missing table would fail, so add it first
	c.DelTable(t)
}

// Put adds elements to a set.
func (c *Conn) Put(s *nftables.Set, list []nftables.SetElement) error {
	return chunks(s, list, c.SetAddElements)
}

// Take deletes elements of a set.
func (c *Conn) Take(s *nftables.Set, list []nftables.SetElement) error {
	return chunks(s, list, c.SetDeleteElements)
}

func chunks(s *nftables.Set, list []nftables.SetElement, do func(*nftables.Set, []nftables.SetElement) error) error {
	for len(list) > 0 {
		n := min(len(list), elementsPerMessage)
		if err := do(s, list[:n]); err != nil {
			return fmt.Errorf("set %s: %w", s.Name, err)
		}
		list = list[n:]
	}
	return nil
}

// Concat returns the type of a key with several fields. It panics if there are too many fields.
func Concat(types ...nftables.SetDatatype) nftables.SetDatatype {
	return nftables.MustConcatSetType(types...)
}

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
)

// Netlink takes a transaction as one message, so the buffer bounds what a
// full resync may bring; the kernel's memory is used only while it is sent.
const (
	sendBuffer    = 256 << 20
	receiveBuffer = 16 << 20
	// elementsPerMessage keeps the list of elements below the 64 KiB of an attribute.
	elementsPerMessage = 256
)

// Conn is a connection to the kernel's nftables. What is told to it is made together, by
// Commit. It is for one goroutine.
type Conn struct {
	*nftables.Conn
	netNS int
}

// Open connects to the kernel, in the network namespace netNS, or in that of the
// process if it is 0. It changes nothing.
func Open(netNS int) (*Conn, error) {
	c := &Conn{netNS: netNS}
	return c, c.dial()
}

func (c *Conn) dial() error {
	conn, err := nftables.New(nftables.WithNetNSFd(c.netNS), nftables.AsLasting(), nftables.WithSockOptions(func(s *netlink.Conn) error {
		return errors.Join(s.SetWriteBuffer(sendBuffer), s.SetReadBuffer(receiveBuffer))
	}))
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	c.Conn = conn
	return nil
}

// Close ends the connection; nothing in the kernel changes.
func (c *Conn) Close() error { return c.CloseLasting() }

// Commit makes what has been told in one transaction, unless telling it went wrong: then it
// is dropped, and made is returned.
func (c *Conn) Commit(made error) error {
	if made == nil {
		return cause(c.Flush())
	}
	_ = c.CloseLasting()
	return errors.Join(made, c.dial())
}

// cause is the first of the errors that one transaction got, one for each message.
func cause(err error) error {
	for err != nil {
		switch e := err.(type) {
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

// Present tells whether a table is there: others may have flushed the ruleset.
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

// Renew has a table be there, with nothing in it.
func (c *Conn) Renew(t *nftables.Table) {
	c.Drop(t)
	c.AddTable(t)
}

// Drop has a table not be there.
func (c *Conn) Drop(t *nftables.Table) {
	c.AddTable(t) // so that there is one to delete
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

// Concat is a key of several fields, which must be few enough.
func Concat(types ...nftables.SetDatatype) nftables.SetDatatype {
	return nftables.MustConcatSetType(types...)
}

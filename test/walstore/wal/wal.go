// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wal is a write-ahead log: a sequence of records in a file. When Append returns, the
// record is on the disk. Open reads all complete records. If a crash has left an incomplete record
// at the end, Open removes it; such a record was never acknowledged.
//
// A record is stored as its length (4 bytes), its CRC32C checksum (4 bytes) and its bytes.
package wal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// MaxRecord is the maximum size of a record in bytes.
const MaxRecord = 1 << 16

const header = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errLarge = errors.New("record is empty or too large")

// Log is an open log. It is safe for concurrent use.
type Log struct {
	mu     sync.Mutex
	file   *os.File
	failed error // first error of a write; the end of the file may be damaged after it
}

// Open opens a log, and creates the file if it does not exist. It calls the given function with
// every record in the log.
func Open(path string, each func([]byte)) (*Log, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	end, err := read(f, each)
	if err == nil {
		err = f.Truncate(end)
	}
	if err == nil {
		_, err = f.Seek(end, io.SeekStart)
	}
	if err == nil {
		err = errors.Join(f.Sync(), syncDir(filepath.Dir(path)))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("log: %w", err), f.Close())
	}
	return &Log{file: f}, nil
}

// read calls the given function with every record, and returns the position of the end of the last
// complete record.
func read(f io.Reader, each func([]byte)) (int64, error) {
	r := bufio.NewReader(f)
	var end int64
	for {
		var head [header]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return end, cut(err)
		}
		size, sum := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(head[4:])
		if size == 0 || size > MaxRecord {
			return end, nil
		}
		record := make([]byte, size)
		if _, err := io.ReadFull(r, record); err != nil {
			return end, cut(err)
		}
		if crc32.Checksum(record, castagnoli) != sum {
			return end, nil
		}
		each(record)
		end += header + int64(size)
	}
}

// cut returns nil if err only means that the file has ended, even in the middle of a record. It
// returns all other errors unchanged.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// Append adds a record and syncs it to disk.
func (l *Log) Append(record []byte) error {
	if len(record) == 0 || len(record) > MaxRecord {
		return errLarge
	}
	b := make([]byte, header, header+len(record))
	binary.LittleEndian.PutUint32(b, uint32(len(record)))
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(record, castagnoli))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return l.failed
	}
	_, err := l.file.Write(append(b, record...))
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		l.failed = fmt.Errorf("log accepts no records after a failed write: %w", err)
	}
	return l.failed
}

// Close closes the log's file.
func (l *Log) Close() error { return l.file.Close() }

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

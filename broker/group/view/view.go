package view

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/weirlog/weir/internal/boltfile"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// The tables of the file.
var (
	positionTable = []byte("positions") // by partition: how far it was applied
	rowsTable     = []byte("rows")      // by partition: a table of its rows
)

// View is the open file.
type View struct {
	db       *bbolt.DB
	path     string
	pageSize int64
}

// Position says how far the log of a partition was applied.
type Position struct {
	ID    topic.ID     // of the topic: one that was made again has another log
	End   topic.Offset // everything below it is in the rows
	Epoch topic.Epoch  // of the record before End, or NoEpoch
	At    topic.Millis // when the rows last had all of the log, or were begun: what they lack was deleted later
}

// Change is one row to set, or with a nil Value to delete.
type Change struct {
	Key, Value []byte
}

// Update is what Apply takes, for one of several partitions.
type Update struct {
	Partition topic.Partition
	To        Position
	Changes   []Change
}

// Position returns how far a partition was applied, the zero Position when it never was.
func (v *View) Position(p topic.Partition) (Position, error) {
	var at Position
	err := v.look("view.Position", p, func(tx *bbolt.Tx) error {
		l, err := readLedger(tx, p)
		at = l.at
		return err
	})
	return at, err
}

// Load calls f for each row of a partition, by key, and returns its position. f sees nothing of rows that are
// damaged, and may keep neither slice. An error of f ends the call and is returned as it is.
func (v *View) Load(p topic.Partition, f func(key, value []byte) error) (Position, error) {
	var l ledger
	var all copied
	err := v.look("view.Load", p, func(tx *bbolt.Tx) (err error) {
		if l, err = readLedger(tx, p); err != nil {
			return err
		}
		all, err = l.copy(tx, p)
		return err
	})
	if err != nil {
		return Position{}, err
	}
	// Outside the transaction: while one reads, the file's pages pile up and it cannot grow.
	return l.at, all.each(f)
}

// Apply makes changes to the rows of a partition, in order, and sets its position, in one transaction.
func (v *View) Apply(p topic.Partition, to Position, changes []Change) error {
	return v.ApplyAll([]Update{{p, to, changes}})
}

// ApplyAll is [View.Apply] for several partitions in one transaction, which costs as much as for one.
func (v *View) ApplyAll(updates []Update) error {
	return v.change("view.Apply", func(tx *bbolt.Tx) error {
		for _, u := range updates {
			if err := u.apply(tx); err != nil {
				return fmt.Errorf("partition %d: %w", u.Partition, err)
			}
		}
		return nil
	})
}

func (u *Update) apply(tx *bbolt.Tx) error {
	l, err := readLedger(tx, u.Partition)
	if err != nil {
		return err
	}
	rows, err := tx.Bucket(rowsTable).CreateBucketIfNotExists(number(u.Partition))
	if err != nil {
		return err
	}
	for _, c := range u.Changes {
		if old := rows.Get(c.Key); old != nil {
			l.take(c.Key, old)
		}
		if c.Value == nil {
			err = rows.Delete(c.Key)
		} else {
			l.add(c.Key, c.Value)
			err = rows.Put(c.Key, c.Value)
		}
		if err != nil {
			return err
		}
	}
	l.at = u.To
	return tx.Bucket(positionTable).Put(number(u.Partition), l.append(nil, u.Partition))
}

// Reset drops the rows of a partition and its position.
func (v *View) Reset(p topic.Partition) error {
	return v.change("view.Reset", func(tx *bbolt.Tx) error {
		err := tx.Bucket(rowsTable).DeleteBucket(number(p))
		if err != nil && !errors.Is(err, bbolterrors.ErrBucketNotFound) {
			return err
		}
		return tx.Bucket(positionTable).Delete(number(p))
	})
}

// Size returns the bytes of the file, and how many of them are free: it grows with what is in it, and what is
// deleted makes room for what comes, but it never shrinks.
func (v *View) Size() (file, free int64) {
	stats := v.db.Stats()
	free = int64(stats.FreePageN+stats.PendingPageN) * v.pageSize
	if info, err := os.Stat(v.path); err == nil {
		file = info.Size()
	}
	return file, free
}

// Close waits for the calls that run and closes the file. Calls that come later are refused.
func (v *View) Close() error { return v.fault("view.Close", nil, v.db.Close()) }

// look runs f in a transaction that reads.
func (v *View) look(op string, p topic.Partition, f func(*bbolt.Tx) error) error {
	return v.fault(op, p, boltfile.Guard(func() error { return v.db.View(f) }))
}

// change runs f in a transaction that writes. When it returns nil the disk has everything.
func (v *View) change(op string, f func(*bbolt.Tx) error) error {
	return v.fault(op, nil, boltfile.Guard(func() error { return v.db.Update(f) }))
}

// fault gives an error its kind.
func (v *View) fault(op string, where any, err error) error {
	if err == nil {
		return nil
	}
	kind := fault.Internal
	switch {
	case boltfile.IsDamage(err):
		kind = fault.Corrupt
	case errors.Is(err, bbolterrors.ErrDatabaseNotOpen):
		kind = fault.Closed
	}
	if where == nil {
		where = filepath.Base(v.path)
	}
	return fault.New(op, kind, where, err)
}

package boltfile

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// openTimeout is how long to wait for the lock of another process.
const openTimeout = time.Second

// ErrLocked says that another process has the file open.
var ErrLocked = bbolterrors.ErrTimeout

// Options are those of every file: it is synced with each transaction, and the list of free pages is found
// by reading when it is opened instead of written with each.
func Options() *bbolt.Options {
	return &bbolt.Options{Timeout: openTimeout, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}
}

// damageError says that the bytes of a file are bad, as opposed to a disk that could not be read.
type damageError struct{ err error }

func (e *damageError) Error() string { return e.err.Error() }
func (e *damageError) Unwrap() error { return e.err }

// Damaged is an error that says that the bytes of a file are bad.
func Damaged(format string, args ...any) error {
	return &damageError{fmt.Errorf(format, args...)}
}

// IsDamage says whether an error is, or wraps, one of [Damaged].
func IsDamage(err error) bool {
	var damage *damageError
	return errors.As(err, &damage)
}

// Guard calls f, which uses bbolt, and turns a panic, and a fault on mapped memory, into damage.
func Guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = Damaged("%v", v)
		}
	}()
	err = f()
	for _, bad := range []error{bbolterrors.ErrInvalid, bbolterrors.ErrVersionMismatch, bbolterrors.ErrChecksum, bbolterrors.ErrInvalidMapping} {
		if errors.Is(err, bad) {
			return &damageError{err}
		}
	}
	return err
}

// Open walks the file with check and then opens it for writing.
func Open(path string, check func(*bbolt.Tx) error) (*bbolt.DB, error) {
	if err := Walk(path, check); err != nil {
		return nil, err
	}
	var db *bbolt.DB
	err := Opening(Options(), func(options *bbolt.Options) (err error) {
		db, err = bbolt.Open(path, 0o600, options)
		return err
	})
	return db, err
}

// Opening calls open with options that remember the file, and closes it, with its lock, where open panics.
func Opening(options *bbolt.Options, open func(*bbolt.Options) error) error {
	var file *os.File
	options.OpenFile = func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
		file, err = os.OpenFile(name, flag, mode)
		return file, err
	}
	err := Guard(func() error { return open(options) })
	if IsDamage(err) && file != nil {
		_ = file.Close() // when a panic left it open; the damage is what matters
	}
	return err
}

// Walk reads every page of the file and writes nothing; check, when there is one, reads the rows then.
func Walk(path string, check func(*bbolt.Tx) error) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a file", path)
	case info.Size() == 0: // bbolt would take it for a new one
		return Damaged("the file is empty")
	}
	options := Options()
	options.ReadOnly = true // maps the file and reads its two heads, and nothing else
	return Opening(options, func(options *bbolt.Options) error {
		db, err := bbolt.Open(path, 0o600, options)
		if err != nil {
			if strings.Contains(err.Error(), "file size too small") {
				return &damageError{err}
			}
			return err
		}
		return errors.Join(walk(db, path, check), db.Close())
	})
}

// walk goes beside bbolt's map of the file: what is not there would be a fault of memory in it.
func walk(db *bbolt.DB, path string, check func(*bbolt.Tx) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil {
		err = checkPages(file, info.Size(), db.Info().PageSize)
	}
	if err = errors.Join(err, file.Close()); err != nil || check == nil {
		return err
	}
	return db.View(check)
}

// Rows calls row for each row of a table, which must be there. It touches every byte, so that a page that
// cannot be read shows here.
func Rows(table *bbolt.Bucket, row func(key, value []byte) error) error {
	if table == nil {
		return Damaged("a table is missing in the file")
	}
	var sum byte
	err := table.ForEach(func(key, value []byte) error {
		for _, b := range value {
			sum ^= b
		}
		return row(key, value)
	})
	runtime.KeepAlive(sum)
	return err
}

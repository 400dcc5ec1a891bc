package view

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/weirlog/weir/internal/boltfile"
	"github.com/weirlog/weir/internal/fault"
)

const (
	newSuffix   = ".new" // a file that was being made when the process ended
	asideSuffix = ".aside-"
	asidesKept  = 3
)

// Open opens the file, and makes it, and its directory, when it is not there. One that is damaged is put aside
// under another name, for whoever wants to know why, and made anew. An error is one of the disk, or says that
// another process has the file.
func Open(path string, logger *slog.Logger) (*View, error) {
	v := &View{path: path}
	if err := v.open(logger); err != nil {
		if errors.Is(err, boltfile.ErrLocked) {
			err = errors.New("another process has the groups' view open")
		}
		return nil, fault.New("view.Open", fault.Internal, path, err)
	}
	v.pageSize = int64(v.db.Info().PageSize)
	return v, nil
}

func (v *View) open(logger *slog.Logger) error {
	if err := boltfile.MakeDir(filepath.Dir(v.path)); err != nil {
		return err
	}
	if err := remove(v.path + newSuffix); err != nil {
		return err
	}
	var err error
	v.db, err = boltfile.Open(v.path, checkAll)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
	case boltfile.IsDamage(err):
		aside, moved := putAside(v.path)
		if moved != nil {
			return errors.Join(err, moved)
		}
		logger.Warn("the groups' view was damaged and is made anew from the log", "path", v.path, "aside", aside, "err", err)
	default:
		return err
	}
	if err := create(v.path); err != nil {
		return err
	}
	v.db, err = boltfile.Open(v.path, checkAll)
	return err
}

// create makes an empty file aside: it has its name only when it is complete.
func create(path string) error {
	db, err := bbolt.Open(path+newSuffix, 0o600, boltfile.Options())
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err1 := tx.CreateBucket(positionTable)
		_, err2 := tx.CreateBucket(rowsTable)
		return errors.Join(err1, err2)
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	return boltfile.Rename(path+newSuffix, path)
}

// putAside gives a file the next name that ends in .aside-N. The last few of them are kept.
func putAside(path string) (string, error) {
	numbers, err := asides(path)
	if err != nil {
		return "", err
	}
	next := 1
	if len(numbers) > 0 {
		next = numbers[len(numbers)-1] + 1
	}
	for len(numbers) >= asidesKept {
		if err := remove(path + asideSuffix + strconv.Itoa(numbers[0])); err != nil {
			return "", err
		}
		numbers = numbers[1:]
	}
	aside := path + asideSuffix + strconv.Itoa(next)
	return aside, boltfile.Rename(path, aside)
}

// asides returns the numbers of the files that were put aside, ascending.
func asides(path string) ([]int, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, e := range entries {
		if text, found := strings.CutPrefix(e.Name(), filepath.Base(path)+asideSuffix); found {
			if n, err := strconv.Atoi(text); err == nil && n > 0 && strconv.Itoa(n) == text {
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// remove removes a file that need not be there.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot be removed: %w", err)
	}
	return nil
}

package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/nats-io/nuid"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

const (
	logName       = "raft.db"
	snapshotsDir  = "snapshots" // raft's own name for it
	newSuffix     = ".new"      // a log that was being made when the process ended: never the only copy of anything
	damagedSuffix = ".damaged"  // set aside for an operator, never opened again
	snapshotsKept = 2
	openTimeout   = time.Second // for the lock of another process
)

// Keys beside raft's own in the log's file.
var (
	keyCluster = []byte("weir.cluster")
	keyNode    = []byte("weir.node")

	keyCurrentTerm = []byte("CurrentTerm") // raft's own
)

// files are the open files of a quorum.
type files struct {
	dir       string
	log       string // path of raft.db
	bolt      *raftboltdb.BoltStore
	snapshots *raft.FileSnapshotStore
	clusterID string
	inspect   bool // only look: nothing is written or set aside
}

// openFiles opens the log and the snapshots, or makes them when the directory never had any.
func openFiles(cfg Config, logger *slog.Logger) (*files, error) {
	f := &files{dir: cfg.Dir, log: filepath.Join(cfg.Dir, logName)}
	if err := makeDir(cfg.Dir); err != nil {
		return nil, err
	}
	if err := f.sweep(); err != nil {
		return nil, err
	}
	var err error
	if f.snapshots, err = raft.NewFileSnapshotStoreWithLogger(cfg.Dir, snapshotsKept, bridge(logger)); err != nil {
		return nil, err
	}
	switch _, err := os.Stat(f.log); {
	case err == nil:
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	default:
		if err := f.mayFound(cfg); err != nil {
			return nil, err
		}
		id := cfg.ClusterID
		if id == "" {
			id = nuid.Next()
		}
		if err := f.found(id, cfg.Node); err != nil {
			return nil, fmt.Errorf("a new metadata log could not be made: %w", err)
		}
		logger.Info("founded a cluster", "cluster", id, "node", cfg.Node)
	}
	if f.bolt, err = f.openLog(); err != nil {
		return nil, err
	}
	if err := guarded(func() error { return f.identify(cfg) }); err != nil {
		return nil, errors.Join(err, f.bolt.Close())
	}
	return f, nil
}

// sweep removes what a crash left half made.
func (f *files) sweep() error {
	if err := os.Remove(f.log + newSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	half, err := filepath.Glob(filepath.Join(f.dir, snapshotsDir, "*.tmp"))
	if err != nil {
		return err
	}
	for _, dir := range half {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

// mayFound refuses to begin anew where there was a log: it would forget every topic.
func (f *files) mayFound(cfg Config) error {
	snapshots, err := f.snapshots.List()
	if err != nil {
		return err
	}
	damaged, err := filepath.Glob(f.log + damagedSuffix + "*")
	if err != nil {
		return err
	}
	var trace string
	switch {
	case len(damaged) > 0:
		trace = "a damaged one was set aside as " + damaged[len(damaged)-1]
	case len(snapshots) > 0:
		trace = "there are snapshots of it"
	case !cfg.Found:
		trace = "the data directory is not new"
	default:
		return nil
	}
	return f.lost(fmt.Errorf("the metadata log is missing, and %s", trace))
}

// lost is the refusal to start without the log of the only voter.
func (f *files) lost(why error) error {
	return fault.Newf("quorum.Open", fault.Corrupt, f.log,
		"%w; it says which topics exist, so the node does not start without it: bring %s back from a backup, or have it made anew from what is there "+
			"with `weir metadata rebuild %s` (\"Recovery\" in docs/metadata.md)", why, filepath.Clean(f.dir), filepath.Dir(filepath.Clean(f.dir)))
}

// found makes a log with this node as the only voter. It stands under its name only when it is complete.
func (f *files) found(clusterID string, node topic.NodeID) error {
	return f.makeLog(clusterID, node, func(bolt *raftboltdb.BoltStore) error {
		id := serverID(node)
		return raft.BootstrapCluster(raftConfig(node), bolt, bolt, f.snapshots, newTransport(id), onlyVoter(id))
	})
}

func onlyVoter(id raft.ServerID) raft.Configuration {
	return raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: id, Address: raft.ServerAddress(id)}}}
}

// makeLog makes a log aside, lets fill write to it, and renames it into place.
func (f *files) makeLog(clusterID string, node topic.NodeID, fill func(*raftboltdb.BoltStore) error) error {
	aside := f.log + newSuffix
	bolt, err := raftboltdb.New(raftboltdb.Options{Path: aside, BoltOptions: boltOptions()})
	if err != nil {
		return err
	}
	err = errors.Join(
		bolt.Set(keyCluster, []byte(clusterID)),
		bolt.SetUint64(keyNode, uint64(node)),
		fill(bolt),
	)
	if err := errors.Join(err, bolt.Close()); err != nil {
		return err
	}
	if err := os.Rename(aside, f.log); err != nil {
		return err
	}
	return syncDir(f.dir)
}

func boltOptions() *bbolt.Options {
	return &bbolt.Options{Timeout: openTimeout, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}
}

// openLog opens the log for writing after its pages were walked: bbolt panics over a bad page, also in
// goroutines of its own where nothing can catch it.
func (f *files) openLog() (*raftboltdb.BoltStore, error) {
	if err := walk(f.log); err != nil {
		return nil, f.openError(err)
	}
	var file *os.File
	options := boltOptions()
	options.ReadOnly = f.inspect
	options.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		var err error
		file, err = os.OpenFile(name, flag, mode)
		return file, err
	}
	var bolt *raftboltdb.BoltStore
	err := guarded(func() error {
		var err error
		bolt, err = raftboltdb.New(raftboltdb.Options{Path: f.log, BoltOptions: options})
		return err
	})
	var damage *damageError
	if errors.As(err, &damage) && file != nil {
		err = errors.Join(err, file.Close()) // with its lock
	}
	if err != nil {
		return nil, f.openError(err)
	}
	return bolt, nil
}

// openError sets a damaged log aside; other troubles leave it where it is.
func (f *files) openError(err error) error {
	var damage *damageError
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return fault.Newf("quorum.Open", fault.Internal, f.log, "another process has the metadata log open")
	case !errors.As(err, &damage):
		return fault.New("quorum.Open", fault.Internal, f.log, err)
	}
	if f.inspect {
		return f.lost(fmt.Errorf("the metadata log is damaged (%w)", err))
	}
	aside, moveErr := setAside(f.log)
	if moveErr != nil {
		return f.lost(errors.Join(err, moveErr))
	}
	return f.lost(fmt.Errorf("the metadata log is damaged and was set aside as %s (%w)", aside, err))
}

// setAside renames a file or directory to the next free name that ends in .damaged-N, beside raft.db.
func setAside(path string) (string, error) {
	dir := filepath.Dir(path)
	base := path
	if filepath.Base(dir) == snapshotsDir {
		dir = filepath.Dir(dir)
		base = filepath.Join(dir, "snapshot-"+filepath.Base(path))
	}
	for n := 1; ; n++ {
		aside := base + damagedSuffix + "-" + strconv.Itoa(n)
		if _, err := os.Lstat(aside); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if err := os.Rename(path, aside); err != nil {
			return "", err
		}
		return aside, syncDir(dir)
	}
}

// damageError says that the bytes of the log are bad, as opposed to a disk that could not be read.
type damageError struct{ err error }

func (e *damageError) Error() string { return e.err.Error() }
func (e *damageError) Unwrap() error { return e.err }

func damaged(format string, args ...any) error {
	return &damageError{fmt.Errorf(format, args...)}
}

// guarded calls f and turns a panic, and a fault on mapped memory, into damage.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = damaged("%v", v)
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

// walk reads the whole file without writing to it.
func walk(path string) (err error) {
	options := boltOptions()
	options.ReadOnly = true
	var file *os.File
	options.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		var err error
		file, err = os.OpenFile(name, flag, mode)
		return file, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return damaged("the file is empty")
	}
	err = guarded(func() error {
		db, err := bbolt.Open(path, 0o600, options)
		if err != nil {
			if strings.Contains(err.Error(), "file size too small") {
				return &damageError{err}
			}
			return err
		}
		err = db.View(func(tx *bbolt.Tx) error {
			if tx.Size() > info.Size() {
				return damaged("the file has %d bytes of %d", info.Size(), tx.Size())
			}
			return errors.Join(walkLog(tx.Bucket([]byte("logs"))), walkRows(tx.Bucket([]byte("conf"))))
		})
		return errors.Join(err, db.Close())
	})
	var damage *damageError
	if errors.As(err, &damage) && file != nil {
		_ = file.Close() // when a panic left it open; the damage is what matters
	}
	return err
}

// walkLog checks that the log's entries follow each other.
func walkLog(bucket *bbolt.Bucket) error {
	var last uint64
	return eachRow(bucket, func(key, _ []byte) error {
		if len(key) != 8 {
			return damaged("an entry of the log has a key of %d bytes", len(key))
		}
		index := binary.BigEndian.Uint64(key)
		if last != 0 && index != last+1 {
			return damaged("entry %d of the log follows entry %d", index, last)
		}
		last = index
		return nil
	})
}

func walkRows(bucket *bbolt.Bucket) error {
	last := ""
	return eachRow(bucket, func(key, _ []byte) error {
		if last != "" && string(key) <= last {
			return damaged("the keys of a page are out of order")
		}
		last = string(key)
		return nil
	})
}

func eachRow(bucket *bbolt.Bucket, row func(key, value []byte) error) error {
	if bucket == nil {
		return damaged("a table is missing in the file")
	}
	var sum byte
	err := bucket.ForEach(func(key, value []byte) error {
		for _, b := range value {
			sum ^= b // touches every page, so that a missing one shows here
		}
		return row(key, value)
	})
	runtime.KeepAlive(sum)
	return err
}

// identify checks whose log this is.
func (f *files) identify(cfg Config) error {
	id, err := f.bolt.Get(keyCluster)
	if err != nil {
		return f.lost(fmt.Errorf("the metadata log does not say which cluster it belongs to: %w", err))
	}
	node, err := f.bolt.GetUint64(keyNode)
	if err != nil {
		return f.lost(fmt.Errorf("the metadata log does not say which node it belongs to: %w", err))
	}
	f.clusterID = string(id)
	switch {
	case cfg.ClusterID != "" && cfg.ClusterID != f.clusterID:
		return fault.Newf("quorum.Open", fault.Validation, f.log, "the metadata log is of cluster %s, the data directory of cluster %s", f.clusterID, cfg.ClusterID)
	case node != uint64(cfg.Node):
		return fault.Newf("quorum.Open", fault.Validation, f.log, "the metadata log is of node %d, this is node %d", node, cfg.Node)
	}
	return nil
}

// makeDir makes a directory that is still there after a power cut.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // directories cannot be synced there, renames are durable by themselves
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/nats-io/nuid"
	"go.etcd.io/bbolt"

	"github.com/weirlog/weir/internal/boltfile"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

const (
	logName       = "raft.db"
	snapshotsDir  = "snapshots" // raft's own name for it
	newSuffix     = ".new"      // a log that was being made when the process ended: never the only copy of anything
	damagedSuffix = ".damaged"  // set aside for an operator, never opened again
	snapshotsKept = 2
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
	if err := boltfile.MakeDir(cfg.Dir); err != nil {
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
	if err := boltfile.Guard(func() error { return f.identify(cfg) }); err != nil {
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
	bolt, err := raftboltdb.New(raftboltdb.Options{Path: aside, BoltOptions: boltfile.Options()})
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
	return boltfile.Rename(aside, f.log)
}

// openLog opens the log for writing after its pages were walked.
func (f *files) openLog() (*raftboltdb.BoltStore, error) {
	if err := boltfile.Walk(f.log, walkTables); err != nil {
		return nil, f.openError(err)
	}
	options := boltfile.Options()
	options.ReadOnly = f.inspect
	var bolt *raftboltdb.BoltStore
	err := boltfile.Opening(options, func(options *bbolt.Options) (err error) {
		bolt, err = raftboltdb.New(raftboltdb.Options{Path: f.log, BoltOptions: options})
		return err
	})
	if err != nil {
		return nil, f.openError(err)
	}
	return bolt, nil
}

// openError sets a damaged log aside; other troubles leave it where it is.
func (f *files) openError(err error) error {
	switch {
	case errors.Is(err, boltfile.ErrLocked):
		return fault.Newf("quorum.Open", fault.Internal, f.log, "another process has the metadata log open")
	case !boltfile.IsDamage(err):
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
		return aside, boltfile.Rename(path, aside)
	}
}

// walkTables reads the tables of a log whose pages are sound.
func walkTables(tx *bbolt.Tx) error {
	anything := func(_, _ []byte) error { return nil }
	return errors.Join(walkLog(tx.Bucket([]byte("logs"))), boltfile.Rows(tx.Bucket([]byte("conf")), anything))
}

// walkLog checks that the log's entries follow each other.
func walkLog(bucket *bbolt.Bucket) error {
	var last uint64
	return boltfile.Rows(bucket, func(key, _ []byte) error {
		if len(key) != 8 {
			return boltfile.Damaged("an entry of the log has a key of %d bytes", len(key))
		}
		index := binary.BigEndian.Uint64(key)
		if last != 0 && index != last+1 {
			return boltfile.Damaged("entry %d of the log follows entry %d", index, last)
		}
		last = index
		return nil
	})
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

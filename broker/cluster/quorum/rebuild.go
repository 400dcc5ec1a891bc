package quorum

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Rebuilt says what a log that was made anew begins with.
type Rebuilt struct {
	ClusterID string
	Index     uint64 // of the last command in the snapshot
	Topics    int
}

// Rebuild makes a new log from the newest snapshot that can be read, for an operator who has lost the
// log and has no backup of it. Changes of the metadata after that snapshot are lost. It refuses while
// there is a log, and founds nothing: without a snapshot it is an error.
func Rebuild(dir string, node topic.NodeID, logger *slog.Logger) (Rebuilt, error) {
	refuse := func(format string, args ...any) (Rebuilt, error) {
		return Rebuilt{}, fault.Newf("quorum.Rebuild", fault.Validation, dir, format, args...)
	}
	f := &files{dir: dir, log: filepath.Join(dir, logName)}
	switch _, err := os.Stat(f.log); {
	case err == nil:
		return refuse("there is a metadata log; move %s away first if it is to be given up", f.log)
	case !errors.Is(err, fs.ErrNotExist):
		return Rebuilt{}, err
	}
	if _, err := os.Stat(filepath.Join(dir, snapshotsDir)); err != nil {
		return refuse("there are no snapshots: %w", err)
	}
	if err := f.sweep(); err != nil {
		return Rebuilt{}, err
	}
	var err error
	if f.snapshots, err = raft.NewFileSnapshotStoreWithLogger(dir, snapshotsKept, bridge(logger)); err != nil {
		return Rebuilt{}, err
	}
	list, err := f.snapshots.List()
	if err != nil {
		return Rebuilt{}, err
	}
	for _, meta := range list {
		state, err := f.read(meta)
		if errors.Is(err, cluster.ErrNewer) {
			return Rebuilt{}, err
		}
		if err != nil {
			if err := f.putAside(meta, err, logger); err != nil {
				return Rebuilt{}, err
			}
			continue
		}
		image := state.Image()
		err = f.makeLog(image.ClusterID(), node, func(bolt *raftboltdb.BoltStore) error {
			return bolt.SetUint64(keyCurrentTerm, meta.Term)
		})
		return Rebuilt{ClusterID: image.ClusterID(), Index: image.Index(), Topics: image.TopicCount()}, err
	}
	return refuse("there is no snapshot that can be read")
}

package quorum

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/internal/boltfile"
	"github.com/weirlog/weir/internal/fault"
)

// check reads what raft will start from, and refuses where raft would panic, or go on with a hole.
func (f *files) check(logger *slog.Logger) error {
	err := boltfile.Guard(func() error { return f.checkAll(logger) })
	if boltfile.IsDamage(err) {
		return f.lost(fmt.Errorf("the metadata log is damaged: %w", err))
	}
	return err
}

func (f *files) checkAll(logger *slog.Logger) error {
	first, last, err := f.bounds()
	if err != nil {
		return err
	}
	newest, err := f.newestSnapshot(first, logger)
	if err != nil {
		return err
	}
	switch {
	case newest == nil && first != 1:
		return f.lost(fmt.Errorf("the metadata log begins at entry %d and there is no snapshot of what was before", first))
	case newest == nil:
		return f.checkEntries(1, last, 0)
	case first == 0: // made anew from the snapshot
		return f.checkTerm(newest.Term)
	case first > newest.Index+1:
		return f.lost(fmt.Errorf("the metadata log begins at entry %d, its newest snapshot ends at %d", first, newest.Index))
	case last < newest.Index:
		return f.lost(fmt.Errorf("the metadata log ends at entry %d, its newest snapshot at %d: it is older than the snapshot", last, newest.Index))
	}
	if first <= newest.Index {
		var entry raft.Log
		if err := f.bolt.GetLog(newest.Index, &entry); err != nil {
			return f.lost(fmt.Errorf("entry %d of the metadata log cannot be read: %w", newest.Index, err))
		}
		if entry.Term != newest.Term {
			return f.lost(fmt.Errorf("entry %d of the metadata log is of term %d, in the newest snapshot it is of term %d: they are not of one history",
				newest.Index, entry.Term, newest.Term))
		}
	}
	return f.checkEntries(newest.Index+1, last, newest.Term)
}

func (f *files) bounds() (first, last uint64, err error) {
	if first, err = f.bolt.FirstIndex(); err != nil {
		return 0, 0, err
	}
	last, err = f.bolt.LastIndex()
	return first, last, err
}

// newestSnapshot returns the snapshot to start from, nil when there is none. A damaged one is set aside
// when the one before it, or the log alone, reaches as far.
func (f *files) newestSnapshot(first uint64, logger *slog.Logger) (*raft.SnapshotMeta, error) {
	list, err := f.snapshots.List()
	if err != nil {
		return nil, err
	}
	for i, meta := range list {
		state, err := f.read(meta)
		if err == nil {
			if id := state.Image().ClusterID(); id != f.clusterID {
				return nil, f.lost(fmt.Errorf("the newest snapshot is of cluster %s, the metadata log of cluster %s", id, f.clusterID))
			}
			return meta, nil
		}
		if errors.Is(err, cluster.ErrNewer) {
			return nil, err
		}
		reach := uint64(0)
		if i+1 < len(list) {
			reach = list[i+1].Index
		}
		if first == 0 || first > reach+1 {
			return nil, f.lost(fmt.Errorf("snapshot %s is damaged (%w), and the metadata log begins after the one before it", meta.ID, err))
		}
		if err := f.putAside(meta, err, logger); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (f *files) putAside(meta *raft.SnapshotMeta, why error, logger *slog.Logger) error {
	if f.inspect {
		return nil
	}
	aside, err := setAside(filepath.Join(f.dir, snapshotsDir, meta.ID))
	if err != nil {
		return errors.Join(why, err)
	}
	logger.Warn("set a damaged snapshot aside", "snapshot", meta.ID, "to", aside, "err", why)
	return nil
}

// read reads a snapshot to its end.
func (f *files) read(meta *raft.SnapshotMeta) (*cluster.State, error) {
	_, source, err := f.snapshots.Open(meta.ID)
	if err != nil {
		return nil, err
	}
	state, err := readSnapshot(source)
	return state, errors.Join(err, source.Close())
}

// checkEntries reads what raft will replay. The file has no checksums of its own; our entries do.
func (f *files) checkEntries(from, to, term uint64) error {
	for index := from; index <= to; index++ {
		var entry raft.Log
		if err := f.bolt.GetLog(index, &entry); err != nil {
			return f.lost(fmt.Errorf("entry %d of the metadata log cannot be read: %w", index, err))
		}
		if entry.Index != index || entry.Term < term {
			return f.lost(fmt.Errorf("entry %d of the metadata log says that it is entry %d of term %d, after term %d", index, entry.Index, entry.Term, term))
		}
		term = entry.Term
		err := checkEntry(&entry)
		if errors.Is(err, cluster.ErrNewer) {
			return fault.New("quorum.Open", fault.Corrupt, fmt.Sprintf("entry %d", index), err)
		}
		if err != nil {
			return f.lost(fmt.Errorf("entry %d of the metadata log is damaged: %w", index, err))
		}
	}
	return f.checkTerm(term)
}

// checkTerm checks that raft will go on above the term of what there is.
func (f *files) checkTerm(term uint64) error {
	current, err := f.bolt.GetUint64(keyCurrentTerm)
	if err != nil {
		return f.lost(fmt.Errorf("the term of the metadata log cannot be read: %w", err))
	}
	if current < term {
		return f.lost(fmt.Errorf("the metadata log has entries of term %d and says that the term is %d", term, current))
	}
	return nil
}

// checkEntry checks content and type, which must fit: a command whose type was damaged would be skipped.
func checkEntry(entry *raft.Log) error {
	switch entry.Type {
	case raft.LogCommand:
		_, err := cluster.DecodeEntry(entry.Data)
		return err
	case raft.LogConfiguration:
		if voters := raft.DecodeConfiguration(entry.Data).Servers; len(voters) == 0 { // it panics over bytes that it cannot read
			return errors.New("it makes a cluster without nodes")
		}
		return nil
	default:
		if len(entry.Data) > 0 {
			return fmt.Errorf("it is of type %v and has content", entry.Type)
		}
		return nil
	}
}

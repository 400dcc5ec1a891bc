package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/internal/boltfile"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

const (
	rebuildSuffix = ".new"   // of a directory that is being made; never the only copy of anything
	asideSuffix   = ".aside" // of the directory that was there before, for a person to look at
)

// Rebuilding says what to make metadata anew from.
type Rebuilding struct {
	Dir       string       // as in [Config]
	Node      topic.NodeID // as in [Config]
	ClusterID string       // of the data directory
	Topics    []cluster.Survivor
	Force     bool         // also when what is there is sound, or belongs to somebody else
	Logger    *slog.Logger // nil: none
}

// Rebuilt says what was made.
type Rebuilt struct {
	Aside   string // where the directory is now that was there before; "" when there was none
	Why     error  // what was wrong with it; nil when it was sound
	Source  string // the old metadata that was used: a snapshot or the whole log; "" for none
	Topics  []cluster.Revived
	Left    []cluster.LeftOut
	Entries int
}

// Rebuild makes the metadata anew, for an operator who has lost it and has no backup: from the old
// metadata as far as it can be read, and from the topics' directories. The directory that is there is
// set aside as it is. It refuses, and changes nothing, while what is there is sound, unless it is forced,
// and when a later program wrote it. Nobody else may use the directory meanwhile.
func Rebuild(r Rebuilding) (Rebuilt, error) {
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	was, err := r.look()
	switch {
	case err != nil:
		return Rebuilt{}, err
	case was.trouble == nil && !r.Force:
		return r.refuse("the metadata is sound, nothing was changed; with --force it is made anew all the same")
	case was.trouble != nil && !fault.Is(was.trouble, fault.Corrupt) && !r.Force:
		return r.refuse("nothing was changed: %w; with --force the metadata is made anew all the same", was.trouble)
	case was.state == nil && len(r.Topics) == 0:
		return r.refuse("nothing was changed: there is neither a snapshot of the metadata that can be read, nor a topic's directory")
	}
	built := Rebuilt{Why: was.trouble, Source: was.source}
	state, topics, left := cluster.Revive(was.state, r.ClusterID, r.Node, topic.Millis(time.Now().UnixMilli()), r.Topics)
	built.Topics, built.Left, built.Entries = topics, left, state.Image().EntryCount()
	made := r.Dir + rebuildSuffix
	if err := os.RemoveAll(made); err != nil {
		return Rebuilt{}, err
	}
	if err := r.write(made, state, max(was.term, 1)); err != nil {
		return Rebuilt{}, errors.Join(fmt.Errorf("the new metadata could not be written, the old is where it was: %w", err), os.RemoveAll(made))
	}
	built.Aside, err = r.swap(made)
	return built, err
}

func (r *Rebuilding) refuse(format string, args ...any) (Rebuilt, error) {
	return Rebuilt{}, fault.Newf("quorum.Rebuild", fault.Validation, r.Dir, format, args...)
}

// remains is what is left of metadata.
type remains struct {
	state   *cluster.State // nil: nothing
	source  string
	term    uint64
	trouble error // why a node does not start with it; nil when it does
}

// look reads what is there and writes nothing. Its error is one that also --force does not overrule.
func (r *Rebuilding) look() (remains, error) {
	dir := r.Dir
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		// An earlier try may have ended between its two renames.
		if last, _ := asides(r.Dir); last != "" {
			dir = last
		}
	} else if err != nil {
		return remains{}, err
	}
	f := &files{dir: dir, log: filepath.Join(dir, logName), inspect: true}
	if _, err := os.Stat(filepath.Join(dir, snapshotsDir)); err == nil {
		if f.snapshots, err = raft.NewFileSnapshotStoreWithLogger(dir, snapshotsKept, bridge(r.Logger)); err != nil {
			return remains{}, err
		}
	}
	was, err := r.readAll(f)
	if dir != r.Dir && was.trouble == nil {
		was.trouble = f.lost(fmt.Errorf("%s is missing", r.Dir))
	}
	if err != nil || was.trouble == nil || was.state != nil {
		return was, err
	}
	trouble := was.trouble
	was, err = r.readSnapshot(f)
	was.trouble = trouble
	return was, err
}

// readAll reads the log with the snapshot that it builds on, if a node would start with them.
func (r *Rebuilding) readAll(f *files) (was remains, err error) {
	defer func() {
		if errors.Is(was.trouble, cluster.ErrNewer) {
			err = was.trouble
		}
	}()
	switch _, err := os.Stat(f.log); {
	case errors.Is(err, fs.ErrNotExist):
		return remains{trouble: f.lost(errors.New("the metadata log is missing"))}, nil
	case err != nil:
		return remains{trouble: err}, nil
	case f.snapshots == nil:
		return remains{trouble: f.lost(errors.New("there is no directory of snapshots"))}, nil
	}
	if f.bolt, err = f.openLog(); err != nil {
		return remains{trouble: err}, nil
	}
	defer func() { err = errors.Join(err, f.bolt.Close()) }()
	trouble := boltfile.Guard(func() error { return f.identify(Config{Node: r.Node, ClusterID: r.ClusterID}) })
	if trouble == nil {
		trouble = f.check(r.Logger)
	}
	if trouble != nil {
		return remains{trouble: trouble}, nil
	}
	was = remains{source: "the whole log"}
	was.trouble = boltfile.Guard(func() (err error) {
		was.state, was.term, err = f.replay(r.Logger)
		return err
	})
	if was.trouble != nil {
		was.state = nil
	}
	return was, nil
}

// replay returns the state that a node would start with, and its term.
func (f *files) replay(logger *slog.Logger) (*cluster.State, uint64, error) {
	first, last, err := f.bounds()
	if err != nil {
		return nil, 0, err
	}
	state, from := cluster.NewState(), uint64(1)
	newest, err := f.newestSnapshot(first, logger)
	if err != nil {
		return nil, 0, err
	}
	if newest != nil {
		if state, err = f.read(newest); err != nil {
			return nil, 0, err
		}
		from = newest.Index + 1
	}
	for index := from; index <= last; index++ {
		var entry raft.Log
		if err := f.bolt.GetLog(index, &entry); err != nil {
			return nil, 0, err
		}
		if entry.Type != raft.LogCommand {
			continue
		}
		commands, err := cluster.DecodeEntry(entry.Data)
		if err != nil {
			return nil, 0, err
		}
		for _, c := range commands {
			state.Apply(index, c)
		}
	}
	term, err := f.bolt.GetUint64(keyCurrentTerm)
	return state, term, err
}

// readSnapshot reads the newest snapshot that can be read and is of this cluster.
func (r *Rebuilding) readSnapshot(f *files) (remains, error) {
	if f.snapshots == nil {
		return remains{}, nil
	}
	list, err := f.snapshots.List()
	if err != nil {
		return remains{}, err
	}
	for _, meta := range list {
		state, err := f.read(meta)
		switch {
		case errors.Is(err, cluster.ErrNewer):
			return remains{}, err
		case err != nil:
			r.Logger.Warn("a snapshot cannot be read", "snapshot", meta.ID, "err", err)
		case state.Image().ClusterID() != r.ClusterID:
			r.Logger.Warn("a snapshot is of another cluster", "snapshot", meta.ID, "cluster", state.Image().ClusterID())
		default:
			return remains{state: state, source: "snapshot " + meta.ID, term: meta.Term}, nil
		}
	}
	return remains{}, nil
}

// write makes a directory with one snapshot and an empty log behind it.
func (r *Rebuilding) write(dir string, state *cluster.State, term uint64) error {
	if err := boltfile.MakeDir(dir); err != nil {
		return err
	}
	f := &files{dir: dir, log: filepath.Join(dir, logName)}
	var err error
	if f.snapshots, err = raft.NewFileSnapshotStoreWithLogger(dir, snapshotsKept, bridge(r.Logger)); err != nil {
		return err
	}
	id := serverID(r.Node)
	sink, err := f.snapshots.Create(raft.SnapshotVersionMax, max(state.Image().Index(), 1), term, onlyVoter(id), 1, newTransport(id))
	if err != nil {
		return err
	}
	if _, err := sink.Write(state.Snapshot().Encode()); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	return f.makeLog(r.ClusterID, r.Node, func(bolt *raftboltdb.BoltStore) error {
		return bolt.SetUint64(keyCurrentTerm, term)
	})
}

// swap puts the new directory in the place of the one that is there, and says where that is now.
func (r *Rebuilding) swap(made string) (aside string, err error) {
	_, aside = asides(r.Dir)
	switch err := os.Rename(r.Dir, aside); {
	case errors.Is(err, fs.ErrNotExist):
		aside = ""
	case err != nil:
		return "", err
	}
	return aside, boltfile.Rename(made, r.Dir)
}

// asides returns the directory that was set aside last, "" for none, and the name for the next.
func asides(dir string) (last, next string) {
	for n := 1; ; n++ {
		next = dir + asideSuffix + "-" + strconv.Itoa(n)
		if _, err := os.Lstat(next); err != nil {
			return last, next
		}
		last = next
	}
}

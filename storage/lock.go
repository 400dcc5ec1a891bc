package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// DirFormat is the format of data directories that this program reads and writes.
const DirFormat = 1

// The files of a data directory that storage keeps; topics and the controller have directories beside.
const (
	lockName     = "weir.lock"
	identityName = "weir.json"
	bootName     = "weir.boot"
)

var bootKind = kind{"wbot", 1}

// DirConfig says who opens a data directory.
type DirConfig struct {
	ClusterID string       // empty takes the directory's, and makes one for an empty directory
	NodeID    topic.NodeID // at least 1
	BootID    string       // see [BootID]
}

// Dir is a node's data directory, held by this process alone until Close.
type Dir struct {
	Path      string
	ClusterID string
	NodeID    topic.NodeID
	ID        topic.ID // the directory's own: a node that comes back with another has lost its data

	Fresh   bool // it was empty
	Rebuilt bool // weir.json could not be read and was written anew from what else is known
	// SameBoot says that the machine was not started anew since the directory was last opened, so the
	// page cache kept all that a killed process had written.
	SameBoot bool

	lock io.Closer
}

// identity is the content of weir.json, and together with the boot id of weir.boot, which stands in
// for it when it cannot be read.
type identity struct {
	Format    int          `json:"format"`
	Cluster   string       `json:"cluster"`
	Node      topic.NodeID `json:"node"`
	Directory string       `json:"directory"`
	Boot      string       `json:"boot,omitempty"`
}

// OpenDir takes a data directory for this process: it makes and names an empty one, and refuses, with
// a sentence, one that another process holds, that another node or cluster left, or that a newer
// program wrote. Close lets go of it.
func OpenDir(fsys vfs.FS, dir string, cfg DirConfig) (*Dir, error) {
	if cfg.NodeID < 1 {
		return nil, refuseDir(dir, "the node id must be at least 1, it is %d", cfg.NodeID)
	}
	if err := makeDir(fsys, dir); err != nil {
		return nil, fault.New("storage.OpenDir", fault.Internal, dir, err)
	}
	lock, err := fsys.Lock(filepath.Join(dir, lockName))
	var held *vfs.LockedError
	switch {
	case errors.As(err, &held) && held.PID != 0:
		return nil, refuseDir(dir, "process %d uses this data directory; stop it, or name another directory", held.PID)
	case errors.As(err, &held):
		return nil, refuseDir(dir, "another process uses this data directory; stop it, or name another directory")
	case err != nil:
		return nil, fault.New("storage.OpenDir", fault.Internal, dir, err)
	}
	d, err := openLocked(fsys, dir, cfg)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	d.lock = lock
	return d, nil
}

// Close lets another process have the directory.
func (d *Dir) Close() error { return d.lock.Close() }

func refuseDir(dir, format string, args ...any) error {
	return fault.Newf("storage.OpenDir", fault.Validation, dir, format, args...)
}

// makeDir makes a directory and each missing one above it, durably.
func makeDir(fsys vfs.FS, dir string) error {
	there, err := vfs.Exists(fsys, dir)
	if there || err != nil {
		return err
	}
	above := filepath.Dir(dir)
	if above != dir {
		if err := makeDir(fsys, above); err != nil {
			return err
		}
	}
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return fsys.SyncDir(above)
}

func openLocked(fsys vfs.FS, dir string, cfg DirConfig) (*Dir, error) {
	wrap := func(err error) error { return fault.New("storage.OpenDir", fault.Internal, dir, err) }
	if _, err := removeAsides(fsys, dir); err != nil {
		return nil, wrap(err)
	}
	last, err := readBoot(fsys, dir)
	if err != nil {
		return nil, wrap(err)
	}
	d := &Dir{Path: dir}
	id, err := readIdentity(fsys, dir)
	switch {
	case missing(err) && last.Directory != "":
		id, d.Rebuilt = last, true
	case missing(err):
		if err := checkEmpty(fsys, dir, err); err != nil {
			return nil, err
		}
		id, d.Fresh = newIdentity(cfg), true
	case err != nil:
		return nil, wrap(err)
	}
	if err := checkIdentity(dir, id, cfg); err != nil {
		return nil, err
	}
	d.ClusterID, d.NodeID = id.Cluster, id.Node
	if d.ID, err = topic.ParseID(id.Directory); err != nil {
		return nil, refuseDir(dir, "%s names the directory %q, which is no id", identityName, id.Directory)
	}
	d.SameBoot = !d.Fresh && cfg.BootID != "" && last.Directory == id.Directory && last.Boot == cfg.BootID

	if d.Fresh || d.Rebuilt {
		if err := writeIdentity(fsys, dir, id); err != nil {
			return nil, wrap(err)
		}
	}
	id.Boot = cfg.BootID
	if id != last {
		if err := writeBoot(fsys, dir, id); err != nil {
			return nil, wrap(err)
		}
	}
	return d, nil
}

func newIdentity(cfg DirConfig) identity {
	id := identity{Format: DirFormat, Cluster: cfg.ClusterID, Node: cfg.NodeID, Directory: topic.NewID().String()}
	if id.Cluster == "" {
		id.Cluster = topic.NewID().String()
	}
	return id
}

func checkIdentity(dir string, id identity, cfg DirConfig) error {
	switch {
	case id.Format > DirFormat:
		return refuseDir(dir, "a newer weir wrote this data directory (format %d, this program knows %d); use that one", id.Format, DirFormat)
	case id.Format < 1:
		return refuseDir(dir, "%s has format %d, which never was", identityName, id.Format)
	case cfg.ClusterID != "" && id.Cluster != cfg.ClusterID:
		return refuseDir(dir, "this data directory belongs to cluster %s, not to %s", id.Cluster, cfg.ClusterID)
	case id.Node != cfg.NodeID:
		return refuseDir(dir, "this data directory belongs to node %d, not to node %d", id.Node, cfg.NodeID)
	}
	return nil
}

// checkEmpty refuses a directory that has something in it although nothing says whose it is. A
// directory that somebody named by mistake is not filled with ours.
func checkEmpty(fsys vfs.FS, dir string, why error) error {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return fault.New("storage.OpenDir", fault.Internal, dir, err)
	}
	for _, entry := range entries {
		switch name := entry.Name(); {
		case name == lockName, name == "lost+found", name == bootName:
		case name == identityName:
			// Nothing but damaged files of ours: a first start that never came to an end.
		default:
			if errors.Is(why, fs.ErrNotExist) {
				return refuseDir(dir, "there is %q, but no %s that says whose data this is; name an empty directory, or put the file back", name, identityName)
			}
			return refuseDir(dir, "%s cannot be read (%v), so it is not known whose data this is; put it back from a copy", identityName, why)
		}
	}
	return nil
}

func readIdentity(fsys vfs.FS, dir string) (identity, error) {
	b, err := vfs.ReadFile(fsys, filepath.Join(dir, identityName), 1<<16)
	if err != nil {
		return identity{}, err
	}
	return parseIdentity(b)
}

func parseIdentity(b []byte) (id identity, err error) {
	if err := json.Unmarshal(b, &id); err != nil {
		return identity{}, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if id.Format == 0 || id.Node < 1 || id.Cluster == "" || id.Directory == "" {
		return identity{}, fmt.Errorf("%w: a field is missing", errUnreadable)
	}
	return id, nil
}

func writeIdentity(fsys vfs.FS, dir string, id identity) error {
	id.Boot = ""
	b, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(fsys, filepath.Join(dir, identityName), append(b, '\n'))
}

// readBoot reads weir.boot. One that is missing or damaged is an identity without a directory.
func readBoot(fsys vfs.FS, dir string) (identity, error) {
	b, err := readSmall(fsys, filepath.Join(dir, bootName), bootKind)
	var id identity
	if err == nil {
		id, err = parseIdentity(b)
	}
	if missing(err) {
		return identity{}, nil
	}
	return id, err
}

func writeBoot(fsys vfs.FS, dir string, id identity) error {
	b, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return writeSmall(fsys, filepath.Join(dir, bootName), bootKind, b)
}

// BootID names this start of the machine: it is the same until the machine is started anew. Empty
// where the system does not say.
func BootID() string { return strings.TrimSpace(bootID()) }

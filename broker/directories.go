package broker

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// Topics live in the data directory's "topics", each in a directory named by its id.
const (
	topicsDir = "topics"
	buried    = ".deleted" // on its way out: the topic was deleted
	setAside  = ".aside"   // of a topic that the cluster does not know; for a person to look at
)

func (n *Node) topicDir(id topic.ID) string {
	return filepath.Join(n.cfg.Dir, topicsDir, hex.EncodeToString(id[:]))
}

// diskError is the fault for an error of the file system.
func diskError(what string, err error) error {
	kind := fault.Internal
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		kind = fault.StorageFull
	}
	return fault.New("broker.directories", kind, what, err)
}

// makeTopicDir makes the directory of a topic when there is none. It need not be durable: the log of a
// partition makes it so before the first append, and until then the next start can make it anew.
func (n *Node) makeTopicDir(id topic.ID) error {
	dir := n.topicDir(id)
	if err := n.fs.MkdirAll(dir, 0o755); err != nil {
		return diskError(dir, err)
	}
	return nil
}

// buryTopicDir takes a topic's directory out of sight at once; the cleaner removes it. On a disk that has
// no room for the other name it is removed as it is: that makes room, and what a crash leaves of it the
// next start buries, as the cluster's metadata say that the topic was deleted.
func (n *Node) buryTopicDir(id topic.ID) error {
	dir := n.topicDir(id)
	err := n.fs.Rename(dir, dir+buried)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		dir += buried
		err = n.fs.SyncDir(filepath.Dir(dir))
	}
	if err != nil {
		if err = diskError(dir, err); !fault.Is(err, fault.StorageFull) {
			return err
		}
		n.logger.Warn("no room to rename a deleted topic's directory", "dir", dir, "err", err)
	}
	n.removals.push(dir)
	return nil
}

// tidyTopicDirs goes through the directories at start. What was being removed goes on; what was deleted
// while the node was away goes now; what the cluster does not know is set aside, because metadata that
// lacks a topic is no proof that its records are not wanted. When the cluster knows it again, it comes back.
func (n *Node) tidyTopicDirs(image *cluster.Image) error {
	top := filepath.Join(n.cfg.Dir, topicsDir)
	if err := n.fs.MkdirAll(top, 0o755); err != nil {
		return diskError(top, err)
	}
	if err := n.fs.SyncDir(n.cfg.Dir); err != nil {
		return diskError(top, err)
	}
	entries, err := n.fs.ReadDir(top)
	if err != nil {
		return diskError(top, err)
	}
	for _, entry := range entries {
		dir := filepath.Join(top, entry.Name())
		if strings.HasSuffix(entry.Name(), buried) {
			n.removals.push(dir)
			continue
		}
		if id, ok := topicDirID(strings.TrimSuffix(entry.Name(), setAside)); ok {
			if err := n.tidyTopicDir(image, id, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// tidyTopicDir decides about the directory of a topic, which may be one that was set aside earlier.
func (n *Node) tidyTopicDir(image *cluster.Image, id topic.ID, dir string) error {
	_, known := image.TopicByID(id)
	away := strings.HasSuffix(dir, setAside)
	switch {
	case known && away:
		return n.bringBack(dir, n.topicDir(id))
	case known || away:
		return nil
	case image.Deleted(id):
		return n.buryTopicDir(id)
	default:
		return n.putAside(dir)
	}
}

// bringBack returns the directory of a topic that the cluster knows again: metadata that was too old, or
// made anew, was in force in between. Without it the topic would begin anew at offset 0.
func (n *Node) bringBack(aside, dir string) error {
	there, err := vfs.Exists(n.fs, dir)
	if err != nil {
		return diskError(dir, err)
	}
	if there {
		n.logger.Warn("a topic has a directory, and another one that was set aside earlier", "dir", dir, "aside", aside)
		return nil
	}
	n.logger.Warn("brought back the directory of a topic that the cluster knows again", "dir", dir)
	return n.moveTopicDir(aside, dir)
}

func (n *Node) putAside(dir string) error {
	aside := dir + setAside
	for number := 2; ; number++ {
		there, err := vfs.Exists(n.fs, aside)
		if err != nil {
			return diskError(aside, err)
		}
		if !there {
			break
		}
		aside = dir + "-" + strconv.Itoa(number) + setAside
	}
	n.logger.Warn("set aside the directory of a topic that the cluster does not know", "dir", aside)
	return n.moveTopicDir(dir, aside)
}

func (n *Node) moveTopicDir(from, to string) error {
	if err := n.fs.Rename(from, to); err != nil {
		return diskError(from, err)
	}
	if err := n.fs.SyncDir(filepath.Dir(to)); err != nil {
		return diskError(to, err)
	}
	return nil
}

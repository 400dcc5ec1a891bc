package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

const (
	// topicFileName stands in each topic's directory and says of the topic what the metadata says, so that
	// the metadata can be made anew from the directories. No node reads it to serve.
	topicFileName = "topic.json"

	topicFileFormat = 1
	mostTopicFile   = 1 << 20
)

// topicFile is the content of topic.json.
type topicFile struct {
	Format    int               `json:"format"`
	Topic     topic.Name        `json:"topic"`
	ID        string            `json:"id"`
	CreatedAt topic.Millis      `json:"created_ms"`
	Creator   string            `json:"creator"`
	Settings  map[string]string `json:"settings"` // those that differ from the defaults
	Growth    []topicGrowth     `json:"growth"`   // the last row is the number of partitions
	Sum       uint32            `json:"crc32c"`   // of this, with 0 here, as json.Marshal writes it
}

type topicGrowth struct {
	Partitions int          `json:"partitions"`
	Since      topic.Millis `json:"since_ms"`
}

func (f topicFile) sum() (uint32, error) {
	f.Sum = 0
	b, err := json.Marshal(f)
	return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)), err
}

func encodeTopicFile(t *cluster.Topic) ([]byte, error) {
	f := topicFile{Format: topicFileFormat, Topic: t.Name, ID: t.ID.String(), CreatedAt: t.CreatedAt, Creator: t.Creator, Settings: t.Overrides}
	for _, g := range t.Growth {
		f.Growth = append(f.Growth, topicGrowth(g))
	}
	var err error
	if f.Sum, err = f.sum(); err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(f, "", "  ")
	return append(b, '\n'), err
}

// decodeTopicFile reads what encodeTopicFile wrote, for the topic of an id, and believes nothing else.
func decodeTopicFile(b []byte, id topic.ID) (cluster.Survivor, error) {
	var f topicFile
	if err := json.Unmarshal(b, &f); err != nil {
		return cluster.Survivor{}, err
	}
	if f.Format != topicFileFormat {
		return cluster.Survivor{}, fmt.Errorf("it has format %d, this program knows %d", f.Format, topicFileFormat)
	}
	sum, err := f.sum()
	switch {
	case err != nil:
		return cluster.Survivor{}, err
	case sum != f.Sum:
		return cluster.Survivor{}, errors.New("its checksum does not fit")
	case f.ID != id.String():
		return cluster.Survivor{}, fmt.Errorf("it is of another topic, %s", f.ID)
	}
	s := cluster.Survivor{ID: id, Name: f.Topic, Described: true, CreatedAt: f.CreatedAt, Creator: f.Creator, Overrides: f.Settings}
	for _, g := range f.Growth {
		s.Growth = append(s.Growth, cluster.Growth(g))
	}
	return s, s.Check()
}

// descriptions are the topics whose topic.json is to be looked after. Nobody waits for that: a change of
// many topics would wait for two syncs of each, and what a crash keeps from being written the next start
// writes.
type descriptions struct {
	wake chan struct{}

	mu     sync.Mutex
	topics map[topic.ID]*cluster.Topic // as they are now; guarded by mu
}

func newDescriptions() descriptions {
	return descriptions{wake: make(chan struct{}, 1), topics: map[topic.ID]*cluster.Topic{}}
}

func (d *descriptions) push(t *cluster.Topic) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.topics[t.ID] = t
	ring(d.wake)
}

func (d *descriptions) forget(id topic.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.topics, id)
}

// take returns one of them, nil when there is none.
func (d *descriptions) take() *cluster.Topic {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, t := range d.topics {
		delete(d.topics, id)
		return t
	}
	return nil
}

// describeTopics keeps topic.json of all topics as the image is, until ctx ends and nothing is left.
func (n *Node) describeTopics(ctx context.Context) error {
	for stopped := false; !stopped; {
		select {
		case <-n.described.wake:
		case <-ctx.Done():
			stopped = true
		}
		for t := n.described.take(); t != nil && n.failure() == nil; t = n.described.take() {
			n.describeTopic(t)
		}
	}
	return nil
}

// describeTopic keeps topic.json of one topic as the image is. It is for an operator who lost the metadata,
// so a disk without room for it does not keep a node from serving: the next change, or start, tries again.
func (n *Node) describeTopic(t *cluster.Topic) {
	content, err := encodeTopicFile(t)
	if err == nil {
		err = replaceIfOther(n.fs, filepath.Join(n.topicDir(t.ID), topicFileName), content)
	}
	if err == nil {
		return
	}
	if _, ok := n.hall.topics.Load(t.ID); ok { // else it was deleted meanwhile, its directory with it
		n.logger.Warn("cannot write down a topic's settings beside its records; they are in the metadata alone", "topic", string(t.Name), "err", err)
	}
}

// replaceIfOther replaces a file, durably, unless it has the content already.
func replaceIfOther(fsys vfs.FS, name string, content []byte) error {
	if old, err := vfs.ReadFile(fsys, name, mostTopicFile); err == nil && bytes.Equal(old, content) {
		return nil // else it is missing or no good, and a new one says all that is to be said
	}
	aside := name + ".new"
	f, err := fsys.Open(aside, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(aside, name); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

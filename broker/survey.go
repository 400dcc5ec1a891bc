package broker

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// Survey is what a data directory says of its topics without the metadata.
type Survey struct {
	Topics []cluster.Survivor // a row per directory that has the name of a topic's
	Others []Unclaimed        // what else is there
}

// Unclaimed is something in the directory "topics" that is not a topic's.
type Unclaimed struct {
	Name string
	Why  string
}

// Look reads the directories of the topics in a data directory, for metadata that is made anew. It only
// reads. What a file says is taken when the file is sound and fits its directory's name; a directory that
// says nothing has a row without a name.
func Look(fsys vfs.FS, dir string) (Survey, error) {
	var found Survey
	top := filepath.Join(dir, topicsDir)
	entries, err := fsys.ReadDir(top)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	if err != nil {
		return found, diskError(top, err)
	}
	for _, entry := range entries {
		name := entry.Name()
		id, ok := topicDirID(name)
		switch {
		case strings.HasSuffix(name, buried):
			found.Others = append(found.Others, Unclaimed{name, "what is left of a deleted topic; it is removed by the next start"})
		case strings.HasSuffix(name, setAside):
			found.Others = append(found.Others, Unclaimed{name, "set aside earlier; it comes back if it is that of a topic without a directory, otherwise not"})
		case !ok || !entry.IsDir():
			found.Others = append(found.Others, Unclaimed{name, "not the directory of a topic"})
		default:
			s, err := lookAtTopic(fsys, filepath.Join(top, name), id)
			if err != nil {
				return found, diskError(filepath.Join(top, name), err)
			}
			found.Topics = append(found.Topics, s)
		}
	}
	return found, nil
}

// topicDirID is the id that a topic's directory is named by.
func topicDirID(name string) (id topic.ID, ok bool) {
	if hex.DecodedLen(len(name)) != len(id) || len(name)%2 != 0 || name != strings.ToLower(name) {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(name))
	return id, err == nil && !id.IsZero()
}

// lookAtTopic reads one topic's directory. Its error is one of the disk.
func lookAtTopic(fsys vfs.FS, dir string, id topic.ID) (cluster.Survivor, error) {
	s := cluster.Survivor{ID: id}
	b, err := readWhatIsThere(fsys, filepath.Join(dir, topicFileName))
	if err != nil {
		return s, err
	}
	if described, err := decodeTopicFile(b, id); err == nil {
		s = described
	}
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return s, err
	}
	names := map[topic.Name]bool{}
	for _, entry := range entries {
		number, ok := partitionNumber(entry)
		if !ok {
			continue
		}
		s.Partitions = max(s.Partitions, int(number)+1)
		name, err := lookAtPartition(fsys, filepath.Join(dir, entry.Name()), topic.Ref{ID: id, Partition: number}, &s)
		if err != nil {
			return s, err
		}
		if name != "" {
			names[name] = true
		}
	}
	if !s.Described && len(names) == 1 { // partitions that do not agree are no witnesses
		for name := range names {
			s.Name = name
		}
	}
	return s, nil
}

// partitionNumber is the number that a partition's directory is named by.
func partitionNumber(entry fs.DirEntry) (topic.Partition, bool) {
	number, err := strconv.ParseInt(entry.Name(), 10, 32)
	ok := err == nil && entry.IsDir() && number >= 0 && number < cluster.MaxPartitionsPerTopic && strconv.FormatInt(number, 10) == entry.Name()
	return topic.Partition(number), ok
}

// lookAtPartition returns the topic that partition.json names, "" when it says nothing that can be
// believed, and raises s.Written to the time at which a file was last written to.
func lookAtPartition(fsys vfs.FS, dir string, ref topic.Ref, s *cluster.Survivor) (topic.Name, error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			return "", err
		}
		s.Written = max(s.Written, topic.Millis(info.ModTime().UnixMilli()))
	}
	b, err := readWhatIsThere(fsys, filepath.Join(dir, "partition.json"))
	if err != nil {
		return "", err
	}
	var about struct {
		Topic     string
		ID        string
		Partition topic.Partition
	}
	if json.Unmarshal(b, &about) != nil || about.ID != ref.ID.String() || about.Partition != ref.Partition {
		return "", nil
	}
	name, err := topic.ParseName(about.Topic)
	if err != nil {
		return "", nil //nolint:nilerr // a name that is none says nothing
	}
	return name, nil
}

// readWhatIsThere reads a small file. One that is missing, or of no plausible size, is empty.
func readWhatIsThere(fsys vfs.FS, name string) ([]byte, error) {
	info, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info.IsDir() || info.Size() > mostTopicFile {
		return nil, nil
	}
	b, err := vfs.ReadFile(fsys, name, mostTopicFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

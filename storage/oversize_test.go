package storage

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlog/weir/storage/vfs"
)

// hugeFS is a file system in which files with some suffix are said to be of a size that no such file has.
type hugeFS struct {
	vfs.FS
	suffix string
}

type hugeFile struct{ vfs.File }

func (hugeFile) Size() (int64, error) { return 1 << 40, nil }

func (h *hugeFS) Open(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := h.FS.Open(name, flag, perm)
	if err == nil && h.suffix != "" && strings.HasSuffix(filepath.Base(name), h.suffix) {
		return hugeFile{f}, nil
	}
	return f, err
}

// TestASideFileOfAnySizeDoesNotStopAStart: a size can be damaged, too.
func TestASideFileOfAnySizeDoesNotStopAStart(t *testing.T) {
	for _, suffix := range []string{cleanName, epochsName, startName, compactedName, producersSuffix, partitionName, offsetIndex.suffix, timeIndex.suffix} {
		for _, closed := range []bool{true, false} {
			huge := &hugeFS{FS: vfs.NewMem()}
			s := newScene(t, huge, small)
			for range 20 {
				s.append(1, 2, 2000)
			}
			s.sync()
			if closed {
				s.close()
			}
			huge.suffix = suffix
			log, _, err := Open(huge, s.dir, s.cfg)
			if err != nil {
				t.Errorf("%s, closed %v: %v", suffix, closed, err)
				continue
			}
			s.log = log
			s.wantWhole()
			must(t, log.Failed())
		}
	}
}

// TestATableThatFitsNoFileIsNotTheEnd: a producer table can grow beyond what a snapshot may have.
func TestATableThatFitsNoFileIsNotTheEnd(t *testing.T) {
	s := newScene(t, vfs.NewMem(), small)
	s.append(1, 2, 100)
	s.sync()
	must(t, s.log.writeSnapshot(&tableSnapshot{s.log.End(), make([]byte, mostSmallBytes)}))
	must(t, s.log.Failed())
	s.append(1, 2, 100)
	s.sync()
}

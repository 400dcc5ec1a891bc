package storage

import (
	"fmt"
	"sync"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
)

// Room keeps a part of a disk free: the logs that share one refuse appends before the disk is full, so
// that metadata, side files and retention still find room. It is safe for concurrent use.
type Room struct {
	fsys    vfs.FS
	dir     string
	reserve int64

	mu   sync.Mutex
	left int64     // bytes that may still be taken before the next look; guarded by mu
	seen time.Time // the last look; guarded by mu
}

// How long the system's word on free space is believed: others write to the disk, too, and so do side
// files. When little is left it is not believed at all.
const (
	lookEvery = time.Second
	lookBelow = 64 << 20
)

// NewRoom watches the file system below dir and keeps reserve bytes of it free.
func NewRoom(fsys vfs.FS, dir string, reserve int64) *Room {
	return &Room{fsys: fsys, dir: dir, reserve: reserve}
}

// Space is what the file system has free for this process, the reserve included, and its whole size.
func (r *Room) Space() (vfs.Space, error) { return r.fsys.Space(r.dir) }

// Look asks whether n more bytes may be taken, without taking them. The error is a reason to refuse, of
// kind StorageFull, or the file system's own.
func (r *Room) Look(n int64) error {
	space, err := r.Space()
	if err != nil {
		return fmt.Errorf("space of %s: %w", r.dir, err)
	}
	if n > space.Free-r.reserve {
		return fault.Newf("storage.Look", fault.StorageFull, nil, "%d bytes are needed, and %w", n, r.short(space.Free))
	}
	return nil
}

func (r *Room) short(free int64) error {
	return fmt.Errorf("%d bytes are free, of which %d are kept in reserve", max(0, free), r.reserve)
}

// take asks for n more bytes of the disk. The error is a reason to refuse, or the file system's own.
func (r *Room) take(n int64) error {
	if r == nil || n <= 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); n > r.left || r.left < lookBelow || now.Sub(r.seen) >= lookEvery {
		space, err := r.fsys.Space(r.dir)
		if err != nil {
			return fmt.Errorf("space of %s: %w", r.dir, err)
		}
		r.left, r.seen = space.Free-r.reserve, now
	}
	if n > r.left {
		return r.short(r.left + r.reserve)
	}
	r.left -= n
	return nil
}

package cluster

import (
	"slices"

	"github.com/weirlog/weir/internal/fault"
)

func (op PutEntry) apply(s *State) Result {
	const what = "PutEntry"
	key := entryKey{op.Kind, op.Name}
	old, exists := s.image.entries.get(key)
	switch {
	case op.Kind == "" || len(op.Kind) > MaxEntryNameBytes:
		return refuse(what, fault.Validation, nil, "an entry's kind has 1 to %d bytes, not %d", MaxEntryNameBytes, len(op.Kind))
	case op.Name == "" || len(op.Name) > MaxEntryNameBytes:
		return refuse(what, fault.Validation, op.Kind, "an entry's name has 1 to %d bytes, not %d", MaxEntryNameBytes, len(op.Name))
	case len(op.Value) > MaxEntryBytes:
		return refuse(what, fault.Limit, key, "an entry has at most %d bytes, not %d", MaxEntryBytes, len(op.Value))
	case !exists && s.image.entries.count >= MaxEntries:
		return refuse(what, fault.Limit, key, "there are %d entries, which is the most there may be", MaxEntries)
	}
	if err := checkVersion(what, key, old, op.Expect); err != nil {
		return Result{Err: err}
	}
	size := s.image.entryBytes - old.size() + len(op.Value)
	if size > MaxEntriesBytes {
		return refuse(what, fault.Limit, key, "all entries together would have %d bytes, at most %d are allowed", size, MaxEntriesBytes)
	}
	s.image.entryBytes = size
	s.image.entries = s.image.entries.with(key, &Entry{
		Kind: op.Kind, Name: op.Name, Version: s.image.version, Value: slices.Clone(op.Value),
	})
	return Result{}
}

func (op DeleteEntry) apply(s *State) Result {
	const what = "DeleteEntry"
	key := entryKey{op.Kind, op.Name}
	old, exists := s.image.entries.get(key)
	if !exists {
		return refuse(what, fault.NotFound, key, "there is no such entry")
	}
	if err := checkVersion(what, key, old, op.Expect); err != nil {
		return Result{Err: err}
	}
	s.image.entryBytes -= old.size()
	s.image.entries = s.image.entries.without(key)
	return Result{}
}

// size in bytes of an entry that may be nil.
func (e *Entry) size() int {
	if e == nil {
		return 0
	}
	return len(e.Value)
}

// checkVersion refuses a change of another version than the one its proposer saw. old nil: no entry.
func checkVersion(what string, key entryKey, old *Entry, expect uint64) error {
	var have uint64
	if old != nil {
		have = old.Version
	}
	if expect == AnyVersion || expect == have {
		return nil
	}
	return fault.Newf("cluster."+what, fault.Fenced, key, "the change is for version %d, the entry is now at %d", expect, have)
}

// String is "acl/alice".
func (k entryKey) String() string { return shortened(k.kind) + "/" + shortened(k.name) }

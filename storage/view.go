package storage

import (
	"slices"
	"sort"

	"github.com/weirlog/weir/topic"
)

// view is the list of a log's segments at one moment. It is replaced as a whole and never written to,
// so a reader that holds one sees a list that fits together.
type view struct {
	segments []*segment // by base
}

// active is the last segment, which appends go to; nil in an empty log.
func (v *view) active() *segment {
	if len(v.segments) == 0 {
		return nil
	}
	return v.segments[len(v.segments)-1]
}

// find is the number of the segment that would hold an offset: the last that begins at or below it,
// -1 when all begin later.
func (v *view) find(offset topic.Offset) int {
	return sort.Search(len(v.segments), func(i int) bool { return v.segments[i].base > offset }) - 1
}

// limit is the offset that ends segment i: where the next one begins, or the log's end.
func (v *view) limit(i int, end topic.Offset) topic.Offset {
	if i+1 < len(v.segments) {
		return v.segments[i+1].base
	}
	return end
}

// with is the list with one more segment.
func (v *view) with(s *segment) *view {
	return &view{append(slices.Clip(v.segments), s)}
}

// replace is the list with one segment in the place of several that follow each other.
func (v *view) replace(olds []*segment, fresh *segment) *view {
	i := slices.Index(v.segments, olds[0])
	return &view{slices.Concat(v.segments[:i], []*segment{fresh}, v.segments[i+len(olds):])}
}

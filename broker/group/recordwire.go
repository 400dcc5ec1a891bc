package group

import (
	"errors"
	"fmt"
	"math"

	"github.com/weirlog/weir/internal/wire"
	"github.com/weirlog/weir/topic"
)

// writer appends values in the format of docs/group-records.md. One value has one form.
type writer struct{ b wire.Writer }

func (w *writer) epoch(v topic.GroupEpoch) { w.b.Uint(uint64(v)) }
func (w *writer) millis(v topic.Millis)    { w.b.Int(int64(v)) }
func (w *writer) checksum(key []byte)      { w.b.Checksum(key) }

// ErrNewer is below the errors about sound bytes that a later program wrote.
var ErrNewer = errors.New("start the newer program that wrote it")

func newer(what string, version byte, known int) error {
	return fmt.Errorf("%s has format %d and this program knows formats up to %d; %w", what, version, known, ErrNewer)
}

// reader takes values in the format of docs/group-records.md.
type reader struct{ wire.Reader }

func (r *reader) epoch() topic.GroupEpoch { return topic.GroupEpoch(r.Number(math.MaxInt64)) }
func (r *reader) millis() topic.Millis    { return topic.Millis(r.Int()) }

// filled is a text that is not empty.
func (r *reader) filled() string {
	v := r.Text()
	if v == "" {
		r.Fail(wire.ErrForm)
	}
	return v
}

func (r *reader) topicName() topic.Name {
	v := r.Text()
	if r.Err() != nil {
		return ""
	}
	name, err := topic.ParseName(v)
	if err != nil {
		r.Fail(err)
	}
	return name
}

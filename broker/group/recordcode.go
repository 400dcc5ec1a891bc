package group

import (
	"fmt"
	"math"
	"slices"

	"github.com/weirlog/weir/internal/wire"
	"github.com/weirlog/weir/topic"
)

// Versions of the formats. A change of a format takes the next number and keeps reading the old ones.
const (
	keyVersion   = 1
	valueVersion = 1
)

// Bits and numbers in values. None is ever given another meaning.
const (
	deletedBit = 1

	earliestStart = 0
	latestStart   = 1
	timeStart     = 2

	pollingKind   = 0
	connectedKind = 1

	nothingForm = 0
	topicsForm  = 1
	prefixForm  = 2
	patternForm = 3

	leavingBit = 1
)

// value is what a record says of its key.
type value interface {
	append(w *writer)
	read(r *reader)
}

// seal makes the record of a key and a value. The checksum is over both, so that a value that came under
// another's key is noticed as well.
func seal(key []byte, v value) Record {
	w := writer{b: make([]byte, 0, 64)}
	w.b.Byte(valueVersion)
	v.append(&w)
	w.checksum(key)
	return Record{Key: key, Value: w.b}
}

// open reads the value of a record into v.
func open(rec Record, v value) error {
	body, err := wire.Checked(rec.Key, rec.Value)
	if err != nil {
		return corrupt("value", rec.Key, err)
	}
	r := reader{wire.NewReader(body)}
	if version := r.Byte(); r.Err() == nil && version != valueVersion {
		return corrupt("value", rec.Key, newer("it", version, valueVersion))
	}
	v.read(&r)
	if err := r.End(); err != nil {
		return corrupt("value", rec.Key, err)
	}
	return nil
}

func (k recordKey) encode() []byte {
	w := writer{b: make([]byte, 0, len(k.Group)+len(k.Member)+24)}
	w.b.Byte(keyVersion)
	w.b.Byte(byte(k.Kind))
	w.b.Text(string(k.Group))
	switch k.Kind {
	case memberKind:
		w.b.Text(string(k.Member))
	case topicKind:
		w.b.ID(k.Topic)
	case offsetKind:
		w.b.ID(k.Topic)
		w.b.Uint(uint64(k.Partition))
	case groupKind:
	}
	return w.b
}

func readKey(b []byte) (recordKey, error) {
	r := reader{wire.NewReader(b)}
	if version := r.Byte(); r.Err() == nil && version != keyVersion {
		return recordKey{}, newer("it", version, keyVersion)
	}
	k := recordKey{Kind: recordKind(r.Byte())}
	name := r.View()
	if r.Err() != nil {
		return recordKey{}, r.Err()
	}
	var err error
	if k.Group, err = topic.ParseGroupName(string(name)); err != nil {
		return recordKey{}, err
	}
	switch k.Kind {
	case groupKind:
	case memberKind:
		member := r.View()
		if r.Err() != nil {
			return recordKey{}, r.Err()
		}
		if k.Member, err = topic.ParseMemberName(string(member)); err != nil {
			return recordKey{}, err
		}
	case topicKind:
		k.Topic = r.ID()
	case offsetKind:
		k.Topic = r.ID()
		k.Partition = topic.Partition(r.Number(math.MaxInt32))
	default:
		return recordKey{}, fmt.Errorf("it is of kind %q, which this program does not know; %w", byte(k.Kind), ErrNewer)
	}
	return k, r.End()
}

func (v *groupRecord) append(w *writer) {
	w.epoch(v.Epoch)
	flags := byte(0)
	if v.Deleted {
		flags |= deletedBit
	}
	w.b.Byte(flags)
	w.b.Texts(v.Overrides)
	switch v.Start.Kind {
	case topic.AtEarliest:
		w.b.Byte(earliestStart)
	case topic.AtLatest:
		w.b.Byte(latestStart)
	case topic.AtTime:
		w.b.Byte(timeStart)
		w.millis(v.Start.Time)
	}
	w.millis(v.CreatedAt)
	w.millis(v.EmptySince)
}

func (v *groupRecord) read(r *reader) {
	v.Epoch = r.epoch()
	v.Deleted = r.Choice(deletedBit) == deletedBit
	v.Overrides = r.Texts()
	switch r.Choice(timeStart) {
	case earliestStart:
		v.Start.Kind = topic.AtEarliest
	case latestStart:
		v.Start.Kind = topic.AtLatest
	case timeStart:
		v.Start.Kind = topic.AtTime
		v.Start.Time = r.millis()
	}
	v.CreatedAt = r.millis()
	v.EmptySince = r.millis()
}

func (v *memberRecord) append(w *writer) {
	w.epoch(v.Epoch)
	w.epoch(v.Since)
	w.epoch(v.Also)
	switch v.Kind {
	case topic.PollingMember:
		w.b.Byte(pollingKind)
	case topic.ConnectedMember:
		w.b.Byte(connectedKind)
	}
	w.b.Text(v.Principal)
	w.b.Int(int64(v.Node))
	w.millis(v.JoinedAt)
	appendSubscription(w, &v.Subscription)
	appendAssignment(w, v.Assignment)
}

func (v *memberRecord) read(r *reader) {
	v.Epoch = r.epoch()
	v.Since = r.epoch()
	v.Also = r.epoch()
	switch r.Choice(connectedKind) {
	case pollingKind:
		v.Kind = topic.PollingMember
	case connectedKind:
		v.Kind = topic.ConnectedMember
	}
	v.Principal = r.Text()
	v.Node = topic.NodeID(r.Int32())
	v.JoinedAt = r.millis()
	readSubscription(r, &v.Subscription)
	v.Assignment = readAssignment(r)
}

func appendSubscription(w *writer, s *topic.Subscription) {
	switch {
	case s.IsZero():
		w.b.Byte(nothingForm)
	case s.Pattern != "":
		w.b.Byte(patternForm)
		w.b.Text(s.Pattern)
	case s.Prefix != "":
		w.b.Byte(prefixForm)
		w.b.Text(s.Prefix)
	default:
		w.b.Byte(topicsForm)
		w.b.Count(len(s.Topics))
		for _, name := range s.Topics {
			w.b.Text(string(name))
		}
	}
}

func readSubscription(r *reader, s *topic.Subscription) {
	switch r.Choice(patternForm) {
	case nothingForm:
	case patternForm:
		s.Pattern = r.filled()
	case prefixForm:
		s.Prefix = r.filled()
	case topicsForm:
		n := r.Count(2)
		if n == 0 {
			r.Fail(wire.ErrForm)
			return
		}
		s.Topics = make([]topic.Name, 0, n)
		for range n {
			name := r.topicName()
			if len(s.Topics) > 0 && name <= s.Topics[len(s.Topics)-1] {
				r.Fail(wire.ErrOrder)
				return
			}
			s.Topics = append(s.Topics, name)
		}
	}
}

// appendAssignment groups the partitions by topic. Most partitions take three bytes.
func appendAssignment(w *writer, held []heldPartition) {
	topics := 0
	for i := range held {
		if i == 0 || held[i].Ref.ID != held[i-1].Ref.ID {
			topics++
		}
	}
	w.b.Uint(uint64(topics))
	for len(held) > 0 {
		id := held[0].Ref.ID
		n := 1
		for n < len(held) && held[n].Ref.ID == id {
			n++
		}
		w.b.ID(id)
		w.b.Uint(uint64(n))
		after := topic.Partition(0) // the least that the next number can be
		for _, p := range held[:n] {
			w.b.Uint(uint64(p.Ref.Partition - after))
			after = p.Ref.Partition + 1
			if p.Leaving == topic.NoGroupEpoch {
				w.b.Uint(uint64(p.Assigned) << 1)
				continue
			}
			w.b.Uint(uint64(p.Assigned)<<1 | leavingBit)
			w.epoch(p.Leaving)
		}
		held = held[n:]
	}
}

func readAssignment(r *reader) []heldPartition {
	var held []heldPartition
	var last topic.ID
	for i := range r.Count(len(topic.ID{}) + 3) {
		id := r.ID()
		if i > 0 && compareRef(topic.Ref{ID: id}, topic.Ref{ID: last}) <= 0 {
			r.Fail(wire.ErrOrder)
		}
		last = id
		n := r.Count(2)
		if n == 0 {
			r.Fail(wire.ErrForm)
			return nil
		}
		held = slices.Grow(held, n)
		after := uint64(0)
		for range n {
			number := r.Number(math.MaxInt32) + after
			assigned := r.Uint()
			p := heldPartition{
				Ref:      topic.Ref{ID: id, Partition: topic.Partition(number)},
				Assigned: topic.GroupEpoch(assigned >> 1),
			}
			if assigned&leavingBit != 0 {
				p.Leaving = r.epoch()
				if p.Leaving == topic.NoGroupEpoch {
					r.Fail(wire.ErrForm)
				}
			}
			if number > math.MaxInt32 {
				r.Fail(wire.ErrForm)
			}
			if r.Err() != nil {
				return nil
			}
			held = append(held, p)
			after = number + 1
		}
	}
	return held
}

func (v *topicRecord) append(w *writer) {
	w.b.Text(string(v.Name))
	w.b.Uint(uint64(v.Partitions))
}

func (v *topicRecord) read(r *reader) {
	v.Name = r.topicName()
	v.Partitions = int32(r.Number(math.MaxInt32))
}

func (v *offsetRecord) append(w *writer) {
	w.b.Uint(uint64(v.Next))
	w.b.Uint(uint64(int64(v.LastEpoch) + 1))
	w.epoch(v.Assigned)
	w.millis(v.At)
	w.b.Text(v.Metadata)
}

func (v *offsetRecord) read(r *reader) {
	v.Next = topic.Offset(r.Number(math.MaxInt64))
	v.LastEpoch = topic.Epoch(int64(r.Number(math.MaxInt32+1)) - 1)
	v.Assigned = r.epoch()
	v.At = r.millis()
	v.Metadata = r.Text()
}

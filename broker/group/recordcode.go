package group

import (
	"fmt"
	"maps"
	"math"
	"slices"

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
	w.byte(valueVersion)
	v.append(&w)
	w.checksum(key)
	return Record{Key: key, Value: w.b}
}

// open reads the value of a record into v.
func open(rec Record, v value) error {
	body, err := checked(rec.Key, rec.Value)
	if err != nil {
		return corrupt("value", rec.Key, err)
	}
	r := reader{b: body}
	if version := r.byte(); r.err == nil && version != valueVersion {
		return corrupt("value", rec.Key, newer("it", version, valueVersion))
	}
	v.read(&r)
	if err := r.end(); err != nil {
		return corrupt("value", rec.Key, err)
	}
	return nil
}

func (k recordKey) encode() []byte {
	w := writer{b: make([]byte, 0, len(k.Group)+len(k.Member)+24)}
	w.byte(keyVersion)
	w.byte(byte(k.Kind))
	w.string(string(k.Group))
	switch k.Kind {
	case memberKind:
		w.string(string(k.Member))
	case topicKind:
		w.id(k.Topic)
	case offsetKind:
		w.id(k.Topic)
		w.uint(uint64(k.Partition))
	case groupKind:
	}
	return w.b
}

func readKey(b []byte) (recordKey, error) {
	r := reader{b: b}
	if version := r.byte(); r.err == nil && version != keyVersion {
		return recordKey{}, newer("it", version, keyVersion)
	}
	k := recordKey{Kind: recordKind(r.byte())}
	name := r.view()
	if r.err != nil {
		return recordKey{}, r.err
	}
	var err error
	if k.Group, err = topic.ParseGroupName(string(name)); err != nil {
		return recordKey{}, err
	}
	switch k.Kind {
	case groupKind:
	case memberKind:
		member := r.view()
		if r.err != nil {
			return recordKey{}, r.err
		}
		if k.Member, err = topic.ParseMemberName(string(member)); err != nil {
			return recordKey{}, err
		}
	case topicKind:
		k.Topic = r.id()
	case offsetKind:
		k.Topic = r.id()
		k.Partition = topic.Partition(r.number(math.MaxInt32))
	default:
		return recordKey{}, fmt.Errorf("it is of kind %q, which this program does not know; %w", byte(k.Kind), ErrNewer)
	}
	return k, r.end()
}

func (v *groupRecord) append(w *writer) {
	w.epoch(v.Epoch)
	flags := byte(0)
	if v.Deleted {
		flags |= deletedBit
	}
	w.byte(flags)
	w.uint(uint64(len(v.Overrides)))
	for _, name := range slices.Sorted(maps.Keys(v.Overrides)) {
		w.string(name)
		w.string(v.Overrides[name])
	}
	switch v.Start.Kind {
	case topic.AtEarliest:
		w.byte(earliestStart)
	case topic.AtLatest:
		w.byte(latestStart)
	case topic.AtTime:
		w.byte(timeStart)
		w.millis(v.Start.Time)
	}
	w.millis(v.CreatedAt)
	w.millis(v.EmptySince)
}

func (v *groupRecord) read(r *reader) {
	v.Epoch = r.epoch()
	v.Deleted = r.choice(deletedBit) == deletedBit
	if n := r.count(2); n > 0 {
		v.Overrides = make(map[string]string, n)
		last := ""
		for i := range n {
			name := r.string()
			if i > 0 && name <= last {
				r.fail(errOrder)
				return
			}
			v.Overrides[name], last = r.string(), name
		}
	}
	switch r.choice(timeStart) {
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
		w.byte(pollingKind)
	case topic.ConnectedMember:
		w.byte(connectedKind)
	}
	w.string(v.Principal)
	w.int(int64(v.Node))
	w.millis(v.JoinedAt)
	appendSubscription(w, &v.Subscription)
	appendAssignment(w, v.Assignment)
}

func (v *memberRecord) read(r *reader) {
	v.Epoch = r.epoch()
	v.Since = r.epoch()
	v.Also = r.epoch()
	switch r.choice(connectedKind) {
	case pollingKind:
		v.Kind = topic.PollingMember
	case connectedKind:
		v.Kind = topic.ConnectedMember
	}
	v.Principal = r.string()
	v.Node = topic.NodeID(r.int32())
	v.JoinedAt = r.millis()
	readSubscription(r, &v.Subscription)
	v.Assignment = readAssignment(r)
}

func appendSubscription(w *writer, s *topic.Subscription) {
	switch {
	case s.IsZero():
		w.byte(nothingForm)
	case s.Pattern != "":
		w.byte(patternForm)
		w.string(s.Pattern)
	case s.Prefix != "":
		w.byte(prefixForm)
		w.string(s.Prefix)
	default:
		w.byte(topicsForm)
		w.uint(uint64(len(s.Topics)))
		for _, name := range s.Topics {
			w.string(string(name))
		}
	}
}

func readSubscription(r *reader, s *topic.Subscription) {
	switch r.choice(patternForm) {
	case nothingForm:
	case patternForm:
		s.Pattern = r.filled()
	case prefixForm:
		s.Prefix = r.filled()
	case topicsForm:
		n := r.count(2)
		if n == 0 {
			r.fail(errForm)
			return
		}
		s.Topics = make([]topic.Name, 0, n)
		for range n {
			name := r.topicName()
			if len(s.Topics) > 0 && name <= s.Topics[len(s.Topics)-1] {
				r.fail(errOrder)
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
	w.uint(uint64(topics))
	for len(held) > 0 {
		id := held[0].Ref.ID
		n := 1
		for n < len(held) && held[n].Ref.ID == id {
			n++
		}
		w.id(id)
		w.uint(uint64(n))
		after := topic.Partition(0) // the least that the next number can be
		for _, p := range held[:n] {
			w.uint(uint64(p.Ref.Partition - after))
			after = p.Ref.Partition + 1
			if p.Leaving == topic.NoGroupEpoch {
				w.uint(uint64(p.Assigned) << 1)
				continue
			}
			w.uint(uint64(p.Assigned)<<1 | leavingBit)
			w.epoch(p.Leaving)
		}
		held = held[n:]
	}
}

func readAssignment(r *reader) []heldPartition {
	var held []heldPartition
	var last topic.ID
	for i := range r.count(len(topic.ID{}) + 3) {
		id := r.id()
		if i > 0 && compareRef(topic.Ref{ID: id}, topic.Ref{ID: last}) <= 0 {
			r.fail(errOrder)
		}
		last = id
		n := r.count(2)
		if n == 0 {
			r.fail(errForm)
			return nil
		}
		held = slices.Grow(held, n)
		after := uint64(0)
		for range n {
			number := r.number(math.MaxInt32) + after
			assigned := r.uint()
			p := heldPartition{
				Ref:      topic.Ref{ID: id, Partition: topic.Partition(number)},
				Assigned: topic.GroupEpoch(assigned >> 1),
			}
			if assigned&leavingBit != 0 {
				p.Leaving = r.epoch()
				if p.Leaving == topic.NoGroupEpoch {
					r.fail(errForm)
				}
			}
			if number > math.MaxInt32 {
				r.fail(errForm)
			}
			if r.err != nil {
				return nil
			}
			held = append(held, p)
			after = number + 1
		}
	}
	return held
}

func (v *topicRecord) append(w *writer) {
	w.string(string(v.Name))
	w.uint(uint64(v.Partitions))
}

func (v *topicRecord) read(r *reader) {
	v.Name = r.topicName()
	v.Partitions = int32(r.number(math.MaxInt32))
}

func (v *offsetRecord) append(w *writer) {
	w.uint(uint64(v.Next))
	w.uint(uint64(int64(v.LastEpoch) + 1))
	w.epoch(v.Assigned)
	w.millis(v.At)
	w.string(v.Metadata)
}

func (v *offsetRecord) read(r *reader) {
	v.Next = topic.Offset(r.number(math.MaxInt64))
	v.LastEpoch = topic.Epoch(int64(r.number(math.MaxInt32+1)) - 1)
	v.Assigned = r.epoch()
	v.At = r.millis()
	v.Metadata = r.string()
}

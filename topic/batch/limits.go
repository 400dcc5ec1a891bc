package batch

import "github.com/weirlog/weir/topic"

// MostUnpackedBytes is the most that the records of one batch may take unpacked, in any topic.
const MostUnpackedBytes = unpackedFactor * topic.MostMaxMessageBytes

const (
	// unpackedFactor times the largest batch is what the records of a packed one may take unpacked:
	// whoever reads the batch holds that much memory.
	unpackedFactor = 8
	// packedRatio is how much larger unpacked records may be than packed ones, once they are larger
	// than any plain batch may be. Text packs 3 to 20 times; far beyond that it was made to cost memory.
	packedRatio = 100
)

// Limits of a batch that comes in. A limit of 0 is none, but MostUnpackedBytes always holds.
type Limits struct {
	BatchBytes    int // the batch as it stands, packed
	RecordBytes   int // key, value and headers of one record, unpacked; see [RecordBytes]
	UnpackedBytes int // all records of the batch, unpacked
}

// LimitsOf a topic.
func LimitsOf(s topic.Settings) Limits {
	return Limits{
		BatchBytes:    s.MaxMessageBytes,
		RecordBytes:   s.MaxRecordBytes(),
		UnpackedBytes: unpackedFactor * s.MaxMessageBytes,
	}
}

// unpacked is the limit for the records of a batch that take packedBytes packed.
func (l Limits) unpacked(packedBytes int) int {
	most := MostUnpackedBytes
	if l.UnpackedBytes > 0 {
		most = min(most, l.UnpackedBytes)
	}
	if l.BatchBytes > 0 {
		// What may come in as a plain batch may also come in packed, however well it packs.
		most = min(most, max(l.BatchBytes, packedRatio*packedBytes))
	}
	return most
}

// RecordBytes is the size of a record as limits count it: its key, its value, and the names and
// values of its headers.
func RecordBytes(r *topic.Record) int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Name) + len(r.Headers[i].Value)
	}
	return n
}

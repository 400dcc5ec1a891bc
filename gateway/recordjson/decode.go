package recordjson

import (
	"github.com/weirlog/weir/topic"
)

// Decoder reads records from JSON. The records that a method returns, and all their bytes and names,
// are views of the input and of the Decoder: they are valid until its next call and while the input
// does not change. A Decoder is for one goroutine at a time; the zero Decoder is ready.
//
// Records without a partition have AnyPartition, without a timestamp NoTimestamp. Errors are faults
// of kind InvalidJSON, Validation, or RequestTooLarge for too many records, and all have an [Errors]
// in their chain.
type Decoder struct {
	records []topic.Record
}

// TakeDecoder returns a Decoder that has been used before, where there is one.
func TakeDecoder() *Decoder { return new(Decoder) }

// Release gives the Decoder back. It and the records that it returned must not be used any more.
func (d *Decoder) Release() {}

// Body reads {"records":[…]} with 1 to most records.
func (d *Decoder) Body(body []byte, most int) ([]topic.Record, error) { return nil, nil }

// Array reads […], the value of "records" in a frame, with 1 to most records. Errors name fields as
// Body does: "records[2].value".
func (d *Decoder) Array(raw []byte, most int) ([]topic.Record, error) { return nil, nil }

// Record reads one record object, as a line of NDJSON has it. The line end may be there or not.
// Errors name fields as "value".
func (d *Decoder) Record(line []byte) (topic.Record, error) { return topic.Record{}, nil }

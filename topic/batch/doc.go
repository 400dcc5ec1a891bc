// Package batch reads, checks and builds record batches: the one byte format of records, on disk and
// on the wire. It is Kafka's RecordBatch with magic 2; docs/record-batch.md has every byte.
//
//	var b batch.Builder
//	b.Reset(nil, batch.Options{})
//	b.Append(&record, now)
//	bytes, err := b.Finish()
//	batch.Stamp(bytes, 1041, 7) // the leader gives the place; the checksum stays valid
//
//	var r batch.Reader
//	defer r.Close()
//	r.Reset(bytes, 0) // one batch, or many in a row
//	for r.Next() {
//		use(r.Record()) // views that hold until the next call
//	}
//	err = r.Err()
//
// It does no I/O and starts no goroutine. Whatever the bytes are, no function panics, reads outside
// of them, or takes more memory than its limits say; what is unsound is an error of kind
// [fault.Corrupt]. Functions that change a batch in place say whether they renew its checksum.
package batch

// Package recordjson turns records into JSON and back: the bodies of produce requests, lines of NDJSON,
// the records of a WebSocket frame, and the objects that readers get.
//
//	d := recordjson.TakeDecoder()
//	defer d.Release() // not before the records have been used
//	records, err := d.Body(body, 10_000)
//
//	out = recordjson.Append(out, reader.Record(), recordjson.Options{Format: recordjson.Auto})
//
// It makes one pass over its input and allocates nothing per record. What it takes is strict JSON:
// UTF-8, no lone surrogates, no duplicate names, at most [MaxDepth] deep. A JSON value keeps its bytes,
// so 12.50 and 2^63 come back as they came. It does no I/O and starts no goroutine.
package recordjson

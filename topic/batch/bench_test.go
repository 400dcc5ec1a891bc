package batch_test

import (
	"testing"

	"github.com/weirlog/weir/topic"
	"github.com/weirlog/weir/topic/batch"
)

const benchRecords = 100

func perRecord(b *testing.B, bytes int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchRecords, "ns/record")
	b.SetBytes(int64(bytes))
	b.ReportAllocs()
}

func BenchmarkBuild(b *testing.B) {
	records := orders(benchRecords)
	for _, codec := range allCodecs {
		b.Run(codec.String(), func(b *testing.B) {
			var builder batch.Builder
			var buf []byte
			for b.Loop() {
				builder.Reset(buf[:0], batch.Options{Codec: codec})
				for i := range records {
					builder.Append(&records[i], records[i].Timestamp)
				}
				buf = finish(b, &builder)
			}
			perRecord(b, len(build(b, batch.Options{}, records...)))
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, codec := range allCodecs {
		b.Run(codec.String(), func(b *testing.B) {
			bytes := build(b, batch.Options{Codec: codec}, orders(benchRecords)...)
			var r batch.Reader
			defer r.Close()
			for b.Loop() {
				n := 0
				for r.Reset(bytes, 0); r.Next(); {
					n += len(r.Record().Value)
				}
				if n == 0 || r.Err() != nil {
					b.Fatal(r.Err())
				}
			}
			perRecord(b, len(build(b, batch.Options{}, orders(benchRecords)...)))
		})
	}
}

func BenchmarkValidate(b *testing.B) {
	for _, codec := range allCodecs {
		b.Run(codec.String(), func(b *testing.B) {
			bytes := build(b, batch.Options{Codec: codec}, orders(benchRecords)...)
			limits := batch.LimitsOf(topic.DefaultSettings())
			for b.Loop() {
				if _, err := batch.Validate(bytes, batch.Fresh, limits); err != nil {
					b.Fatal(err)
				}
			}
			perRecord(b, len(build(b, batch.Options{}, orders(benchRecords)...)))
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	bytes := build(b, batch.Options{}, orders(benchRecords)...)
	for b.Loop() {
		if _, err := batch.Check(bytes); err != nil {
			b.Fatal(err)
		}
	}
	perRecord(b, len(bytes))
}

// The hot paths allocate nothing once their buffers have grown.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector drops pooled buffers by chance")
	}
	records := orders(benchRecords)
	var builder batch.Builder
	var r batch.Reader
	defer r.Close()
	var headers []topic.Header
	for _, codec := range allCodecs {
		var buf []byte
		built := testing.AllocsPerRun(20, func() {
			builder.Reset(buf[:0], batch.Options{Codec: codec})
			for i := range records {
				builder.Append(&records[i], records[i].Timestamp)
			}
			buf = finish(t, &builder)
		})
		read := testing.AllocsPerRun(20, func() {
			for r.Reset(buf, 0); r.Next(); {
				headers = r.Record().Headers.Append(headers[:0])
			}
		})
		// A few for a whole packed batch are the codec's own; none is for a record.
		most := 0.0
		if codec != batch.None {
			most = 8
		}
		if built > most || read > most {
			t.Errorf("%s: building allocates %v times, reading %v", codec, built, read)
		}
	}
}

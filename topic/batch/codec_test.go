package batch_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"runtime"
	"slices"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic/batch"
)

// repack replaces the records of a plain batch by what another client would have packed them into.
func repack(plain []byte, codec batch.Codec, packed []byte) []byte {
	b := append(bytes.Clone(plain[:batch.HeaderBytes]), packed...)
	b[22] = byte(codec)
	return reseal(b)
}

// xerial frames snappy blocks as Java's library does.
func xerial(plain []byte, block int) []byte {
	out := append([]byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}, 0, 0, 0, 1, 0, 0, 0, 1)
	for chunk := range slices.Chunk(plain, block) {
		packed := s2.EncodeSnappy(nil, chunk)
		out = binary.BigEndian.AppendUint32(out, uint32(len(packed)))
		out = append(out, packed...)
	}
	return out
}

// stream packs with a writer that is given the plain bytes in pieces.
func stream(t testing.TB, plain []byte, open func(io.Writer) io.WriteCloser) []byte {
	t.Helper()
	var out bytes.Buffer
	w := open(&out)
	for piece := range slices.Chunk(plain, 1000) {
		if _, err := w.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Clients pack in more ways than we do.
func TestOtherClientsPacking(t *testing.T) {
	plain := build(t, batch.Options{}, orders(900)...)
	records := plain[batch.HeaderBytes:]
	for name, b := range map[string][]byte{
		"xerial":              repack(plain, batch.Snappy, xerial(records, 32<<10)),
		"xerial, odd blocks":  repack(plain, batch.Snappy, xerial(records, 977)),
		"gzip of the library": repack(plain, batch.Gzip, stream(t, records, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })),
		"gzip in two members": repack(plain, batch.Gzip, append(
			stream(t, records[:5000], func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }),
			stream(t, records[5000:], func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })...)),
		"lz4 as Java's": repack(plain, batch.LZ4, stream(t, records, func(w io.Writer) io.WriteCloser {
			z := lz4.NewWriter(w)
			if err := z.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.BlockChecksumOption(false)); err != nil {
				t.Fatal(err)
			}
			return z
		})),
		"lz4 with its size": repack(plain, batch.LZ4, stream(t, records, func(w io.Writer) io.WriteCloser {
			z := lz4.NewWriter(w)
			if err := z.Apply(lz4.SizeOption(uint64(len(records))), lz4.BlockChecksumOption(true), lz4.CompressionLevelOption(lz4.Level9)); err != nil {
				t.Fatal(err)
			}
			return z
		})),
		"zstd without its size": repack(plain, batch.Zstd, stream(t, records, func(w io.Writer) io.WriteCloser {
			return must[*zstd.Encoder](t)(zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBestCompression)))
		})),
		"zstd in two frames": repack(plain, batch.Zstd, append(
			must[*zstd.Encoder](t)(zstd.NewWriter(nil)).EncodeAll(records[:5000], nil),
			must[*zstd.Encoder](t)(zstd.NewWriter(nil)).EncodeAll(records[5000:], nil)...)),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := batch.Validate(b, batch.Fresh, batch.Limits{}); err != nil {
				t.Fatal(err)
			}
			if n := compare(t, b, 0); n != 900 {
				t.Fatal(n)
			}
		})
	}
}

// A size that a sender claims is no reason to take memory.
func TestClaimedSizes(t *testing.T) {
	plain := build(t, batch.Options{}, orders(1)...)
	for name, b := range map[string][]byte{
		"snappy":         repack(plain, batch.Snappy, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}),
		"xerial":         repack(plain, batch.Snappy, append(xerial(nil, 1), 0, 0, 0, 6, 0xff, 0xff, 0xff, 0xff, 0x0f, 0)),
		"zstd":           repack(plain, batch.Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0}),
		"zstd, a window": repack(plain, batch.Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0xff, 1, 0, 0}),
	} {
		const runs = 20
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			if _, err := batch.Validate(b, batch.Fresh, batch.Limits{}); err == nil {
				t.Errorf("%s passed", name)
			}
		}
		runtime.ReadMemStats(&after)
		if each := (after.TotalAlloc - before.TotalAlloc) / runs; each > 1<<20 {
			t.Errorf("%s: %d bytes were allocated", name, each)
		}
	}
	b := repack(plain, batch.Snappy, append(xerial(nil, 1), 0xff, 0xff, 0xff, 0xff))
	if _, err := batch.Validate(b, batch.Fresh, batch.Limits{}); !fault.Is(err, fault.Corrupt) {
		t.Error(err)
	}
}

// fuzzCodec unpacks as we and as franz-go do: what both take is alike, and none takes too much.
func fuzzCodec(f *testing.F, codec batch.Codec) {
	plain := build(f, batch.Options{}, orders(5)...)
	for _, n := range []int{1, 5, 50} {
		b := build(f, batch.Options{Codec: codec}, orders(n)...)
		f.Add(b[batch.HeaderBytes:])
	}
	if codec == batch.Snappy {
		f.Add(xerial(plain[batch.HeaderBytes:], 300))
	}
	oracle := kgo.DefaultDecompressor()
	f.Fuzz(func(t *testing.T, packed []byte) {
		b := repack(plain, codec, packed)
		var got []*record
		err := func() error {
			var r batch.Reader
			defer r.Close()
			for r.Reset(b, 0); r.Next(); {
				got = append(got, &record{string(r.Record().Key), string(r.Record().Value)})
			}
			return r.Err()
		}()
		if _, oracleErr := oracle.Decompress(packed, kgo.CompressionCodecType(codec)); oracleErr != nil {
			if err == nil {
				t.Fatalf("franz-go cannot unpack it: %v", oracleErr)
			}
			return
		}
		want, oracleErr := readOracle(b, 0)
		if err == nil && oracleErr == nil {
			if len(got) != len(want) {
				t.Fatalf("%d records, franz-go finds %d", len(got), len(want))
			}
			for i := range got {
				if got[i].key != string(want[i].Key) || got[i].value != string(want[i].Value) {
					t.Fatalf("record %d differs", i)
				}
			}
		}
		if err == nil && oracleErr != nil {
			t.Fatalf("franz-go refuses it: %v", oracleErr)
		}
	})
}

type record struct{ key, value string }

func FuzzGzip(f *testing.F)   { fuzzCodec(f, batch.Gzip) }
func FuzzSnappy(f *testing.F) { fuzzCodec(f, batch.Snappy) }
func FuzzLZ4(f *testing.F)    { fuzzCodec(f, batch.LZ4) }
func FuzzZstd(f *testing.F)   { fuzzCodec(f, batch.Zstd) }

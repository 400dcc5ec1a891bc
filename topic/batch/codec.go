package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/weirlog/weir/internal/fault"
)

// Buffers for unpacked records are shared. One that a large batch made large is not kept.
const keptBufferBytes = 4 << 20

var buffers = sync.Pool{New: func() any { return new([]byte) }}

func takeBuffer() *[]byte { return buffers.Get().(*[]byte) }

func giveBuffer(b *[]byte) {
	if cap(*b) <= keptBufferBytes {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}

var errTooLarge = errors.New("too large")

// unpack appends the plain form of packed to dst, which is empty, or returns a fault: RequestTooLarge
// when it would have more than most bytes, Corrupt when it is not sound. It returns dst, or what it
// grew into, in any case.
func unpack(dst, packed []byte, codec Codec, most int) ([]byte, error) {
	var out []byte
	var err error
	switch codec {
	case Gzip:
		out, err = unpackGzip(dst, packed, most)
	case Snappy:
		out, err = unpackSnappy(dst, packed, most)
	case LZ4:
		out, err = unpackLZ4(dst, packed, most)
	case Zstd:
		out, err = unpackZstd(dst, packed, most)
	default:
		err = fmt.Errorf("codec %d is not known", codec)
	}
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, errTooLarge):
		return dst, fault.Newf("batch.unpack", fault.RequestTooLarge, nil, "the records of a batch take more than %d bytes unpacked (%s)", most, codec)
	default:
		return dst, fault.Newf("batch.unpack", fault.Corrupt, nil, "the records cannot be unpacked as %s: %w", codec, err)
	}
}

type gzipReader struct {
	gzip.Reader
	source bytes.Reader
}

var gzipReaders = sync.Pool{New: func() any { return new(gzipReader) }}

func unpackGzip(dst, packed []byte, most int) ([]byte, error) {
	r := gzipReaders.Get().(*gzipReader)
	defer gzipReaders.Put(r)
	r.source.Reset(packed)
	defer r.source.Reset(nil)
	if err := r.Reset(&r.source); err != nil {
		return nil, err
	}
	return readAll(dst, &r.Reader, len(packed), most)
}

type lz4Reader struct {
	*lz4.Reader
	source bytes.Reader
}

var lz4Readers = sync.Pool{New: func() any { return &lz4Reader{Reader: lz4.NewReader(nil)} }}

func unpackLZ4(dst, packed []byte, most int) ([]byte, error) {
	r := lz4Readers.Get().(*lz4Reader)
	defer lz4Readers.Put(r)
	r.source.Reset(packed)
	defer r.source.Reset(nil)
	r.Reset(&r.source)
	return readAll(dst, r.Reader, len(packed), most)
}

// readAll reads what r has, up to most bytes, into dst, which it grows from a guess on.
func readAll(dst []byte, r io.Reader, packedBytes, most int) ([]byte, error) {
	dst = slices.Grow(dst, min(most, max(4*packedBytes, 512)))
	for {
		if len(dst) == cap(dst) {
			dst = slices.Grow(dst, min(cap(dst), max(most-len(dst), 0)+1))
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if len(dst) > most {
			return nil, errTooLarge
		}
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// xerialMagic begins snappy data as Java's library frames it: this, two version numbers, and then
// blocks, each behind its length.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeaderBytes = 16

var errXerial = errors.New("the framing of the snappy blocks is unsound")

func unpackSnappy(dst, packed []byte, most int) ([]byte, error) {
	if !bytes.HasPrefix(packed, xerialMagic) {
		return unpackBlock(dst, packed, most)
	}
	if len(packed) < xerialHeaderBytes {
		return nil, errXerial
	}
	var err error
	for rest := packed[xerialHeaderBytes:]; len(rest) > 0; {
		if len(rest) < 4 {
			return nil, errXerial
		}
		n := int64(binary.BigEndian.Uint32(rest))
		rest = rest[4:]
		if n > int64(len(rest)) {
			return nil, errXerial
		}
		if dst, err = unpackBlock(dst, rest[:n], most); err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	return dst, nil
}

// unpackBlock appends one snappy block to dst, which may then have most bytes.
func unpackBlock(dst, block []byte, most int) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return nil, err
	}
	if n > most-len(dst) {
		return nil, errTooLarge
	}
	dst = slices.Grow(dst, n)
	out, err := s2.Decode(dst[len(dst):len(dst)+n], block)
	return dst[:len(dst)+len(out)], err
}

// zstdDecoders are shared: DecodeAll may be called by many at once, and starts no goroutine. A decoder
// has one limit for its life, so there is one for each power of two from 1 MiB to MostUnpackedBytes.
var zstdDecoders = func() (decoders [8]func() (*zstd.Decoder, error)) {
	for i := range decoders {
		decoders[i] = sync.OnceValues(func() (*zstd.Decoder, error) {
			return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(1<<(zstdLeast+i)))
		})
	}
	return decoders
}()

const zstdLeast = 20

func unpackZstd(dst, packed []byte, most int) ([]byte, error) {
	class := min(max(bits.Len(uint(most-1))-zstdLeast, 0), len(zstdDecoders)-1)
	decoder, err := zstdDecoders[class]()
	if err != nil {
		return nil, err
	}
	out, err := decoder.DecodeAll(packed, slices.Grow(dst, min(most, 4*len(packed))))
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || len(out) > most {
		return nil, errTooLarge
	}
	return out, err
}

var (
	gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}
	lz4Writers  = sync.Pool{New: func() any { return lz4.NewWriter(nil) }}
)

var zstdEncoder = sync.OnceValues(func() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(128<<10), zstd.WithLowerEncoderMem(true))
})

// pack appends the packed form of plain to dst, which is empty.
func pack(dst, plain []byte, codec Codec) ([]byte, error) {
	switch codec {
	case Gzip:
		w := gzipWriters.Get().(*gzip.Writer)
		defer gzipWriters.Put(w)
		return packStream(dst, plain, w)
	case Snappy:
		dst = slices.Grow(dst, s2.MaxEncodedLen(len(plain)))
		return s2.EncodeSnappy(dst[:cap(dst)], plain), nil
	case LZ4:
		w := lz4Writers.Get().(*lz4.Writer)
		defer lz4Writers.Put(w)
		return packStream(dst, plain, w)
	case Zstd:
		encoder, err := zstdEncoder()
		if err != nil {
			return nil, err
		}
		return encoder.EncodeAll(plain, dst), nil
	default:
		return nil, fault.Newf("batch.pack", fault.Internal, nil, "codec %d is not known", codec)
	}
}

func packStream(dst, plain []byte, w interface {
	io.WriteCloser
	Reset(io.Writer)
},
) ([]byte, error) {
	out := bytes.NewBuffer(dst)
	w.Reset(out)
	defer w.Reset(nil) // or the pool would hold on to the buffer
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

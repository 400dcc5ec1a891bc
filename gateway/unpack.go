package gateway

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/weirlog/weir/internal/fault"
)

// A few kilobytes can unpack to gigabytes. What is unpacked is counted as it comes, and ends at a size and,
// past ratioFloor, at a multiple of what was sent.
const (
	mostRatio  = 250
	ratioFloor = 1 << 20
	zstdWindow = 8 << 20 // the largest window that a zstd frame may ask for; the format's recommended most
)

// unlimited is the size limit of a body that is consumed as it comes.
const unlimited = int(^uint(0) >> 1)

func isIdentity(coding []byte) bool {
	return len(coding) == 0 || bytes.EqualFold(coding, []byte("identity"))
}

// codecOf reads a Content-Encoding: gzip or zstd, one of them.
func codecOf(coding []byte) (codec, error) {
	switch {
	case bytes.EqualFold(coding, []byte("gzip")), bytes.EqualFold(coding, []byte("x-gzip")):
		return gzipCodec, nil
	case bytes.EqualFold(coding, []byte("zstd")):
		return zstdCodec, nil
	default:
		return 0, fault.Newf("gateway.Unpack", fault.UnsupportedType, nil,
			"the content encoding %s is not taken; gzip, zstd or none of them is", quote(string(coding)))
	}
}

type codec int8

const (
	gzipCodec codec = iota
	zstdCodec
)

var (
	gzipReaders = sync.Pool{}
	zstdReaders = sync.Pool{}
)

// unpacker reads what a packed stream holds.
type unpacker struct {
	codec codec
	gz    *gzip.Reader
	zs    *zstd.Decoder
	in    countingReader
	limit int
	out   int
}

// unpack begins to unpack r. The caller releases the result.
func unpack(coding []byte, r io.Reader, limit int) (*unpacker, error) {
	c, err := codecOf(coding)
	if err != nil {
		return nil, err
	}
	u := &unpacker{codec: c, limit: limit, in: countingReader{r: r}}
	switch c {
	case gzipCodec:
		u.gz, _ = gzipReaders.Get().(*gzip.Reader)
		if u.gz == nil {
			u.gz = new(gzip.Reader)
		}
		err = u.gz.Reset(&u.in)
	case zstdCodec:
		u.zs, _ = zstdReaders.Get().(*zstd.Decoder)
		if u.zs == nil {
			// One at a time: the decoder then has no goroutine of its own.
			u.zs, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
			if err != nil {
				return nil, fault.New("gateway.Unpack", fault.Internal, nil, err)
			}
		}
		err = u.zs.Reset(&u.in)
	}
	if err != nil {
		err = u.broken(err)
		u.release()
		return nil, err
	}
	return u, nil
}

// Read unpacks, within the limits.
func (u *unpacker) Read(p []byte) (n int, err error) {
	if u.codec == gzipCodec {
		n, err = u.gz.Read(p)
	} else {
		n, err = u.zs.Read(p)
	}
	u.out += n
	switch {
	case u.out > u.limit:
		return 0, tooLarge(u.limit)
	case u.out > ratioFloor && u.out > mostRatio*u.in.n:
		return 0, fault.Newf("gateway.Unpack", fault.RequestTooLarge, nil, "the body unpacks to more than %d times its size", mostRatio)
	case err == nil || errors.Is(err, io.EOF):
		return n, err
	default:
		return n, u.broken(err)
	}
}

// broken tells the line, of which the engine's error is kept, from the packed bytes.
func (u *unpacker) broken(err error) error {
	if u.in.err != nil && !errors.Is(u.in.err, io.EOF) {
		return u.in.err
	}
	if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return fault.Newf("gateway.Unpack", fault.RequestTooLarge, nil, "the zstd frame asks for a window of more than %d bytes", zstdWindow)
	}
	return fault.Newf("gateway.Unpack", fault.BadRequest, nil, "the body is not what its Content-Encoding says, or is cut off")
}

func (u *unpacker) release() {
	u.in.r = nil
	switch {
	case u.gz != nil:
		gzipReaders.Put(u.gz)
	case u.zs != nil:
		if u.zs.Reset(nil) == nil {
			zstdReaders.Put(u.zs)
		} else {
			u.zs.Close()
		}
	}
	u.gz, u.zs = nil, nil
}

// countingReader counts what was read and keeps the error that ended it.
type countingReader struct {
	r   io.Reader
	n   int
	err error
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	if err != nil {
		c.err = err
	}
	return n, err
}
